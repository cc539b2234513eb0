"""Measure in alternation: libraries in processes of their own, or variants in this process.

The parent sends requests to `python -m benchmarks.libraries` and waits. While one library's call
runs, all others sleep. Machines drift by tens of percent within an hour. Calls that are seconds
apart share this drift, so it cancels in the ratio of a round's calls. A library that dies, hangs or
refuses gets an outcome with its reason. No process outlives `alternate`.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.harness.process import Conversation
from benchmarks.harness.worker import ChildError
from benchmarks.harness.workload import Case


@dataclass(frozen=True)
class Budget:
    """When to stop, and how long to wait for a reply. All times are in seconds."""

    num_rounds: int = 15
    max_s: float = 20.0
    min_rounds: int = 6  # the fewest samples that have a 95% interval of their median
    min_call_s: float = 0.05
    prepare_timeout_s: float = 300.0
    call_timeout_s: float = 120.0


@dataclass
class Outcome:
    """The result of one case. `seconds` has one entry per round, or None if it had failed.

    `reason` says why the status is not `ok`. If it is `ok`, `reason` may hold a note for the
    reader.
    """

    case: Case
    status: str = "ok"
    reason: str = ""
    error: str = ""
    hello: dict[str, Any] = field(default_factory=dict)
    prepared: dict[str, Any] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    seconds: list[float | None] = field(default_factory=list)

    def steps_per_s(self) -> list[float | None]:
        """Return environment steps per second, round by round."""
        steps = self.case.workload.num_envs * self.prepared.get("num_steps", 0)
        return [seconds and steps / seconds for seconds in self.seconds]

    def rates(self) -> list[float]:
        """Return `steps_per_s` of the rounds that it took part in."""
        return [rate for rate in self.steps_per_s() if rate is not None]


def library_command(name: str) -> list[str]:
    """Return the command that runs a library."""
    return [sys.executable, "-m", "benchmarks.libraries", name]


_Pairs = list[tuple[Conversation, Outcome]]


def alternate(cases: Sequence[Case], budget: Budget) -> list[Outcome]:
    """Measure cases in alternation, and say on stderr which one compiles.

    Returns:
        One outcome per case, in their order, failed ones included.
    """
    outcomes = [Outcome(case) for case in cases]
    # Two processes share a GPU only if neither takes three quarters of it at the start.
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    environ = {name: os.environ.get(name, "false")}
    with contextlib.ExitStack() as stack:
        commands = [library_command(case.side) for case in cases]
        children = [stack.enter_context(Conversation(each, environ)) for each in commands]
        pairs = list(zip(children, outcomes, strict=True))
        for child, outcome in pairs:  # all start before the first compilation is timed
            with _failure_noted(child, outcome):
                outcome.hello = child.reply(budget.prepare_timeout_s)
        for child, outcome in _alive(pairs):
            with _failure_noted(child, outcome):
                _describe_machine(outcome, outcomes)
        for child, outcome in _alive(pairs):
            workload = outcome.case.workload
            what = f"{workload.num_envs:,} of {workload.env}: compiling {outcome.case.side}"
            print(what, file=sys.stderr, flush=True)
            request = {"case": asdict(outcome.case), "min_call_s": budget.min_call_s}
            with _failure_noted(child, outcome):
                outcome.prepared = child.ask({"do": "prepare"} | request, budget.prepare_timeout_s)
        _run_rounds(pairs, budget)
        for child, outcome in _alive(pairs):
            with _failure_noted(child, outcome):
                outcome.stats = child.ask({"do": "stats"}, budget.call_timeout_s)
    return outcomes


def _describe_machine(outcome: Outcome, outcomes: Sequence[Outcome]) -> None:
    """Add facts about the machine that a peer can't know, taken from the others.

    A peer without JAX always runs on the processor, and its row says so.

    Raises:
        ChildError: it has JAX, and its device is none of theirs.
    """
    hello = outcome.hello
    hardware = hello.get("hardware", {})
    beside = [other.hello for other in outcomes if "device_name" in other.hello.get("hardware", {})]
    if hardware.keys() != {"device_kind"} or not beside:
        return
    kind = hardware["device_kind"]
    same = [each["hardware"] for each in beside if each["hardware"]["device_kind"] == kind]
    if not same and "jax" in hello["versions"]:
        ours = beside[0]["hardware"]["device_kind"]
        raise ChildError("refused", f"its JAX runs on the {kind}, and Myriad's on the {ours}")
    if same:
        hello["hardware"] = same[0]
    else:  # It runs on the processor, beside others on a GPU.
        from myriad.hardware import cpu_name, host_memory, usable_cores

        memory = {"memory_total_bytes": host_memory()[0]}
        hello["hardware"] |= {"device_name": cpu_name(), "cores": usable_cores()} | memory
    hello["versions"] = {"myriad": beside[0]["versions"]["myriad"]} | hello["versions"]


def _run_rounds(pairs: _Pairs, budget: Budget) -> None:
    from myriad.timing import interleave

    # One that has failed keeps its place in each round, so that ratios compare calls of the same
    # round.
    def sample(child: Conversation, outcome: Outcome) -> Any:
        seconds = None
        if outcome.status == "ok":
            with _failure_noted(child, outcome):
                seconds = child.ask({"do": "call"}, budget.call_timeout_s)["seconds"]
        outcome.seconds.append(seconds)
        return seconds

    # One runs at a time. With two at once, each on its own core, ratios scattered by 6 to 9%.
    interleave(
        [functools.partial(sample, *pair) for pair in pairs],
        least_rounds=budget.min_rounds,
        most_rounds=budget.num_rounds,
        budget_s=budget.max_s,
    )


def _alive(pairs: _Pairs) -> _Pairs:
    return [(child, outcome) for child, outcome in pairs if outcome.status == "ok"]


@contextlib.contextmanager
def _failure_noted(child: Conversation, outcome: Outcome) -> Iterator[None]:
    """Turn a library's failure into its outcome, and end its process to free the machine."""
    try:
        yield
    except ChildError as error:
        outcome.status = error.status
        outcome.reason = error.reason
        outcome.error = error.error
        child.end()


def ratios(of: Outcome, to: Outcome) -> list[float]:
    """Return the ratio of the steps/s of `of` to those of `to`, round by round."""
    rounds = zip(of.steps_per_s(), to.steps_per_s(), strict=True)
    return [a / b for a, b in rounds if a is not None and b is not None]


def in_turns(
    samplers: Mapping[Any, Callable[[], float]], rounds: int, **budget: Any
) -> dict[Any, list[float]]:
    """Take samples of every variant, round by round, in an order drawn anew for each round."""
    from myriad.timing import interleave

    options = {"least_rounds": rounds, "most_rounds": rounds} | budget
    return dict(zip(samplers, interleave(list(samplers.values()), **options), strict=True))
