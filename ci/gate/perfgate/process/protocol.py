"""The messages between the gate and a worker. Each is a frozen dataclass, sent as a line of JSON.

The worker loads this file in the suite's own environment, so it uses the standard library only. A
worker sends `Hello` first. Then the gate sends one request at a time and the worker answers it. A
line that fits no message raises a `ProtocolError`, so no raw dictionary leaves this file.
"""

import dataclasses
import functools
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

VERSION = 5

R = TypeVar("R")
M = TypeVar("M")


class ProtocolError(ValueError):
    """A line is not one of the messages below, or not one that is allowed at this point."""


# --- requests of the gate -------------------------------------------------------------------------


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
class Origins(Request["Modules"]):
    """Tell where every module came from that has been imported so far."""


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
    """Set up a benchmark that was inspected before, and time its first calls again."""


@dataclass(frozen=True)
class Watch(Target["Calls | Skipped"]):
    """Count the functions that a call runs, and trace the lines of another.

    Functions below `root` are named by their files. The benchmark stays set up.
    """

    root: str


@dataclass(frozen=True)
class Calibrate(Target["Calibration | Skipped"]):
    """Set up a benchmark, warm it up, and find how many calls last for `target_s`."""

    target_s: float


@dataclass(frozen=True)
class Prepare(Target["Seconds | Skipped"]):
    """Set up a benchmark, warm it up, and take a first sample as `Sample` does."""

    calls: int
    own_time: bool


@dataclass(frozen=True)
class Sample(Target["Seconds | Skipped"]):
    """Time `calls` calls. With `own_time`, leave out the seconds of waiting for the core."""

    calls: int
    own_time: bool


@dataclass(frozen=True)
class Repeat(Target["Released | Skipped"]):
    """Set up a benchmark, call it once, take a sample of `calls` calls, and tear it down.

    With `left_out`, the sample repeats the setups but makes no calls.
    """

    calls: int
    left_out: bool


@dataclass(frozen=True)
class Release(Target["Released"]):
    """Tear down a benchmark and forget it."""


# --- replies of a worker --------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """A worker's first message.

    Attributes:
        version: the version of this protocol.
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
        unit: the unit of its value. params: the values of each parameter, as asv writes them.
        timeout_s: seconds that it may take; None if it does not say.
        cache_timeout_s: seconds that its setup_cache may take; None if it has none.
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
class Modules:
    """Where every top-level module came from."""

    modules: dict[str, str]


@dataclass(frozen=True)
class ProgramFiles:
    """The texts of a benchmark's compiled program, and facts about it.

    Attributes:
        lowered: file of the StableHLO; None if the suite offers none.
        optimised: file of the optimised HLO; None if there is none.
        context: everything else that decides what the program does: versions, flags, devices.
        executable: bytes and operations that the compiled object reports.
        timed_is_program: whether the suite says that the timed work is this program alone.
    """

    lowered: str | None
    optimised: str | None
    context: dict[str, str]
    executable: dict[str, float]
    timed_is_program: bool


@dataclass(frozen=True)
class Footprint:
    """The part of its checkout that a benchmark used in its first run.

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
    """A timed benchmark's first run.

    Attributes:
        seconds: of the quickest of its first calls, without the very first.
        compile_s: seconds of compiling programs for the first call.
        compilations: the number of these programs.
        second_call_compilations: programs that the second call compiled; None without jax.
        cpu_instructions: instructions that one call executes; None if they can't be counted.
        program: None if its class offers none.
        footprint: the part of the checkout that it used.
        inputs_differ: whether its setup makes different inputs each time.
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
    """The value of a benchmark that isn't timed, and the part of the checkout that it used."""

    value: float
    footprint: Footprint | None = None


@dataclass(frozen=True)
class Seconds:
    """Seconds of one call."""

    seconds: float


@dataclass(frozen=True)
class Calibration:
    """The calibration of a benchmark's calls.

    Attributes:
        calls: the number of calls that last for the target.
        fixed: whether the benchmark's author has fixed that number.
        seconds: of one call.
        wall_s: of all these calls, with the setup that asv repeats before each.
        is_work: whether they only compute.
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
    """The functions and lines that one call ran.

    Attributes:
        calls: how often each function was called, in the order of their first calls.
        lines: lines of the checkout's functions, the slowest first; None if tracing took too long.
    """

    calls: dict[str, int]
    lines: tuple[Line, ...] | None = ()


@dataclass(frozen=True)
class Released:
    """The benchmark is forgotten."""


@dataclass(frozen=True)
class Skipped:
    """The benchmark is skipped."""


@dataclass(frozen=True)
class Failed:
    """The benchmark raised. The reason is one sentence.

    With `by_runner`, what runs it has failed instead, such as pytest.
    """

    reason: str
    by_runner: bool = False


@dataclass(frozen=True)
class Escaped:
    """Sent unasked by a forked child that returned from a benchmark."""

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
    """Return the reply, checked to be of the type that answers this request.

    Raises:
        ProtocolError: it answers another one.
    """
    if not isinstance(reply, _FITTING[type(request)]):
        asked, given = type(request).__name__, type(reply).__name__
        raise ProtocolError(f"it answered {asked} with {given}")
    return typing.cast("R", reply)


def check_version(hello: object) -> Hello:
    """Return a worker's first message.

    Raises:
        ProtocolError: it is not `Hello`, or has another version than the gate's.
    """
    if not isinstance(hello, Hello):
        raise ProtocolError(f"its first message must be Hello, but is {type(hello).__name__}")
    if hello.version != VERSION:
        raise ProtocolError(
            f"it uses version {hello.version} of the protocol, but the gate uses {VERSION}"
        )
    return hello


def encode(message: object, number: int) -> bytes:
    """Write a message as one line, with the number of the request that it is or answers."""
    fields = dataclasses.asdict(typing.cast("Any", message))
    table = {"number": number, "kind": type(message).__name__, "fields": fields}
    return (json.dumps(table) + "\n").encode()


def decode(line: bytes | str, kinds: dict[str, type[M]]) -> tuple[int, M]:
    """Read one line: the number of the request that it is or answers, and the message.

    Args:
        line: what `encode` wrote.
        kinds: the messages that are allowed, `REQUESTS` or `REPLIES`.

    Raises:
        ProtocolError: the line is not JSON, or has a missing, unknown or mistyped field.
    """
    try:
        table = json.loads(line)
    except ValueError:
        raise ProtocolError("it wrote into the pipe that belongs to the gate") from None
    if not isinstance(table, dict) or table.keys() != {"number", "kind", "fields"}:
        raise ProtocolError("it wrote into the pipe that belongs to the gate")
    if table["kind"] not in kinds:
        raise ProtocolError(f"the message {table['kind']!r} is not allowed here")
    message = _read(kinds[table["kind"]], table["fields"], table["kind"])
    return _read(int, table["number"], "number"), message


def _read(kind: Any, value: Any, where: str) -> Any:
    """Return a JSON value as the type of a hint, or raise an error that says what is wrong."""
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


# cached, because samples must not wait for this lookup each time
_hints = functools.cache(typing.get_type_hints)


def _refuse(kind: Any, value: Any, where: str) -> typing.NoReturn:
    name = getattr(kind, "__name__", str(kind))
    raise ProtocolError(f"{where} must be {name}, but got {value!r}")
