"""One side of a comparison: a library that steps a workload, alone in its process since XLA's options are per process.

alternation.py starts `python -m benchmarks.sides <side>` and drives it by lines of JSON: the side says hello once its
libraries are imported, then answers `prepare` (compile, warm up), `call` (one timed call, blocked until ready) and
`stats` until stdin ends. Whatever the libraries print goes to stderr; only replies reach stdout.
"""

import importlib
import json
import math
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Protocol, TextIO

from benchmarks.workloads import Workload

# After so many steps a random policy's episodes have staggered ages: the expected number of episodes that end in a
# window is then the window's length over the mean length, without the surplus of short episodes after a common start.
BURN_IN_STEPS = 100

GYMNAX_NAMES = {"cartpole-control": "CartPole-v1"}


class Side(Protocol):
    """A library that steps all environments of one workload under its policy, with auto-reset."""

    num_devices: int

    def program(self) -> Any:
        """Return JAX's compiled program of one chunk, or None where none is offered."""

    def run(self, num_steps: int) -> None:
        """Step every environment `num_steps` times; return when the device is done."""

    def num_episodes(self) -> int:
        """Return how many episodes ended so far."""


class MyriadSide:
    """The rollout engine of this package."""

    def __init__(self, workload: Workload, *, record: bool, seed: int):
        import myriad
        from myriad import timing
        from myriad.rollout import Rollout

        env = myriad.make_env(workload.env)
        agent = myriad.make_agent(workload.agent, env)
        self.record, self._block = record, timing.block_until_ready
        self.rollout = Rollout(env, agent, workload.num_envs, workload.scan_chunk_size)
        self.num_devices = self.rollout.layout.num_devices
        self.state = self.rollout.init(seed)

    def program(self) -> Any:
        return None if self.record else self.rollout.compile(self.state)

    def run(self, num_steps: int) -> None:
        trajectory = None
        if self.record:
            for start in range(0, num_steps, self.rollout.scan_chunk_size):
                chunk = min(self.rollout.scan_chunk_size, num_steps - start)
                self.state, trajectory = self.rollout.record_chunk(self.state, chunk)
        else:
            self.state = self.rollout.run(self.state, num_steps)
        self._block((self.state, trajectory))

    def num_episodes(self) -> int:
        return self.rollout.summary(self.state).num_episodes


class GymnaxSide:
    """gymnax as its users run it: a jitted scan over a vmapped step, keys split at every step, resets by `env.step`."""

    num_devices = 1

    def __init__(self, workload: Workload, *, record: bool, seed: int):
        import gymnax
        import jax
        import jax.numpy as jnp

        if workload.agent != "random":
            raise NotImplementedError(f"beside gymnax only the random agent is measured, not {workload.agent!r}")
        self.env, self.params = gymnax.make(GYMNAX_NAMES[workload.env])
        self.num_envs, self.chunk, self.record = workload.num_envs, workload.scan_chunk_size, record
        key, reset_key = jax.random.split(jax.random.key(seed))
        keys = jax.random.split(reset_key, self.num_envs)
        _, state = jax.jit(jax.vmap(self.env.reset, in_axes=(0, None)))(keys, self.params)
        self.carry = key, state, jnp.zeros(self.num_envs, jnp.int32)
        self._chunk_of = jax.jit(self._scan, static_argnums=1, donate_argnums=0)

    def program(self) -> Any:
        return self._chunk_of.lower(self.carry, self.chunk).compile()

    def run(self, num_steps: int) -> None:
        import jax

        for start in range(0, num_steps, self.chunk):
            self.carry, trajectory = self._chunk_of(self.carry, min(self.chunk, num_steps - start))
        jax.block_until_ready((self.carry, trajectory))

    def num_episodes(self) -> int:
        import numpy as np

        return int(np.asarray(self.carry[-1]).sum(dtype=np.int64))

    def _scan(self, carry: Any, num_steps: int) -> Any:
        import jax

        return jax.lax.scan(self._step, carry, length=num_steps)

    def _step(self, carry: Any, _: None) -> Any:
        import jax

        key, state, num_episodes = carry
        key, action_key, step_key = jax.random.split(key, 3)
        action = jax.vmap(self.env.action_space(self.params).sample)(jax.random.split(action_key, self.num_envs))
        step = jax.vmap(self.env.step, in_axes=(0, 0, 0, None))
        keys = jax.random.split(step_key, self.num_envs)
        next_obs, state, reward, terminated, truncated, _ = step(keys, state, action, self.params)
        transition = (next_obs, action, reward, terminated, truncated) if self.record else None
        return (key, state, num_episodes + (terminated | truncated)), transition


