"""The messages between the gate and a worker: plain dataclasses, each sent as a line of JSON.

The worker loads this file in the suite's own environment, so it uses the standard library only. The
gate sends one request at a time and the worker answers it.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")
SKIPPED_NOW = "it is skipped now, but was not before"  # only a first run may be skipped


@dataclass(frozen=True)
class Request(Generic[R]):
    """The base of all requests. `R` is the type of the reply.

    Attributes:
        core: the core that the worker moves to first; None leaves it where it is.
    """

    core: int | None = dataclasses.field(default=None, kw_only=True)


@dataclass(frozen=True)
class Discover(Request["Suite"]):
    """List the suite's benchmarks."""


@dataclass(frozen=True)
class Target(Request[R]):
    """A request about one benchmark with one set of parameters.

    Attributes:
        row: its unique name.
        name: asv's name of the benchmark.
        index: the number of its parameters in asv's order; None where it has none.
    """

    row: str
    name: str
    index: int | None


@dataclass(frozen=True)
class Inspect(Target["FirstRun | Skipped"]):
    """Run a benchmark for the first time. One that is timed stays set up."""


@dataclass(frozen=True)
class Watch(Target["Calls"]):
    """Profile the functions that one call runs. The benchmark stays set up."""


@dataclass(frozen=True)
class Calibrate(Target["Calibration"]):
    """Warm a benchmark up, and find how many calls last for `target_s`.

    It is set up first if it is not. If known, its first calls took `first_s` on the slower side.
    """

    target_s: float
    first_s: float = 0.0


@dataclass(frozen=True)
class Sample(Target["Seconds"]):
    """Time `calls` calls. The benchmark is set up first if it is not.

    With `own_time`, leave out the seconds of waiting for the core, if the author chose no clock.
    """

    calls: int
    own_time: bool


@dataclass(frozen=True)
class Release(Target["Footprint"]):
    """Tear down a benchmark and forget it. The reply is what it used until then."""


@dataclass(frozen=True)
class Listing:
    """One benchmark as asv finds it.

    Attributes:
        name: asv's name.
        kind: `time`, `timeraw`, `memory`, `peakmemory`, or what a track_ benchmark calls itself.
        unit: the unit of its value.
        params: the values of each parameter, as asv writes them.
        timeout_s: seconds that it may take; None if it does not say.
        cache_timeout_s: seconds that its setup_cache may take; None if it has none.
        code: its source.
    """

    name: str
    kind: str
    unit: str
    params: tuple[tuple[str, ...], ...]
    timeout_s: float | None
    cache_timeout_s: float | None
    code: str = ""


@dataclass(frozen=True)
class Suite:
    """The contents of a suite.

    Attributes:
        benchmarks: those in modules that can be imported.
        broken: for each other module, why it can't be imported.
        modules: where every top-level module came from.
    """

    benchmarks: tuple[Listing, ...]
    broken: dict[str, str]
    modules: dict[str, str]


@dataclass(frozen=True)
class ProgramFiles:
    """The texts of a benchmark's compiled program, and facts about it.

    Attributes:
        lowered: file of the StableHLO; None if the suite offers none.
        optimised: file of the optimised HLO; None if there is none.
        context: everything else that decides what the program does: versions, flags, devices.
        executable: the bytes that the compiled object reports.
        timed_is_program: whether the suite says that the timed work is this program alone.
    """

    lowered: str | None
    optimised: str | None
    context: dict[str, str]
    executable: dict[str, float]
    timed_is_program: bool


@dataclass(frozen=True)
class Footprint:
    """The part of its checkout that a benchmark has used.

    Attributes:
        imported: files that its process has imported or opened so far. Those of the checkout are
            relative to it. Python files from elsewhere have absolute paths. Installed packages are
            left out.
        has_all_imports: whether `imported` is complete. It is not if the worker has started another
            process.
    """

    imported: tuple[str, ...]
    has_all_imports: bool


@dataclass(frozen=True)
class FirstRun:
    """A benchmark's first run.

    Attributes:
        seconds: of the quickest of its first calls, without the very first; None if it isn't timed.
        value: the value of a benchmark that isn't timed.
        numbers: what else was measured, by the name of the metric.
        program: None if its class offers none.
        footprint: the part of the checkout that it used.
        modules: where every top-level module came from, so far.
        is_quiet: whether some call opened no file and started no process.
    """

    seconds: float | None = None
    value: float | None = None
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    program: ProgramFiles | None = None
    footprint: Footprint | None = None
    modules: dict[str, str] = dataclasses.field(default_factory=dict)
    is_quiet: bool = False


@dataclass(frozen=True)
class Seconds:
    """Seconds of one call."""

    seconds: float


@dataclass(frozen=True)
class Calibration:
    """The calibration of a benchmark's calls.

    Attributes:
        calls: the number of calls that last for the target.
        seconds: of one call.
        wall_s: of all these calls, with the setup that asv repeats before each.
        is_work: whether they only compute.
    """

    calls: int
    seconds: float
    wall_s: float
    is_work: bool


@dataclass(frozen=True)
class Calls:
    """The functions that one call ran, or the packages that a `timeraw_` statement imported.

    Attributes:
        counts: how often each function was called, or how many modules of a package were imported.
        seconds: seconds in each function of the checkout itself, without those that it called.
    """

    counts: dict[str, int]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Skipped:
    """The benchmark is skipped. The reason is the exception that skips it, if there is one."""

    reason: str = ""


@dataclass(frozen=True)
class Failed:
    """The benchmark raised.

    Attributes:
        reason: one sentence.
        by_runner: whether what runs it has failed instead, such as pytest.
        is_fatal: whether the worker can answer nothing more.
    """

    reason: str
    by_runner: bool = False
    is_fatal: bool = False


Reply = Suite | FirstRun | Seconds | Calibration | Calls | Footprint | Skipped | Failed
REQUESTS = {each.__name__: each for each in (Discover, Inspect, Watch, Calibrate, Sample, Release)}


def encode(message: Any, number: int) -> bytes:
    """Write a message as one line, with the number of the request that it is or answers."""
    line = json.dumps([number, type(message).__name__, dataclasses.asdict(message)])
    return line.encode() + b"\n"


def decode_request(line: str) -> tuple[int, Request[Any]]:
    """Read the number and the request that `encode` wrote. Requests hold no other dataclass."""
    number, kind, fields = json.loads(line)
    return number, REQUESTS[kind](**fields)
