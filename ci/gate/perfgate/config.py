"""The rules of the gate: gate.toml and accepted.toml as models, with a sentence for each mistake.

This file holds every default once, except for the rules of the metrics, which `default.toml` holds.
A rule names its benchmarks by a regular expression that is searched for in `name(parameters)`, like
asv's --bench. The first rule that matches a metric and a benchmark counts.
"""

import dataclasses
import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from perfgate.errors import UsageError
from perfgate.files import read_toml
from perfgate.stats.evidence import HOST, HOT, Limits

DEFAULT_FILE = Path(__file__).with_name("default.toml")
ACCEPTED_NAME = "accepted.toml"
_NO_UNIT = ("", "unit")  # asv's default says nothing
_MODEL = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a valid regular expression: {error}") from None
    return text


# Nothing is converted, because a quoted number or a boolean in place of a number is a mistake.
Number = Annotated[float, Strict()]
Amount = Annotated[Number, Field(ge=0)]
Day = Annotated[date, Strict()]
Regex = Annotated[str, AfterValidator(_pattern)]
Stop = Literal["stop", "warn"]
Undecided = Literal["stop", "suspected", "warn"]

Fitting = TypeVar("Fitting", "Slowdown", "Cores")
Direction = Literal["more", "less"]
# The words for a metric's change, as a report shows them.
SAME = "same"
WORSE = "worse"
BETTER = "better"
CHANGED = "changed"  # no rule says whether this direction is worse
UNSURE = "unsure"  # it looked worse, and there was no time to confirm it


@dataclass(frozen=True, config=_MODEL)
class Verdicts:
    """What stops a run."""

    undecided: Undecided = "suspected"
    """Which rows end with exit code 3 if they are not shown to be equal: all that are not surely
    below their `pass_ratio` (`stop`), those not surely below their `cap`, or none (`warn`)."""
    gone: Stop = "stop"
    """If head's suite lacks a benchmark of the base: exit code 3, or a warning."""


@dataclass(frozen=True, config=_MODEL)
class Timing:
    """How long to time: the whole run, one benchmark in one launch, one slice of calls."""

    budget_s: Amount = 300.0
    """Seconds for all paired timing. --budget overrides it."""
    run_s: Amount = 0.0
    """Seconds for the whole run, which all stages share. 0 means no limit."""
    pair_s: Amount = 0.5
    """Seconds of one benchmark in one launch."""
    sample_s: Amount = 0.01
    """Seconds of one slice. They decide how many calls a slice makes."""
    timeout_s: Amount = 300.0
    """Seconds for discovery and for preparing a benchmark, which have no timeouts of their own."""


@dataclass(frozen=True, config=_MODEL)
class Slowdown:
    """Benchmarks with a class or with ratios of their own. What is left out follows the class."""

    benchmark: Regex
    kind: Annotated[Literal["hot", "host"] | None, Field(alias="class")] = None
    fail_ratio: Number | None = None
    pass_ratio: Number | None = None
    cap: Number | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for is_hot in [self.kind == "hot"] if self.kind else [True, False]:
            limits = self.limits(is_hot=is_hot)
            if not 1.0 <= limits.fail_ratio < limits.pass_ratio <= limits.cap:
                raise ValueError(
                    "needs 1 <= fail_ratio < pass_ratio <= cap, but got "
                    f"{limits.fail_ratio:g}, {limits.pass_ratio:g} and {limits.cap:g}"
                )
        return self

    def limits(self, *, is_hot: bool) -> Limits:
        """Return the ratios between the zones of a row of this class."""
        usual = HOT if is_hot else HOST
        pass_ratio = self.pass_ratio or usual.pass_ratio
        cap = self.cap or max(usual.cap, pass_ratio)
        return Limits(self.fail_ratio or usual.fail_ratio, pass_ratio, cap)


@dataclass(frozen=True, config=_MODEL)
class Cores:
    """Benchmarks that run unpinned, because they measure how work spreads over several cores."""

    benchmark: Regex
    cores: Annotated[StrictInt, Field(ge=1)]


