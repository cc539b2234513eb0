"""`TrainingConfig`: what a training is, checked, frozen, and the same again after a trip through TOML or JSON."""

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from typing import Any, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from myriad.agents import make_learner
from myriad.agents.agent import Learner
from myriad.envs import Environment, make_env
from myriad.errors import InvalidArgumentError, UnknownNameError

# Fields of the configuration that are an agent's hyperparameters under the same name.
_SHARED_WITH_AGENT = ("rollout_steps", "buffer_size", "batch_size")
_DEFAULT_TOTAL_STEPS = 500_000


class TrainingConfig(BaseModel):
    """A training, as `myriad.create_config` checks it and `resolve` completes it.

    Steps are counted per environment: all environments together take `num_envs` times as many.

    Attributes:
        env: the environment's name.
        agent: the agent's name.
        num_envs: environments in parallel; None is the agent's own default, here and below.
        steps_per_env: steps of every environment in the whole training.
        scan_chunk_size: steps of every environment in one compiled call.
        rollout_steps: steps of every environment between two updates of an on-policy agent.
        buffer_size: transitions that a replay buffer holds.
        batch_size: transitions in one gradient step.
        eval_frequency: steps of every environment between two evaluations.
        eval_rollouts: episodes in one evaluation.
        eval_max_steps: steps after which an evaluation cuts an episode off.
        target_return: stop as soon as an evaluation's mean return reaches it; None trains to the
            end.
        checkpoint_every_s: seconds between two checkpoints, taken where a window between
            evaluations ends; one is also saved at the end and at an interrupt.
        log_to: `tensorboard`, `wandb`, beside the run's folder.
        seed: every random number of the run follows from it.
        env_options: fields of the environment or its parameters that differ from their defaults.
        agent_options: hyperparameters of the agent that differ from their defaults.
    """

    # TOML has an infinity, and Python's JSON; pydantic would make None of it, and so the default.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants"
    )

    env: str
    agent: str
    num_envs: int | None = Field(None, ge=1)
    steps_per_env: int | None = Field(None, ge=1)
    scan_chunk_size: int | None = Field(None, ge=1)
    rollout_steps: int | None = Field(None, ge=1)
    buffer_size: int | None = Field(None, ge=1)
    batch_size: int | None = Field(None, ge=1)
    eval_frequency: int | None = Field(100, ge=1)
    eval_rollouts: int = Field(32, ge=1)
    eval_max_steps: int = Field(10_000, ge=1)
    target_return: float | None = None
    checkpoint_every_s: float = Field(60.0, ge=0)
    log_to: list[str] = Field(default_factory=list)
    seed: int = Field(0, ge=-(2**63), lt=2**63)
    env_options: dict[str, Any] = Field(default_factory=dict)
    agent_options: dict[str, Any] = Field(default_factory=dict)

    def to_toml(self) -> str:
        """Write the configuration as TOML; what is None is left out."""
        return tomli_w.dumps(self._present())

    def to_json(self) -> str:
        """Write the configuration as JSON; what is None is left out."""
        return json.dumps(self._present(), indent=2)

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read what `to_toml` wrote, or a person.

        Raises:
            InvalidArgumentError: it is not TOML, or not a configuration.
        """
        try:
            return _checked(cls, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InvalidArgumentError(f"the configuration is not TOML: {error}.") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; raises what `from_toml` does."""
        try:
            return _checked(cls, json.loads(text))
        except json.JSONDecodeError as error:
            raise InvalidArgumentError(f"the configuration is not JSON: {error}.") from None

    def make_env(self) -> Environment:
        """Build the environment."""
        return make_env(self.env, **_with_tuples(self.env_options))

    def make_learner(self, env: Environment) -> Learner:
        """Build the agent for `env`.

        Raises:
            InvalidArgumentError: the agent can't act in this environment, or lacks a field that is
                set.
        """
        shared = {
            name: value for name in _SHARED_WITH_AGENT if (value := getattr(self, name)) is not None
        }
        return make_learner(self.agent, env, **(shared | _with_tuples(self.agent_options)))

    def resolve(self) -> "TrainingConfig":
        """Return the configuration with every default filled in, and steps rounded up to whole updates.

        An agent learns in updates of `steps_per_update` steps; chunks and evaluations end where an
        update does.

        Raises what `make_env` and `make_learner` do, and InvalidArgumentError where the agent can't
        learn from so many environments.
        """
        env = self.make_env()
        learner = self.make_learner(env)
        num_envs = self.num_envs or learner.default_num_envs
        if (require := getattr(learner, "require_num_envs", None)) is not None:
            require(num_envs)
        unit = learner.steps_per_update
        steps = _whole(self.steps_per_env or math.ceil(_DEFAULT_TOTAL_STEPS / num_envs), unit)
        agent = getattr(learner, "controller", learner)
        chosen = {
            name: value
            for name, value in self.agent_options.items()
            if name not in _SHARED_WITH_AGENT
        }
        shared = {
            name: getattr(learner, name) for name in _SHARED_WITH_AGENT if hasattr(learner, name)
        }
        filled = shared | {
            "num_envs": num_envs,
            "steps_per_env": steps,
            "eval_frequency": min(steps, _whole(self.eval_frequency or steps, unit)),
            "scan_chunk_size": min(
                steps, _whole(self.scan_chunk_size or _default_chunk(num_envs), unit)
            ),
            # What was chosen comes first: an adapter may keep it where no field of the environment
            # shows it.
            "env_options": self.env_options
            | _options(env, without={"default_params"})
            | _options(env.default_params, without=set()),
            "agent_options": chosen | _options(agent, without={"env", *_SHARED_WITH_AGENT}),
        }
        return self.model_copy(update=filled)

    def _present(self) -> dict[str, Any]:
        return _without_none(self.model_dump(mode="json"))


