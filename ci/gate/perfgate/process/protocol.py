"""What the gate and a worker say to each other, each message a frozen dataclass and a line of JSON.

The worker loads this file in the suite's own environment, so it needs the standard library alone.
A worker says `Hello` first; then the gate sends one request at a time and the worker answers it.
What does not fit raises a `ProtocolError` with one sentence: no dictionary of strings goes further
than this file.
"""

import dataclasses
import functools
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

VERSION = 4

R = TypeVar("R")
M = TypeVar("M")


class ProtocolError(ValueError):
    """A line that is not one of the messages below, or not one that may stand here."""


# --- what the gate asks ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Request(Generic[R]):
    """What all requests share; `R` is what answers one.

    Attributes:
        core: the core that the worker moves to before; None leaves it where it is.
    """

    core: int | None = dataclasses.field(default=None, kw_only=True)


@dataclass(frozen=True)
class Discover(Request["Suite"]):
    """List the suite's benchmarks."""


@dataclass(frozen=True)
class Origins(Request["Modules"]):
    """Say where every module came from, by now."""


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
class Inspect(Target["FirstRun | Value | Skipped"]):
    """Run a benchmark for the first time."""


@dataclass(frozen=True)
class TimeFirstCalls(Target["Seconds | Skipped"]):
    """Set a benchmark up that was inspected before, and time its first calls again."""


@dataclass(frozen=True)
class Watch(Target["Calls | Skipped"]):
    """Count what one call calls; functions below `root` are named by their files."""

    root: str


@dataclass(frozen=True)
class Calibrate(Target["Calibration | Skipped"]):
    """Set a benchmark up, warm it up, and find how many calls last for `target_s`."""

    target_s: float


@dataclass(frozen=True)
class Prepare(Target["Seconds | Skipped"]):
    """Set a benchmark up, warm it up, and take a first sample, as `Sample` says."""

    calls: int
    own_time: bool


@dataclass(frozen=True)
class Sample(Target["Seconds | Skipped"]):
    """Time so many calls; in `own_time`, without the seconds of waiting for the core."""

    calls: int
    own_time: bool


@dataclass(frozen=True)
class Repeat(Target["Released | Skipped"]):
    """Set a benchmark up, call it once, then take a sample of so many calls, and tear it down.

    Where it is `left_out`, the sample sets up as often and calls nothing.
    """

    calls: int
    left_out: bool


@dataclass(frozen=True)
class Release(Target["Released"]):
    """Tear a benchmark down and forget it."""


# --- what a worker answers ------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """A worker's first words.

    Attributes:
        version: of this protocol.
        counts_instructions: whether the processor's instructions can be counted there.
    """

    version: int
    counts_instructions: bool


@dataclass(frozen=True)
class Listing:
    """One benchmark as asv finds it.

    Attributes:
        name: asv's name.
        kind: `time`, `timeraw`, `memory`, `peakmemory`, or what a track_ benchmark calls itself.
        unit: of its value.
        params: the values of each parameter, as asv writes them.
        timeout_s: seconds that it may take; None where it does not say.
        cache_timeout_s: seconds that its setup_cache may take; None where it has none.
        code: a hash of its source.
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
    """What a suite holds.

    Attributes:
        benchmarks: of the modules that can be imported.
        broken: why each of the others can't.
        modules: where every top-level module came from.
    """

    benchmarks: tuple[Listing, ...]
    broken: dict[str, str]
    modules: dict[str, str]


@dataclass(frozen=True)
class Modules:
    """Where every top-level module came from."""

    modules: dict[str, str]


@dataclass(frozen=True)
class ProgramFiles:
    """Where the texts of a benchmark's compiled program lie, and what is known of it.

    Attributes:
        lowered: file of the StableHLO; None where the suite offers none.
        optimised: file of the optimised HLO; None where there is none.
        context: what else decides what the program does: versions, flags, devices.
        executable: what the compiled object says of itself, in bytes and operations.
        timed_is_program: whether the suite says that the timed work is this program alone.
    """

    lowered: str | None
    optimised: str | None
    context: dict[str, str]
    executable: dict[str, float]
    timed_is_program: bool


