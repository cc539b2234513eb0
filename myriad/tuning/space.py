"""Search spaces: the values that `myriad tune` may try, in a TOML file per agent or your own file.

A key is a field of the configuration, or a hyperparameter such as `"agent.learning_rate"`.
"""

import dataclasses
import functools
import hashlib
import json
import math
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.files import read_text, user_path
from myriad.ranges import ranges_of
from myriad.training.config import (
    NETWORK_FIELDS,
    TrainingConfig,
    canonical,
    make_config,
    require_no_code,
)
from myriad.tuning.settings import TuneSettings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

FOLDER = Path(__file__).parent / "spaces"
# That of a learner without one of its own.
DEFAULT = FOLDER.parent / "default_space.toml"
# The most shapes, each of which is a set of programs that must be compiled.
MOST_SHAPES = 16
# Fields of the configuration that a space may set. The study sets the others, or only runs use
# them.
_FIELDS = ("num_envs", "rollout_steps", "buffer_size", "batch_size", "scan_chunk_size")

# The values that TOML can hold: a number, a string, a boolean or a list of them.
Value = Any
_Number = (
    Annotated[int, Field(gt=-(2**62), lt=2**62)] | Annotated[float, Field(allow_inf_nan=False)]
)
_STRICT = ConfigDict(extra="forbid", strict=True, title="the search space")


class Parameter(BaseModel):
    """One dimension of a space: choices, or numbers from `low` to `high`.

    Attributes:
        choices: the values to choose among; empty for a range.
        low: the least number.
        high: the greatest number.
        log: draw from the logarithm.
        step: the distance between numbers; None for any number, and 1 for integers.
        when: earlier parameters, with those of their values for which this one is drawn.
    """

    model_config = _STRICT

    choices: Annotated[list[Value], Field(min_length=1)] = []
    low: _Number = 0
    high: _Number = 0
    log: bool = False
    step: Annotated[_Number, Field(gt=0)] | None = None
    when: dict[str, Value] = {}

    @model_validator(mode="after")
    def _require_values(self) -> Self:
        given = self.model_fields_set - {"when"}
        if given != {"choices"} and not {"low", "high"} <= given <= {"low", "high", "log", "step"}:
            raise ValueError("must have either choices, or low and high")
        if len({json.dumps(each, default=str) for each in self.choices}) < len(self.choices):
            raise ValueError("its choices must differ")
        _ = self.distribution  # Optuna refuses ends and steps that make no range.
        return self

    @property
    def is_whole(self) -> bool:
        """Whether it is a range of integers."""
        ends = (self.low, self.high, self.step or 1)
        return not self.choices and all(isinstance(each, int) for each in ends)

    @property
    def distribution(self) -> "BaseDistribution":
        """Optuna's distribution of its values."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna says that it ends a range at its last step.
            if self.choices:
                return CategoricalDistribution([_written(each) for each in self.choices])
            if self.is_whole:
                return IntDistribution(int(self.low), int(self.high), self.log, int(self.step or 1))
            return FloatDistribution(self.low, self.high, self.log, self.step)

    def applies(self, values: Mapping[str, Value]) -> bool:
        """Return whether it is drawn, given these values of earlier parameters."""
        return all(
            name in values and values[name] in (among if isinstance(among, list) else [among])
            for name, among in self.when.items()
        )

    def holds(self, value: Value) -> bool:
        """Return whether a value can be drawn."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not self.choices and not is_number:
            return False
        try:
            return self.distribution._contains(self.distribution.to_internal_repr(_written(value)))
        except ValueError:
            return False

    def value(self, kept: Value) -> Value:
        """Return a value as the file writes it, from what Optuna keeps."""
        return next((each for each in self.choices if _written(each) == kept), kept)