@dataclass(frozen=True, config=_MODEL)
class MetricRule:
    """How one metric is compared.

    Attributes:
        name: the metric's name.
        worse: which direction is a regression. `never` only shows the metric. `undeclared` asks you
            to add a rule.
        benchmark: regular expression that matches the benchmarks.
        of_unit: regular expression that matches the units of tracked values. If a benchmark names
            its unit, this decides instead of `benchmark`.
        tolerance: relative change that passes.
        at_least: absolute change that passes.
        clock: whether it is measured, not counted. A suspect value is then confirmed in fresh
            processes. By default only the values of `track_` benchmarks are.
        stands_for: the cost that it stands for: `time`, or another metric. If that cost is known
            and has not grown, a rise of this metric is no regression.
        sure_ratio: the ratio of the larger value to the smaller from which it is a regression even
            if the time that it stands for stays undecided.
        unit: the unit that the report writes after its values.
        cause: what a report says if it got worse.
    """

    name: str
    worse: Literal["more", "less", "either", "never", "undeclared"]
    benchmark: Regex = ""
    of_unit: Regex = ""
    tolerance: Amount = 0.0
    at_least: Amount = 0.0
    clock: StrictBool | None = None
    stands_for: str = ""
    sure_ratio: Annotated[Number, Field(gt=1, allow_inf_nan=True)] = math.inf
    unit: str = ""
    cause: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether it is measured. Many `track_` values are times, which no rule need say."""
        return self.name == "track" if self.clock is None else self.clock

    def fits(self, metric: str, row: str, unit: str) -> bool:
        """Whether it is for this metric of this benchmark, whose tracked value has this unit."""
        names_unit = self.of_unit and unit not in _NO_UNIT
        found = re.search(self.of_unit, unit) if names_unit else re.search(self.benchmark, row)
        return self.name == metric and found is not None

    def allowed(self, base: float) -> float:
        """Return the absolute change from `base` that passes."""
        return max(self.tolerance * abs(base), self.at_least)

    def compare(self, base: float, head: float) -> str:
        """Return the word for a change from `base` to `head`."""
        direction: Direction = "more" if head > base else "less"
        if self.worse == "never" or self.excess(base, head, direction) <= 0:
            return SAME
        if self.worse == "undeclared":
            return CHANGED
        return WORSE if self.worse in ("either", direction) else BETTER

    def excess(self, base: float, head: float, direction: Direction) -> float:
        """Return how far a change exceeds the allowed one, as a share of the larger value.

        It is negative for an allowed change, and for a change in the other direction.
        """
        change = head - base if direction == "more" else base - head
        return (change - self.allowed(base)) / (max(abs(base), abs(head)) or 1.0)


@dataclass(frozen=True, config=_MODEL)
class Budget:
    """An absolute floor or ceiling that head must keep, whatever the base did.

    Attributes:
        benchmark: regular expression that matches the benchmarks.
        metric: `seconds`, `rate` (work over seconds), `ratio` (seconds of `over` / seconds), or a
            metric of the program.
        unit: the unit of the figures.
        floor: the least allowed.
        ceiling: the most allowed.
        work: units of work in one call, for `rate`.
        over: exact name of another benchmark, for `ratio`.
    """

    benchmark: Regex
    metric: str
    unit: str
    floor: Number | None = None
    ceiling: Number | None = None
    work: Number | None = None
    over: str = ""


@dataclass(frozen=True, config=_MODEL)
class Accepted:
    """A regression that somebody has accepted, up to `ratio`, until the day `expires`."""

    benchmark: str
    metric: str
    ratio: Number
    reason: Annotated[str, Field(pattern=r"\S")]
    expires: Day

    @property
    def is_expired(self) -> bool:
        """Whether its last day has passed."""
        return today() > self.expires


@dataclass(frozen=True, config=_MODEL)
class Rules:
    """All rules that decide a run's verdict."""

    verdict: Verdicts = Verdicts()
    timing: Timing = Timing()
    slowdown: tuple[Slowdown, ...] = ()
    cores: tuple[Cores, ...] = ()
    metric: tuple[MetricRule, ...] = ()
    budget: tuple[Budget, ...] = ()
    accepted: tuple[Accepted, ...] = ()

    @field_validator("metric")
    @classmethod
    def _refuse_time(cls, rules: tuple[MetricRule, ...]) -> tuple[MetricRule, ...]:
        if any(rule.name == "time" for rule in rules):
            raise ValueError(
                "'time' is judged by its launches; use [[slowdown]] instead of [[metric]]"
            )
        return rules

    def rule_of(self, metric: str, row: str, unit: str = "") -> MetricRule:
        """Return the first rule that matches. A metric without a rule is only shown.

        A metric that stands for time may grow as far as the benchmark's [[slowdown]] lets its time
        grow.

        Args:
            metric: the metric's name.
            row: the benchmark's name.
            unit: the unit that the benchmark gives its tracked value.
        """
        fitting = (rule for rule in self.metric if rule.fits(metric, row, unit))
        rule = next(fitting, MetricRule(metric, "never"))
        slowdown = _first_fitting(self.slowdown, row)
        if slowdown is None or not slowdown.fail_ratio or rule.stands_for != "time":
            return rule
        return dataclasses.replace(rule, tolerance=max(rule.tolerance, slowdown.fail_ratio - 1.0))

    def cause_of(self, metric: str) -> str:
        """Return what to say if a metric got worse: its own name if no rule says more."""
        said = (rule.cause for rule in self.metric if rule.name == metric and rule.cause)
        return next(said, metric)

    def is_hot(self, row: str, *, seems: bool) -> bool:
        """Tell the class of a benchmark, which seems to be hot or not."""
        own = _first_fitting(self.slowdown, row)
        return own.kind == "hot" if own and own.kind else seems

    def limits_of(self, row: str, *, is_hot: bool) -> Limits:
        """Return the ratios between the zones of a benchmark."""
        own = _first_fitting(self.slowdown, row)
        return own.limits(is_hot=is_hot) if own else (HOT if is_hot else HOST)

    def cores_of(self, row: str) -> int:
        """Return how many cores a benchmark is declared to use."""
        own = _first_fitting(self.cores, row)
        return own.cores if own else 1

    def acceptance(self, row: str, metric: str) -> Accepted | None:
        """Return the unexpired entry that accepts this metric of this benchmark."""
        fitting = (each for each in self.accepted if (each.benchmark, each.metric) == (row, metric))
        return next((each for each in fitting if not each.is_expired), None)