def _start(name: str) -> dict[str, Any]:
    """Start JAX's backend with the side's options, import its library and say which machine and versions it runs on."""
    import myriad
    from myriad import hardware

    library, _, options = name.partition("-")
    if name == "myriad":
        myriad.configure()
    elif options == "configured":
        myriad.configure(cpu_devices=1)
    machine = asdict(hardware.fingerprint())  # first, as a missing device need not wait for the library
    importlib.import_module(library)
    versions = {"myriad": myriad.__version__} | hardware.package_versions()
    return {"hardware": machine, "versions": versions, "library": library, "library_version": versions.get(library, "")}


class Session:
    """One prepared workload: compiled, warmed up, and what the parent's requests act on."""

    def __init__(self, side: Side, workload: Workload, min_call_s: float):
        from myriad.program import describe

        self.side, self.workload = side, workload
        chunk = workload.scan_chunk_size
        first_s, next_s = _run_s(side, chunk), _run_s(side, chunk)
        self.compile_s = max(first_s - next_s, 0.0)
        compiled = side.program()
        self.program = compiled and describe(compiled)
        for _ in range(2 * chunk, BURN_IN_STEPS, chunk):
            side.run(chunk)
        if workload.num_steps:
            side.run(workload.num_steps)  # compiles what a remainder may need
        self.num_steps = workload.num_steps or _calibrated(side, chunk, next_s, min_call_s)
        self.num_calls, self.num_episodes = 0, side.num_episodes()

    def prepared(self) -> dict[str, Any]:
        """Say what the preparation found."""
        return {
            "num_steps": self.num_steps,
            "compile_s": self.compile_s,
            "argument_bytes": self.program and self.program.argument_bytes * self.side.num_devices,
            "temp_bytes": self.program and self.program.temp_bytes * self.side.num_devices,
        }

    def call(self) -> dict[str, Any]:
        """Run one timed call."""
        self.num_calls += 1
        return {"seconds": _run_s(self.side, self.num_steps)}

    def stats(self) -> dict[str, Any]:
        """Count the episodes that ended since the preparation; all that ran since is timed calls."""
        num_episodes = self.side.num_episodes() - self.num_episodes
        num_steps = self.num_calls * self.num_steps * self.workload.num_envs
        mean = num_steps / num_episodes if num_episodes else None
        return {"num_episodes": num_episodes, "mean_episode_length": mean, "peak_bytes": _peak_bytes()}


def _run_s(side: Side, num_steps: int) -> float:
    start = time.perf_counter()
    side.run(num_steps)
    return time.perf_counter() - start


def _calibrated(side: Side, chunk: int, chunk_s: float, min_call_s: float) -> int:
    """Return the steps of a call of whole chunks that lasts `min_call_s`, where one chunk lasted `chunk_s` seconds."""
    num_chunks, seconds = 1, chunk_s
    while seconds < min_call_s:
        num_chunks = max(2 * num_chunks, math.ceil(1.2 * num_chunks * min_call_s / seconds))
        seconds = min(_run_s(side, num_chunks * chunk) for _ in range(2))  # what disturbs a call only ever prolongs it
    return num_chunks * chunk


def _peak_bytes() -> int:
    """Return the most memory this process held: on the device, or resident where the device is the processor."""
    import jax

    device = jax.devices()[0]
    if device.platform == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return device.memory_stats()["peak_bytes_in_use"]


def replies_to(requests: Iterable[str], name: str) -> Iterator[dict[str, Any]]:
    """Yield the hello of side `name`, then one reply to every request; `prepare` comes before the others."""
    hello = _start(name)
    yield hello
    session: Any = None
    for line in requests:
        request = json.loads(line)
        match request["do"]:
            case "prepare":
                workload = Workload(**request["workload"])
                if hello["hardware"]["device_kind"] not in workload.devices:
                    raise NotImplementedError(f"{workload.name} is declared for {', '.join(workload.devices)} alone")
                side_class = MyriadSide if hello["library"] == "myriad" else GymnaxSide
                side = side_class(workload, record=request["record"], seed=request["seed"])
                session = Session(side, workload, request["min_call_s"])
                yield session.prepared()
            case "call":
                yield session.call()
            case "stats":
                yield session.stats()


def main() -> None:
    """Serve requests from stdin; any other death than those named here is read from stderr by the parent."""
    from myriad.errors import MyriadError

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        for reply in replies_to(sys.stdin, sys.argv[1]):
            print(json.dumps(reply), file=replies, flush=True)
    except (MyriadError, NotImplementedError) as error:
        _tell(replies, "refused", error)
    except ImportError as error:
        _tell(replies, "not installed", error)
    except (RuntimeError, MemoryError) as error:  # what JAX raises, out of memory included
        _tell(replies, "failed", error)


def _tell(replies: TextIO, status: str, error: BaseException) -> None:
    kind = type(error).__name__
    reason = (str(error).strip() or kind).splitlines()[0]  # XLA appends its stack
    print(json.dumps({"status": status, "reason": reason, "error": kind}), file=replies, flush=True)


if __name__ == "__main__":
    main()