class _Table(BaseModel):
    """A file: the fixed fields, the parameters and tables of known values."""

    model_config = _STRICT

    fixed: dict[str, Value] = {}
    parameters: Annotated[dict[str, Parameter], Field(min_length=1)]
    known: list[dict[str, Value]] = []


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """The parameters of a study, the fields that all its trials share, and what to try first.

    Attributes:
        agent: the agent that it is for.
        fixed: fields that are the same in every trial.
        parameters: the dimensions by name, in the order in which they are drawn.
        known: parameters to try first, as `study.enqueue_trial` takes them. Parameters that are
            left out are drawn.
        file: the file that defines it.

    Example:
        >>> space = SearchSpace.load("ppo")
        >>> space.static
        ['agent.hidden_sizes', 'rollout_steps']
    """

    agent: str
    fixed: Mapping[str, Value]
    parameters: Mapping[str, Parameter]
    known: tuple[Mapping[str, Value], ...] = ()
    file: Path = Path("space.toml")

    @classmethod
    def load(cls, agent: str, env: str | None = None, file: Path | str | None = None) -> Self:
        """Read the space of an agent.

        Args:
            agent: a name that `myriad agents` lists.
            env: the environment, for which the file may have known values.
            file: your own file, in place of the agent's.

        Raises:
            UnknownNameError: there is no such agent.
            InvalidArgumentError: the agent has neither a space nor a learning rate and you name no
                file, or the file is missing or has a mistake.
        """
        from myriad.agents import AGENTS

        agent = AGENTS.resolve(agent)
        own = FOLDER / f"{agent}.toml"
        path = user_path(file or (own if own.exists() else DEFAULT))
        text = read_text(path)
        try:
            table = _Table.model_validate(tomllib.loads(text))
            space = cls(agent, table.fixed, table.parameters, file=path)
            space._require_names()
            space._require_few_programs()
            known = [entry for entry in table.known if entry.pop("env", None) in (None, env)]
            space._require_known(known)
            return space.with_known(known)
        # (an ArithmeticError is of the decimals in which Optuna counts steps)
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise InvalidArgumentError(f"{path}: {error}") from None

    @property
    def names(self) -> list[str]:
        """The names that it sets in a trial: the fixed fields and the parameters."""
        return [*self.fixed, *self.parameters]

    @functools.cached_property
    def static(self) -> list[str]:
        """Parameters that change shapes or the program.

        Trials that differ only in other parameters train in one program.
        """
        from myriad.agents import AGENTS
        from myriad.training.loop import traced_fields

        kind = AGENTS.load(self.agent)
        ranges = ranges_of(kind)
        # A hyperparameter that may be a word such as None is not always a number.
        traced = {f"agent.{name}" for name in traced_fields(kind) if not ranges[name].words}
        return [name for name in self.parameters if name not in traced]

    def with_known(self, values: Sequence[Mapping[str, Value]]) -> Self:
        """Return the space with these fields to try before those that it has."""
        known = [self.params(each) for each in values] + list(self.known)
        return dataclasses.replace(self, known=tuple(known))

    def defaults(self, config: TrainingConfig) -> dict[str, Value]:
        """Return a configuration's values of all names in the space."""
        options = [f"agent.{option}" for option in config.agent_options]
        known = [name for name in self.names if name in options or "." not in name]
        values = {name: config.value_of(name) for name in known}
        return {name: value for name, value in values.items() if value is not None}

    def suggest(self, trial: "Trial") -> dict[str, Value]:
        """Let an Optuna trial draw values, and return all fields, including `fixed`.

        Names are those of `create_config`: `num_envs`, `"agent.learning_rate"`.
        """
        drawn: dict[str, Value] = {}
        for name, each in self.parameters.items():
            if each.applies(drawn):
                drawn[name] = each.value(trial._suggest(name, each.distribution))
        return {**self.fixed, **drawn}

    def fields(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """Return the result of `suggest` in a trial, from the `params` that Optuna keeps."""
        kept = {name: each for name, each in self.parameters.items() if name in params}
        return {**self.fixed, **{name: each.value(params[name]) for name, each in kept.items()}}

    def params(self, fields: Mapping[str, Value]) -> dict[str, Value]:
        """Return an Optuna trial's `params` for those of the fields that the space holds.

        Pass them to `study.enqueue_trial`. A field outside the space is left out, so that it is
        drawn.
        """
        values = {}
        for name, each in self.parameters.items():
            if name in fields and each.applies(values) and each.holds(fields[name]):
                values[name] = fields[name]
        return {name: _written(value) for name, value in values.items()}

    def shape(self, fields: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
        """Return a key of the program in which fields train. Fields with equal keys share one."""
        names = [*self.fixed, *self.static]
        return tuple((name, json.dumps(fields[name])) for name in names if name in fields)

    @property
    def fingerprint(self) -> str:
        """A hash of the space, 16 hexadecimal digits. Known values don't count."""
        parameters = {name: each.model_dump() for name, each in self.parameters.items()}
        told = json.dumps([self.agent, dict(self.fixed), parameters], sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def require_usable(self, base: Mapping[str, Value]) -> None:
        """Build configurations of all choices and ends of ranges, several parameters at a time.

        A combination that can't be trained fails its trial.

        Args:
            base: the fields that the study sets, `env` and `agent` among them.

        Raises:
            InvalidArgumentError: a parameter can't be set, or a batch doesn't divide.
        """
        values = {
            name: each.choices or [each.low, each.high] for name, each in self.parameters.items()
        }
        try:
            for i in range(max(map(len, values.values()))):
                drawn: dict[str, Value] = {}
                for name, each in self.parameters.items():
                    if each.applies(drawn):
                        drawn[name] = values[name][min(i, len(values[name]) - 1)]
                make_config(**{**base, **self.fixed, **drawn})
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{self.file}: {error}") from None

    @property
    def num_shapes(self) -> int:
        """The combinations of the parameters in `static`, each of which is compiled by itself."""
        each = [self.parameters[name] for name in self.static]
        return math.prod(
            len(one.choices) or int(one.high - one.low) // int(one.step or 1) + 1 for one in each
        )

    def _require_few_programs(self) -> None:
        for name in self.static:
            each = self.parameters[name]
            if not each.choices and not each.is_whole:
                raise InvalidArgumentError(name, "must have choices, each of which is compiled.")
        if self.num_shapes > MOST_SHAPES:
            rule = f"must have at most {MOST_SHAPES} combinations, each of which is compiled"
            raise InvalidArgumentError(" and ".join(self.static), rule, self.num_shapes)

    def _require_names(self) -> None:
        """Refuse names that a space can't set, and conditions that can't hold."""
        from myriad.agents import AGENTS, options_of

        options = [f"agent.{each.name}" for each in options_of(AGENTS.load(self.agent))]
        known = [*_FIELDS, *(each for each in options if canonical(each) == each)]
        for name in self.names:
            if name not in known:
                raise UnknownNameError("parameter", name, known)
        before: set[str] = set()
        for name, each in self.parameters.items():
            if name in self.fixed:
                raise InvalidArgumentError(name, "must be in fixed or parameters, not in both.")
            for other in each.when:
                if other not in before:
                    rule = "must name parameters above it"
                    raise InvalidArgumentError(f"when of {name}", rule, other)
            before.add(name)

    def _require_known(self, entries: Sequence[Mapping[str, Value]]) -> None:
        for name, value in ((name, value) for entry in entries for name, value in entry.items()):
            if name not in self.parameters:
                raise UnknownNameError("parameter", name, self.parameters, owner="known")
            if not self.parameters[name].holds(value):
                raise InvalidArgumentError(f"known {name}", "must be a value of the space", value)


def load_space(settings: TuneSettings) -> SearchSpace:
    """Return the space of a campaign, with the agent's defaults to try first.

    Raises:
        InvalidArgumentError: the file has a mistake, one of its values can't be used, or it sets
            one of your options.
    """
    config = settings.config()
    space = SearchSpace.load(settings.agent, config.env, settings.space)
    if not settings.trust:
        for network in NETWORK_FIELDS:
            choices = space.parameters[network].choices if network in space.parameters else []
            for name in (space.fixed.get(network), *choices):
                require_no_code(f"{space.file}: {network}", name)
    for name in space.names:
        if name in settings.options:
            rule = f"must be left out, since {space.file} sets it in every trial"
            raise InvalidArgumentError(name, rule, settings.options[name])
    space.require_usable(settings.fields())
    return space.with_known([space.defaults(config)])


def _written(choice: Value) -> bool | int | float | str | None:
    """Return a choice as Optuna keeps it: a list as its text."""
    return json.dumps(choice) if isinstance(choice, list | tuple) else choice