def make_config(
    env: str,
    agent: str,
    num_envs: int | None = None,
    steps_per_env: int | None = None,
    scan_chunk_size: int | None = None,
    **overrides: Any,
) -> TrainingConfig:
    """Describe a training: `myriad.create_config` without its autotuner.

    Args:
        env: the environment's name.
        agent: the agent's name.
        num_envs: environments in parallel.
        steps_per_env: steps of every environment in the whole training.
        scan_chunk_size: steps of every environment in one compiled call.
        **overrides: other fields, and hyperparameters by dotted name such as
            `"agent.learning_rate"`, `"env.gravity"`.

    Raises:
        UnknownNameError: no such environment, agent or field; the message holds the closest.
        InvalidArgumentError: a value that can't be used, or an agent that can't act in the
            environment.

    Example:
        >>> config = make_config("cartpole-control", "ppo", **{"agent.learning_rate": 1e-3})
        >>> config.agent_options
        {'learning_rate': 0.001}
    """
    fields = {"env": env, "agent": agent, "num_envs": num_envs, "steps_per_env": steps_per_env}
    fields |= {"scan_chunk_size": scan_chunk_size}
    for table in ("env_options", "agent_options"):
        options = overrides.pop(table, {})
        if not isinstance(options, Mapping):
            raise InvalidArgumentError(
                f"{table} must be a table of names and values, but got {options!r}."
            )
        fields[table] = dict(options)
    for name in list(overrides):
        table, dot, option = name.partition(".")
        if dot and table in ("env", "agent"):
            fields[f"{table}_options"][option] = overrides.pop(name)
    config = _checked(
        TrainingConfig, {name: _plain(name, value) for name, value in (fields | overrides).items()}
    )
    config.resolve()  # a mistake is said here, not when the training starts
    return config


def _plain(name: str, value: Any) -> Any:
    """Return the value as a file holds it: NumPy's and JAX's scalars as Python's numbers, tuples as lists.

    Raises:
        InvalidArgumentError: an array of any other shape.
    """
    if isinstance(value, Mapping):
        return {
            key: _plain(f"{name.removesuffix('_options')}.{key}", each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if not hasattr(value, "item"):
        return value
    if value.shape:
        raise InvalidArgumentError(
            f"{name} must be a number or a list, but got an array of shape {value.shape}."
        )
    return value.item()


def _checked(cls: Any, fields: Mapping[str, Any]) -> Any:
    """Build the configuration, with pydantic's report turned into one sentence."""
    for name in fields:
        if name not in cls.model_fields:
            known = [*cls.model_fields, "agent.<hyperparameter>", "env.<parameter>"]
            raise UnknownNameError("field of the configuration", name, known)
    try:
        return cls(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        says = first["msg"][0].lower() + first["msg"][1:]
        raise InvalidArgumentError(
            f"{name}: {says.removeprefix('input ')}, but got {first['input']!r}."
        ) from None


def _whole(steps: int, unit: int) -> int:
    return math.ceil(steps / unit) * unit


def _default_chunk(num_envs: int) -> int:
    # About a million steps of all environments: enough to hide a call's cost, and some calls a
    # second for the progress.
    return max(1, min(1_000, 1_000_000 // num_envs))


def _options(thing: Any, without: set[str]) -> dict[str, Any]:
    """Return the fields of a dataclass that a file can hold: not arrays, not nested objects."""
    fields = [field for field in dataclasses.fields(thing) if not field.metadata.get("derived")]
    values = {field.name: getattr(thing, field.name) for field in fields}
    plain = (bool, int, float, str, list)
    values = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }
    return {
        name: value
        for name, value in values.items()
        if name not in without and isinstance(value, plain)
    }


def _with_tuples(value: Any) -> Any:
    """Undo what a file does to a tuple: the fields of environments and agents are hashable."""
    if isinstance(value, Mapping):
        return {name: _with_tuples(each) for name, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: _without_none(v) if isinstance(v, dict) else v for k, v in table.items() if v is not None
    }
