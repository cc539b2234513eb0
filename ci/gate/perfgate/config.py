"""The rules of the gate, read from gate.toml and accepted.toml, with a sentence for each mistake in them.

Benchmarks are named by regular expressions that are searched for in `name(parameters)`, as asv's
--bench does; the first rule that fits a metric and a benchmark counts.
"""

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from perfgate.errors import UsageError
from perfgate.stats.evidence import Limits

DEFAULT_FILE = Path(__file__).parents[2] / "gate.toml"
ACCEPTED_NAME = "accepted.toml"

T = TypeVar("T")
Pattern = TypeVar("Pattern", "Slowdown", "Cores", "MetricRule")
Stop = Literal["stop", "warn"]


@dataclass(frozen=True)
class Verdicts:
    """Where slower and not slower begin, how often the gate may err, and what happens to rows without a verdict."""

    fail_ratio: float = 1.005
    pass_ratio: float = 1.03
    looks: tuple[int, ...] = (4, 6, 9, 13, 18, 24, 32, 40, 48)
    confirm_looks: tuple[int, ...] = (4, 8, 12, 18, 24, 36)
    suspect_alpha: float = 0.05
    confirm_alpha: float = 0.1
    miss_beta: float = 0.02
    suspicious_ratio: float = 100.0
    undecided: Stop = "stop"
    gone: Stop = "stop"

    @property
    def limits(self) -> Limits:
        """What the statistics need of it."""
        names = [each.name for each in dataclasses.fields(Limits)]
        return Limits(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class Timing:
    """How long to time: the whole run, one pair of one benchmark, one sample."""

    budget_s: float = 300.0
    pair_s: float = 1.0
    sample_s: float = 0.02
    min_alternations: int = 4
    max_alternations: int = 24
    shared_s: float = 0.05
    timeout_s: float = 300.0


@dataclass(frozen=True)
class Slowdown:
    """Benchmarks for which slower and not slower begin elsewhere than `verdict` says."""

    benchmark: str
    fail_ratio: float
    pass_ratio: float


@dataclass(frozen=True)
class Cores:
    """Benchmarks that are timed unpinned because how their work spreads over cores is what matters."""

    benchmark: str
    cores: int


@dataclass(frozen=True)
class MetricRule:
    """How one metric is compared.

    Attributes:
        name: the metric.
        worse: which direction is a regression; `never` shows it only.
        benchmark: regular expression of the benchmarks meant.
        tolerance: relative change that is let pass.
        at_least: absolute change that is let pass.
        clock: whether it is measured, not counted; a suspect one is confirmed in fresh processes.
        forgiven_if_faster: whether a row whose timing is surely faster may have more of it.
        unit: what the report writes behind it.
    """

    name: str
    worse: Literal["more", "less", "either", "never"]
    benchmark: str = ""
    tolerance: float = 0.0
    at_least: float = 0.0
    clock: bool = False
    forgiven_if_faster: bool = False
    unit: str = ""

    def compare(self, base: float, head: float) -> Literal["same", "worse", "better"]:
        """Say what a change from `base` to `head` is."""
        change = head - base
        if self.worse == "never" or abs(change) <= max(self.tolerance * abs(base), self.at_least):
            return "same"
        return (
            "worse"
            if self.worse == "either" or (change > 0) == (self.worse == "more")
            else "better"
        )


@dataclass(frozen=True)
class Budget:
    """An absolute floor or ceiling that head must keep, whatever the base did.

    Attributes:
        benchmark: regular expression of the benchmarks meant.
        metric: `seconds`, `rate` (work over seconds), `ratio` (seconds of `over` / seconds), or one
            of the program's.
        unit: what the figures are in.
        floor: the least allowed.
        ceiling: the most allowed.
        work: units of work in one call, for `rate`.
        over: exact name of another benchmark, for `ratio`.
    """

    benchmark: str
    metric: str
    unit: str
    floor: float | None = None
    ceiling: float | None = None
    work: float | None = None
    over: str = ""


@dataclass(frozen=True)
class Accepted:
    """A regression that somebody has accepted, up to `ratio`, until the day `expires`."""

    benchmark: str
    metric: str
    ratio: float
    reason: str
    expires: date

    @property
    def is_expired(self) -> bool:
        """Whether its last day is over."""
        return today() > self.expires


@dataclass(frozen=True)
class Rules:
    """Everything a run is judged by."""

    verdict: Verdicts = field(default_factory=Verdicts)
    timing: Timing = field(default_factory=Timing)
    slowdown: tuple[Slowdown, ...] = ()
    cores: tuple[Cores, ...] = ()
    metric: tuple[MetricRule, ...] = ()
    budget: tuple[Budget, ...] = ()
    accepted: tuple[Accepted, ...] = ()

    def rule_of(self, metric: str, row: str) -> MetricRule:
        """Return the first rule that fits; a metric without one is shown only."""
        return _fitting((rule for rule in self.metric if rule.name == metric), row) or MetricRule(
            metric, "never"
        )

    def limits_of(self, row: str) -> Limits:
        """Return where slower and not slower begin for a benchmark, and how often to err."""
        limits, own = self.verdict.limits, _fitting(self.slowdown, row)
        return (
            dataclasses.replace(limits, fail_ratio=own.fail_ratio, pass_ratio=own.pass_ratio)
            if own
            else limits
        )

    def cores_of(self, row: str) -> int:
        """Return how many cores a benchmark is declared to use."""
        own = _fitting(self.cores, row)
        return own.cores if own else 1

    def acceptance(self, row: str, metric: str) -> Accepted | None:
        """Return the unexpired entry that accepts this metric of this benchmark."""
        fitting = (each for each in self.accepted if (each.benchmark, each.metric) == (row, metric))
        return next((each for each in fitting if not each.is_expired), None)


def _fitting(tables: Iterable[Pattern], row: str) -> Pattern | None:
    """Return the first of these tables whose pattern of benchmarks fits a row."""
    return next((each for each in tables if re.search(each.benchmark, row)), None)


def today() -> date:
    """Return the day, in UTC: everybody's entries expire at the same moment."""
    return datetime.now(UTC).date()


def find_rules(config_folder: Path) -> tuple[Path, Path]:
    """Return the files of rules and of accepted regressions: the repository's own, or ours where it has none."""
    for file in (config_folder / "ci" / "gate.toml", config_folder / "gate.toml"):
        if file.is_file():
            return file, file.with_name(ACCEPTED_NAME)
    return DEFAULT_FILE, config_folder / ACCEPTED_NAME


def read_rules(file: Path, accepted_file: Path) -> Rules:
    """Read both files; metrics of which the first says nothing are compared as ours are.

    Raises:
        UsageError: a file is missing or has a mistake.
    """
    table = _load(file)
    known = {each.name for each in dataclasses.fields(Rules)} - {"accepted"}
    _refuse_unknown(table, known, file.name)
    if "metric" not in table:
        table["metric"] = _load(DEFAULT_FILE)["metric"]
    lists: dict[str, Any] = {
        "slowdown": Slowdown,
        "cores": Cores,
        "metric": MetricRule,
        "budget": Budget,
    }
    rules = Rules(
        verdict=_read(Verdicts, table.get("verdict", {}), f"{file.name}: verdict"),
        timing=_read(Timing, table.get("timing", {}), f"{file.name}: timing"),
        **{
            name: _read_all(kind, table.get(name, []), f"{file.name}: {name}")
            for name, kind in lists.items()
        },
    )
    numbered = ((f"slowdown {number}", each) for number, each in enumerate(rules.slowdown, 1))
    for where, limits in (("verdict", rules.verdict), *numbered):
        if not 1.0 <= limits.fail_ratio < limits.pass_ratio:
            raise UsageError(
                f"{file.name}: {where}.fail_ratio must lie between 1 and its pass_ratio, {limits.pass_ratio:g}, "
                f"but got {limits.fail_ratio:g}."
            )
    if any(rule.name == "time" for rule in rules.metric):
        raise UsageError(
            f"{file.name}: metric 'time' is judged by its pairs; say [[slowdown]] in the place of [[metric]]."
        )
    return dataclasses.replace(rules, accepted=read_accepted(accepted_file))


def read_accepted(file: Path) -> tuple[Accepted, ...]:
    """Read the accepted regressions; where there is no file, there are none.

    Raises:
        UsageError: the file has a mistake.
    """
    found = _load(file).get("accepted", []) if file.is_file() else []
    return _read_all(Accepted, found, f"{file.name}: accepted")


def _load(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no {file}; name the file of rules with --rules.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file.name} is no valid TOML: {error}.") from None


def _read_all(cls: type[T], tables: Any, where: str) -> tuple[T, ...]:
    if not isinstance(tables, list):
        raise UsageError(f"{where} must be a list of tables, [[{where.rpartition(' ')[2]}]].")
    return tuple(_read(cls, table, f"{where} {number}") for number, table in enumerate(tables, 1))


def _read(cls: type[T], table: Any, where: str) -> T:
    if not isinstance(table, dict):
        raise UsageError(f"{where} must be a table, but got {table!r}.")
    fields = {each.name: each for each in dataclasses.fields(cls)}  # type: ignore[arg-type]
    _refuse_unknown(table, set(fields), where)
    values = {}
    for name, each in fields.items():
        if name not in table:
            if each.default is each.default_factory is MISSING:
                raise UsageError(f"{where} lacks the key {name!r}.")
            continue
        values[name] = _checked(table[name], each.type, f"{where}.{name}")
    if "benchmark" in values and cls is not Accepted:
        _check_pattern(values["benchmark"], where)
    return cls(**values)


def _checked(value: Any, kind: Any, where: str) -> Any:
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise UsageError(f"{where} must be one of {', '.join(get_args(kind))}, but got {value!r}.")
    if get_origin(kind) is tuple:
        is_whole = isinstance(value, list) and all(type(each) is int for each in value)
        if not is_whole or not value or value != sorted(set(value)) or value[0] < 2:
            raise UsageError(
                f"{where} must be a rising list of numbers of pairs from 2 up, but got {value!r}."
            )
        return tuple(value)
    wanted = {
        float: (int, float),
        float | None: (int, float),
        int: (int,),
        str: (str,),
        date: (date,),
        bool: (bool,),
    }
    accepted = wanted.get(kind, (object,))
    is_other = type(value) in (bool, datetime) and kind is not type(
        value
    )  # Python takes them for int and date
    if not isinstance(value, accepted) or is_other:
        raise UsageError(
            f"{where} must be {getattr(accepted[-1], '__name__', kind)}, but got {value!r}."
        )
    return float(value) if accepted == (int, float) else value


def _check_pattern(pattern: str, where: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{where}.benchmark is no regular expression: {error}.") from None


def _refuse_unknown(table: dict[str, Any], known: set[str], where: str) -> None:
    for name in table.keys() - known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it knows {', '.join(sorted(known))}."
        raise UsageError(f"{where}: the key {name!r} is unknown; {hint}")