T = TypeVar("T")


def validated(model: type[T], table: dict[str, Any], source: str) -> T:
    """Return the table as a pydantic dataclass.

    Args:
        model: a dataclass whose fields are values, dataclasses or tuples of dataclasses.
        table: the table as read.
        source: the file's name, for the error.

    Raises:
        UsageError: the table has a mistake.
    """
    try:
        return TypeAdapter(model).validate_python(table)
    except ValidationError as caught:
        # A misspelt key also causes a missing one, but the misspelt name says more.
        first = min(caught.errors(), key=lambda each: each["type"] == "missing")
        place = ".".join(map(str, first["loc"]))
        said = f"{place}: {first['msg']}, but got {first['input']!r}"
        if first["type"] == "value_error":  # a check of our own, which says the value
            said = f"{place} {first.get('ctx', {}).get('error')}"
        raise UsageError(f"{source}: {said}.") from None


def _first_fitting(rules: Iterable[Fitting], row: str) -> Fitting | None:
    return next((each for each in rules if re.search(each.benchmark, row)), None)


def today() -> date:
    """Return today's date in UTC, so that entries expire at the same moment everywhere."""
    return datetime.now(UTC).date()


def find_rules(config_folder: Path) -> tuple[Path, Path]:
    """Return the files of rules and of accepted regressions.

    A repository that has no file of rules gets the gate's own.
    """
    for file in (config_folder / "ci" / "gate.toml", config_folder / "gate.toml"):
        if file.exists() or file.is_symlink():  # what is no file is refused later
            return file, file.with_name(ACCEPTED_NAME)
    return DEFAULT_FILE, config_folder / ACCEPTED_NAME


def read_rules(file: Path, accepted_file: Path) -> Rules:
    """Read both files. The file's own rules of metrics come before the default ones.

    The first match counts, so own rules win. With `metric = []` no metric is judged.

    Raises:
        UsageError: a file is missing or has a mistake.
    """
    if not file.exists():
        raise UsageError(f"there is no {file}; name the file of rules with --rules.")
    table = read_toml(file)
    if "accepted" in table:
        raise UsageError(f"{file.name}: accepted regressions belong in {ACCEPTED_NAME}.")
    rules = validated(Rules, table, file.name)
    defaults = validated(Rules, read_toml(DEFAULT_FILE), DEFAULT_FILE.name).metric
    keeps_defaults = file != DEFAULT_FILE and table.get("metric") != []
    return dataclasses.replace(
        rules,
        metric=(*rules.metric, *defaults) if keeps_defaults else rules.metric,
        accepted=read_accepted(accepted_file),
    )


def read_accepted(file: Path) -> tuple[Accepted, ...]:
    """Read the accepted regressions. There are none if there is no file.

    Raises:
        UsageError: the file has a mistake.
    """
    if not file.exists():
        return ()
    model = dict[Literal["accepted"], tuple[Accepted, ...]]
    return validated(model, read_toml(file), file.name).get("accepted", ())