@dataclass(frozen=True)
class Footprint:
    """What of its checkout a benchmark has used in its first run.

    Attributes:
        imported: files that its process has imported or opened so far. Those of the checkout are
            relative to it. Python files from elsewhere are absolute, but for installed packages.
        executed: functions that ran, as `file:qualified name`.
        is_whole: whether nothing else ran unseen: another process, or functions compiled before.
        has_all_imports: whether the worker has started no other process, which may import more.
    """

    imported: tuple[str, ...]
    executed: tuple[str, ...]
    is_whole: bool
    has_all_imports: bool


@dataclass(frozen=True)
class FirstRun:
    """A timed benchmark's first run.

    Attributes:
        seconds: of the quickest of its first calls but one.
        compile_s: seconds in which programs were compiled for the first call.
        compilations: how many these were.
        second_call_compilations: how many the second call compiled; None where jax is not loaded.
        cpu_instructions: that one call executes; None where nothing counts them.
        program: None where its class offers none.
        footprint: what of the checkout it used.
        inputs_differ: whether its setup makes other inputs each time.
    """

    seconds: float
    compile_s: float
    compilations: int
    second_call_compilations: int | None = None
    cpu_instructions: int | None = None
    program: ProgramFiles | None = None
    footprint: Footprint | None = None
    inputs_differ: bool = False


@dataclass(frozen=True)
class Value:
    """What a benchmark that isn't timed returned, and what of the checkout it used."""

    value: float
    footprint: Footprint | None = None


@dataclass(frozen=True)
class Seconds:
    """Seconds of one call."""

    seconds: float


@dataclass(frozen=True)
class Calibration:
    """How a benchmark's calls were found to be.

    Attributes:
        calls: as many as last for the target.
        fixed: whether its author has fixed their number.
        seconds: of one call.
        wall_s: of all of them, with the setup that asv repeats before each.
        is_work: whether they do nothing but work.
    """

    calls: int
    fixed: bool
    seconds: float
    wall_s: float
    is_work: bool


@dataclass(frozen=True)
class Line:
    """A line of the checkout, and the seconds that a traced call spends in it."""

    file: str
    number: int
    source: str
    seconds: float


@dataclass(frozen=True)
class Calls:
    """What one call called.

    Attributes:
        calls: how often each function was called, in the order of their first calls.
        own_s: seconds in each function itself, under a profiler; empty where there is none.
        lines: those of the checkout's functions, the most seconds first; empty where none ran.
    """

    calls: dict[str, int]
    own_s: dict[str, float] = dataclasses.field(default_factory=dict)
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Released:
    """The benchmark is forgotten."""


@dataclass(frozen=True)
class Skipped:
    """The benchmark asks to be skipped."""


@dataclass(frozen=True)
class Failed:
    """The benchmark raised; the reason is one sentence."""

    reason: str


@dataclass(frozen=True)
class Escaped:
    """Said by a forked child that came back out of a benchmark: nobody asked it."""

    row: str | None


Reply = (
    Suite
    | Modules
    | FirstRun
    | Value
    | Seconds
    | Calibration
    | Calls
    | Released
    | Skipped
    | Failed
    | Escaped
)
REQUESTS = {
    each.__name__: each
    for each in (
        Discover,
        Origins,
        Inspect,
        TimeFirstCalls,
        Watch,
        Calibrate,
        Prepare,
        Sample,
        Repeat,
        Release,
    )
}
REPLIES = {each.__name__: each for each in (Hello, *typing.get_args(Reply))}
_FITTING: dict[type, tuple[type, ...]] = {
    Discover: (Suite,),
    Origins: (Modules,),
    Inspect: (FirstRun, Value, Skipped),
    TimeFirstCalls: (Seconds, Skipped),
    Watch: (Calls, Skipped),
    Calibrate: (Calibration, Skipped),
    Prepare: (Seconds, Skipped),
    Sample: (Seconds, Skipped),
    Repeat: (Released, Skipped),
    Release: (Released,),
}


