"""The main loop of every library: compile, warm up, run timed calls, count episodes.

The parent, harness/alternation.py, drives it with JSON lines. It says hello once its
libraries are imported. Then it answers `prepare`, `call` (one timed call, blocked until ready) and
`stats` until stdin ends. Standard library only, because peers run this in a Python without Myriad.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from benchmarks.harness.worker import calibrated, peak_bytes, seconds_of
from benchmarks.harness.workload import Case, Workload

# After this many steps a random policy's episodes have staggered ages. Then the expected number of
# episodes that end in a window is the window's length over the mean length, without the surplus of
# short episodes after a common start.
BURN_IN_STEPS = 100
SEED = 0  # of the environments and the policy of every library

Reply = dict[str, Any]


class Totals(NamedTuple):
    """Counts over all environments so far.

    Attributes:
        num_episodes: episodes that ended.
        return_sum: the sum of their returns; None if the library does not keep it.
        num_idle_steps: steps that reset an environment instead of moving it. They count for the
            rate, but not for an episode's length.
    """

    num_episodes: int
    return_sum: float | None
    num_idle_steps: int = 0


class Stepper:
    """The base of what steps the environments of one case, with auto-reset.

    Attributes:
        num_devices: the devices on which it runs.
        compiles: whether the first call compiles.
        max_steps: the most steps of every environment in a call that does not keep the others
            waiting for too long. It is None for a library that is fast enough for any workload.
    """

    num_devices = 1
    compiles = False
    max_steps: int | None = None

    def program(self) -> Any:
        """Return JAX's compiled program of one chunk, or None if there is none."""
        return None

    def run(self, num_steps: int) -> None:
        """Step every environment `num_steps` times. Return when the device is done."""
        raise NotImplementedError

    def totals(self) -> Totals:
        """Count the episodes that ended so far."""
        raise NotImplementedError


class Session:
    """One prepared workload, compiled and warmed up, which answers the parent's requests."""

    def __init__(self, stepper: Stepper, workload: Workload, min_call_s: float):
        self.stepper = stepper
        self.workload = workload
        longest = stepper.max_steps or sys.maxsize
        chunk = min(workload.scan_chunk_size, longest)
        first_s = seconds_of(stepper.run, chunk)
        next_s = seconds_of(stepper.run, chunk)
        # If a library compiles nothing, the difference of two calls would only be noise.
        self.compile_s = max(first_s - next_s, 0.0) if stepper.compiles else None
        self.program = stepper.program()
        for _ in range(2 * chunk, BURN_IN_STEPS, chunk):
            stepper.run(chunk)
        if workload.num_steps:
            self.num_steps = min(workload.num_steps, longest)
            stepper.run(self.num_steps)  # compiles the program that a remainder may need
        else:
            self.num_steps = calibrated(stepper.run, chunk, min_call_s)
        self.num_calls = 0
        self.before = stepper.totals()

    def prepared(self) -> Reply:
        """Return the results of the preparation, with bytes on all devices together."""
        memory = self.program and self.program.memory_analysis()
        devices = self.stepper.num_devices
        return {
            "num_steps": self.num_steps,
            "compile_s": self.compile_s,
            "argument_bytes": memory and memory.argument_size_in_bytes * devices,
            "temp_bytes": memory and memory.temp_size_in_bytes * devices,
        }

    def call(self) -> Reply:
        """Run one timed call."""
        self.num_calls += 1
        return {"seconds": seconds_of(self.stepper.run, self.num_steps)}

    def stats(self) -> Reply:
        """Count the episodes that ended in timed calls, and state the peak memory."""
        totals = self.stepper.totals()
        before = self.before
        num_episodes = totals.num_episodes - before.num_episodes
        num_steps = self.num_calls * self.num_steps * self.workload.num_envs
        num_steps -= totals.num_idle_steps - before.num_idle_steps
        mean_return = None
        if num_episodes and totals.return_sum is not None and before.return_sum is not None:
            mean_return = (totals.return_sum - before.return_sum) / num_episodes
        return {
            "num_episodes": num_episodes,
            "mean_episode_length": num_steps / num_episodes if num_episodes else None,
            "mean_episode_return": mean_return,
            "peak_bytes": peak_bytes(),
        }


def replies_to(
    requests: Iterable[str], hello: Callable[[], Reply], make_stepper: Callable[[Case], Stepper]
) -> Iterator[Reply]:
    """Yield the hello, then one reply to every request. `prepare` comes before the others."""
    yield hello()
    session: Any = None
    for line in requests:
        request = json.loads(line)
        match request["do"]:
            case "prepare":
                workload = Workload(**request["case"].pop("workload"))
                stepper = make_stepper(Case(workload=workload, **request["case"]))
                session = Session(stepper, workload, request["min_call_s"])
                yield session.prepared()
            case "call":
                yield session.call()
            case "stats":
                yield session.stats()
