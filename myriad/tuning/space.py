"""Search spaces: the values that `myriad tune` may try, in a TOML file per agent or your own file.

A key is a field of the configuration, or a hyperparameter such as `"agent.learning_rate"`.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from myriad.errors import InvalidArgumentError, shown
from myriad.tuning.parameter import Parameter, Value, assignments, written
from myriad.tuning.space_file import read_space

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

    from myriad.training.config import TrainingConfig

FOLDER = Path(__file__).parent / "spaces"
# The most shapes, each of which is a set of programs that must be compiled.
MOST_SHAPES = 16


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """The parameters of a study, the fields that all its trials share, and what to try first.

    Attributes:
        agent: the agent that it is for.
        fixed: fields that are the same in every trial.
        parameters: the dimensions, in the order in which they are drawn.
        known: parameters to try first, as `study.enqueue_trial` takes them. Parameters that are
            left out are drawn.
        static: parameters that change shapes or the program. Trials that differ only in other
            parameters train in one program.
        file: the file that defines it.

    Example:
        >>> space = SearchSpace.load("ppo")
        >>> space.static
        ('agent.hidden_sizes', 'rollout_steps')
    """

    agent: str
    fixed: Mapping[str, Value]
    parameters: tuple[Parameter, ...]
    known: tuple[Mapping[str, Value], ...]
    static: tuple[str, ...]
    file: Path

    @classmethod
    def load(cls, agent: str, env: str | None = None, file: Path | str | None = None) -> Self:
        """Read the space of an agent.

        Args:
            agent: a name that `myriad agents` lists.
            env: the environment, for which the file may have known values.
            file: your own file, in place of the agent's.

        Raises:
            UnknownNameError: there is no such agent.
            InvalidArgumentError: the agent has no space and you name no file, or the file is
                missing or has a mistake.
        """
        from myriad.agents import AGENTS

        agent = AGENTS.resolve(agent)
        path = FOLDER / f"{agent}.toml" if file is None else Path(file)
        if file is None and not path.exists():
            raise InvalidArgumentError(
                "agent",
                f"must be one with a search space ({', '.join(agents_with_space())}), but "
                f"got {shown(agent)}; name a file of your own to tune it.",
            )
        fixed, parameters, values = read_space(path, agent, env)
        static = tuple(each.name for each in parameters if not is_traced(agent, each.name))
        space = cls(agent, fixed, parameters, (), static, path)
        space._require_few_shapes()
        return space.with_known(values)

    def require_no_code(self) -> None:
        """Refuse networks that would be imported from a module of the user's.

        Raises:
            InvalidArgumentError: the file names such a network.
        """
        from myriad.training.config import require_no_code

        choices = {each.name: each.choices for each in self.parameters}
        network = "agent.network"
        for name in (self.fixed.get(network), *choices.get(network, ())):
            require_no_code(f"{self.file}: {network}", name)

    @property
    def names(self) -> list[str]:
        """The names that it sets in a trial: the fixed fields and the parameters."""
        return [*self.fixed, *(each.name for each in self.parameters)]

    def with_known(self, values: Sequence[Mapping[str, Value]]) -> Self:
        """Return the space with these fields to try before those that it has."""
        known = [self.params(each) for each in values] + list(self.known)
        return dataclasses.replace(self, known=tuple(known))

    def defaults(self, config: "TrainingConfig") -> dict[str, Value]:
        """Return a configuration's values of all names in the space."""
        values = {name: _value_of(config, name) for name in self.names}
        return {name: value for name, value in values.items() if value is not None}

    def suggest(self, trial: "BaseTrial") -> dict[str, Value]:
        """Let an Optuna trial draw values, and return all fields, including `fixed`.

        Names are those of `create_config`: `num_envs`, `"agent.learning_rate"`.
        """
        drawn: dict[str, Value] = {}
        for each in self.parameters:
            if each.applies(drawn):
                drawn[each.name] = each.suggest(trial)
        return {**self.fixed, **drawn}

    def fields(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """Return the result of `suggest` in a trial, from the `params` that Optuna keeps."""
        drawn = {}
        for each in self.parameters:
            if each.name in params:
                value = params[each.name]
                choices = {written(choice): choice for choice in each.choices}
                drawn[each.name] = choices.get(value, value) if each.choices else value
        return {**self.fixed, **drawn}

    def params(self, fields: Mapping[str, Value]) -> dict[str, Value]:
        """Return an Optuna trial's `params` for those of the fields that the space holds.

        Pass them to `study.enqueue_trial`. A field outside the space is left out, so that it is
        drawn.
        """
        params = {}
        values = {}
        for each in self.parameters:
            if each.name in fields and each.applies(values) and each.holds(fields[each.name]):
                values[each.name] = fields[each.name]
                params[each.name] = (
                    written(values[each.name]) if each.choices else values[each.name]
                )
        return params

    def shape(self, fields: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
        """Return a key of the program in which fields train. Fields with equal keys share one."""
        names = [*self.fixed, *self.static]
        return tuple((name, json.dumps(fields[name])) for name in names if name in fields)

    def shapes(self) -> list[dict[str, Value]]:
        """Return the static fields of every program that the space can need."""
        found = assignments([each for each in self.parameters if each.name in self.static], {})
        return list(itertools.islice(found, MOST_SHAPES + 1))

    @property
    def fingerprint(self) -> str:
        """A hash of the space, 16 hexadecimal digits. Known values don't count."""
        parameters = [dataclasses.asdict(each) for each in self.parameters]
        told = json.dumps([self.agent, dict(self.fixed), parameters], sort_keys=True, default=list)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def require_free(self, options: Mapping[str, Value]) -> None:
        """Refuse options for all trials that the space sets itself.

        Args:
            options: the options by dotted name.

        Raises:
            InvalidArgumentError: a trial would take the space's value in place of yours.
        """
        for name in self.names:
            if name in options:
                raise InvalidArgumentError(
                    name,
                    f"must be left out, since {self.file} sets it in every trial, but got "
                    f"{shown(options[name])}; name a --space without it.",
                )

    def require_usable(self, base: Mapping[str, Value]) -> None:
        """Build the configuration of every shape, so that no trial can fail for a wrong name.

        Args:
            base: the fields that the study sets, `env` and `agent` among them.

        Raises:
            InvalidArgumentError: a parameter can't be set, or a batch doesn't divide.
        """
        from myriad.training.config import make_config

        make_config(**base)  # First, so that your own mistake isn't blamed on the file.
        shapes = self.shapes()
        tried = [*shapes, *({**shapes[0], **end} for end in self._ends())]
        try:
            for fields in tried:
                make_config(**{**base, **self.fixed, **fields})
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{self.file}: {error}") from None

    def _ends(self) -> list[dict[str, Value]]:
        """Return values of parameters that are not static: all choices, and the ends of ranges."""
        tried = {
            each.name: each.choices or (each.low, each.high)
            for each in self.parameters
            if each.name not in self.static
        }
        most = max(map(len, tried.values()), default=0)
        return [
            {name: values[min(index, len(values) - 1)] for name, values in tried.items()}
            for index in range(most)
        ]

    def _require_few_shapes(self) -> None:
        for each in self.parameters:
            if each.name in self.static and not each.choices and not each.is_whole:
                raise InvalidArgumentError(
                    f"{self.file}: {each.name} must have choices, since each of its values is "
                    "compiled by itself."
                )
        if len(self.shapes()) > MOST_SHAPES:
            raise InvalidArgumentError(
                f"{self.file}: {' and '.join(self.static)} must have at most {MOST_SHAPES} "
                "combinations, since each is compiled by itself, but there are more."
            )


def agents_with_space() -> list[str]:
    """Return the agents that have a space of their own, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def _value_of(config: "TrainingConfig", name: str) -> Value:
    owner, _, option = name.partition(".")
    return config.agent_options.get(option) if owner == "agent" else config.value_of(name)


def is_traced(agent: str, name: str) -> bool:
    """Return whether trainings that differ in a field can share a program.

    They can in a hyperparameter that is a plain number or a count of repetitions.
    """
    from myriad.agents import AGENTS
    from myriad.ranges import ranges_of

    owner, _, field = name.partition(".")
    kind = AGENTS.load(agent)
    declared = ranges_of(kind).get(field)
    structural = getattr(kind, "structural", ())
    if owner != "agent" or declared is None or declared.words or field in structural:
        return False
    return not declared.whole or field == "num_epochs"