def fitting(request: Request[R], reply: object) -> R:
    """Return the reply as what answers this request.

    Raises:
        ProtocolError: it answers another one.
    """
    if not isinstance(reply, _FITTING[type(request)]):
        asked, given = type(request).__name__, type(reply).__name__
        raise ProtocolError(f"it answered {asked} with {given}")
    return typing.cast("R", reply)


def check_version(hello: object) -> Hello:
    """Return a worker's first words.

    Raises:
        ProtocolError: they are others, or of another version than the gate's.
    """
    if not isinstance(hello, Hello):
        raise ProtocolError(f"its first word must be Hello, but is {type(hello).__name__}")
    if hello.version != VERSION:
        raise ProtocolError(
            f"it speaks version {hello.version} of the protocol, and the gate {VERSION}"
        )
    return hello


def encode(message: object, number: int) -> bytes:
    """Write a message and the number of the request that it is or answers as one line."""
    fields = dataclasses.asdict(typing.cast("Any", message))
    table = {"number": number, "kind": type(message).__name__, "fields": fields}
    return (json.dumps(table) + "\n").encode()


def decode(line: bytes | str, kinds: dict[str, type[M]]) -> tuple[int, M]:
    """Read one line: the number of the request that it is or answers, and the message.

    Args:
        line: what `encode` wrote.
        kinds: what may stand here, `REQUESTS` or `REPLIES`.

    Raises:
        ProtocolError: it is not JSON, lacks a field or has one too many, or one of another type.
    """
    try:
        table = json.loads(line)
    except ValueError:
        raise ProtocolError("it wrote into the pipe that belongs to the gate") from None
    if not isinstance(table, dict) or table.keys() != {"number", "kind", "fields"}:
        raise ProtocolError("it wrote into the pipe that belongs to the gate")
    if table["kind"] not in kinds:
        raise ProtocolError(f"a message {table['kind']!r} is unknown here")
    message = _read(kinds[table["kind"]], table["fields"], table["kind"])
    return _read(int, table["number"], "number"), message


def _read(kind: Any, value: Any, where: str) -> Any:
    """Return a JSON value as what a type hint says, or raise what is wrong with it."""
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(typing.cast("type", kind), value, where)
    origin = typing.get_origin(kind)
    parts = typing.get_args(kind)
    if origin is types.UnionType:
        kept = (
            type(None) if value is None else next(each for each in parts if each is not type(None))
        )
        return _read(kept, value, where) if kept in parts else _refuse(kind, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(parts[0], each, where) for each in value)
    if origin is dict and isinstance(value, dict):
        return {name: _read(parts[1], each, f"{where}.{name}") for name, each in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    return value if type(value) is kind else _refuse(kind, value, where)


def _read_dataclass(kind: type, value: Any, where: str) -> Any:
    hints = _hints(kind)
    if not isinstance(value, dict):
        _refuse(kind, value, where)
    for name in hints.keys() - value.keys():
        raise ProtocolError(f"{where} lacks the field {name!r}")
    for name in value.keys() - hints.keys():
        raise ProtocolError(f"{where} has no field {name!r}")
    return kind(
        **{name: _read(hint, value[name], f"{where}.{name}") for name, hint in hints.items()}
    )


_hints = functools.cache(typing.get_type_hints)  # samples must not wait for it each time


def _refuse(kind: Any, value: Any, where: str) -> typing.NoReturn:
    name = getattr(kind, "__name__", str(kind))
    raise ProtocolError(f"{where} must be {name}, but got {value!r}")
