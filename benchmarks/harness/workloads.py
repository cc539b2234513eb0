"""Read suite.toml, the only declaration of workloads, and report its mistakes.

The asv classes, the command lines and the plots call this. Standard library only, so that the
suites import on every commit.
"""

import dataclasses
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.harness.libraries import LIBRARIES, OURS, SIDES, SuiteError, known, library_of

SUITE_FILE = Path(__file__).parents[1] / "suite.toml"
SUITES = ("throughput", "comparison", "memory", "scan_chunk", "compile", "devices")
# Their tables declare whole trainings.
TRAINING_SUITES = ("training", "autotune", "presets", "tuning")
TIERS = ("quick", "full")
DEVICES = ("cpu", "gpu")
# The file's tables that are not suites, and their values if they are left out.
_NOT_SUITES: Mapping[str, Any] = {"sanity_checks": {}, "targets": [], "env_ids": {}, "peers": {}}

T = TypeVar("T")
D = TypeVar("D", "Workload", "Training")


# A kind of value: its name in an error, and a test whether a value from the file is one.
_Kind = tuple[str, Callable[[Any], bool]]
_TEXT: _Kind = ("a text", lambda value: isinstance(value, str))
_FLAG: _Kind = ("true or false", lambda value: isinstance(value, bool))
# `type`, because True is an instance of int.
_COUNT: _Kind = ("a whole number of at least 1", lambda value: type(value) is int and value >= 1)
_NUMBER: _Kind = ("a number above 0", lambda value: type(value) in (int, float) and value > 0)
_REAL: _Kind = ("a number", lambda value: type(value) in (int, float))
_TEXTS: _Kind = (
    "a list of texts",
    lambda value: isinstance(value, list) and all(isinstance(v, str) for v in value),
)
_ENV: _Kind = (
    "the name of an environment or package.module:Class",
    lambda value: isinstance(value, str) and re.fullmatch(r"[\w.-]+|[\w.]+:\w+", value) is not None,
)


def _one_of(allowed: tuple[str, ...]) -> _Kind:
    return f"one of {', '.join(allowed)}", lambda value: value in allowed


def _some_of(allowed: tuple[str, ...]) -> _Kind:
    return (
        f"a list that may hold {', '.join(allowed)}",
        lambda v: isinstance(v, list) and all(item in allowed for item in v),
    )


def _texts_of(allowed: tuple[str, ...]) -> _Kind:
    return (
        f"a table of texts whose keys may be {', '.join(allowed)}",
        lambda v: (
            isinstance(v, dict) and all(key in allowed and isinstance(v[key], str) for key in v)
        ),
    )


def _key(kind: _Kind, **default: Any) -> Any:
    """Declare a field that is read from the file under its own name."""
    return field(metadata={"kind": kind}, **default)


@dataclass(frozen=True)
class Workload:
    """The environments and agent that a benchmark steps, and the devices on which it is measured.

    With `num_seeds`, that many trainings run in parallel, each in `num_envs` environments. With
    `num_shards`, it is a training with that many shards.
    """

    suite: str
    name: str
    env: str = _key(_ENV)
    agent: str = _key(_TEXT)
    num_envs: int = _key(_COUNT)
    scan_chunk_size: int = _key(_COUNT)
    tiers: tuple[str, ...] = _key(_some_of(TIERS))
    devices: tuple[str, ...] = _key(_some_of(DEVICES))
    num_steps: int | None = _key(_COUNT, default=None)
    num_seeds: int | None = _key(_COUNT, default=None)
    num_shards: int | None = _key(_COUNT, default=None)


@dataclass(frozen=True)
class Training:
    """A whole training. The agent's own defaults replace missing keys.

    `num_steps` counts the steps of all environments together.
    """

    suite: str
    name: str
    env: str = _key(_ENV)
    agent: str = _key(_TEXT)
    tiers: tuple[str, ...] = _key(_some_of(TIERS))
    devices: tuple[str, ...] = _key(_some_of(DEVICES))
    num_envs: int | None = _key(_COUNT, default=None)
    num_steps: int | None = _key(_COUNT, default=None)
    target_return: float | None = _key(_REAL, default=None)


@dataclass(frozen=True)
class SanityCheck:
    """The expected statistics of an environment's episodes under a policy.

    The check gives either their mean length in steps or their mean return. `waived` names libraries
    whose environment is known to differ, and describes the difference.
    """

    env: str
    agent: str = _key(_TEXT)
    tolerance: float = _key(_NUMBER)
    num_episodes: int = _key(_COUNT)
    mean_episode_length: float | None = _key(_NUMBER, default=None)
    mean_episode_return: float | None = _key(_REAL, default=None)
    waived: Mapping[str, str] = _key(_texts_of(LIBRARIES), default_factory=dict)

    @property
    def statistic(self) -> str:
        """The key of the checked statistic in a side's stats."""
        return "mean_episode_length" if self.mean_episode_return is None else "mean_episode_return"

    @property
    def expected(self) -> float:
        """The expected value of the statistic."""
        return getattr(self, self.statistic)


@dataclass(frozen=True)
class Target:
    """The least ratio of Myriad's steps/s to those of another side or workload.

    Without `at_least` the ratio is only reported. `at_least_plain` is the least ratio for Myriad
    without `configure()`.
    """

    workload: str = _key(_TEXT)
    of: str = _key(_one_of(SIDES))
    at_least: float | None = _key(_NUMBER, default=None)
    at_least_plain: float | None = _key(_NUMBER, default=None)
    than: str | None = _key(_TEXT, default=None)
    record: bool = _key(_FLAG, default=False)


@dataclass(frozen=True)
class Peer:
    """A library in its own virtual environment, and the packages that pip installs there."""

    name: str
    requirements: tuple[str, ...] = _key(_TEXTS)


@dataclass(frozen=True)
class Declaration:
    """The contents of suite.toml."""

    workloads: Mapping[str, Mapping[str, Workload]]
    sanity_checks: Mapping[str, SanityCheck]
    targets: tuple[Target, ...]
    trainings: Mapping[str, Mapping[str, Training]] = field(default_factory=dict)
    env_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    peers: Mapping[str, Peer] = field(default_factory=dict)

    def select(self, suite: str, tier: str) -> dict[str, Workload]:
        """Return the workloads of `suite` that belong to `tier`, by name."""
        known(suite, self.workloads, "suite")
        return _of_tier(self.workloads[suite], tier)

    def select_trainings(self, suite: str, tier: str) -> dict[str, Training]:
        """Return the trainings of `suite` that belong to `tier`, by name."""
        known(suite, self.trainings, "suite")
        return _of_tier(self.trainings[suite], tier)

    def sanity_check_of(self, workload: Workload) -> SanityCheck | None:
        """Return the check for a run of `workload`, if one is declared."""
        check = self.sanity_checks.get(workload.env)
        return check if check is not None and check.agent == workload.agent else None

    def env_id_of(self, side: str, workload: Workload) -> str:
        """Return the environment's name in a side's library; empty if it has none."""
        return self.env_ids.get(library_of(side), {}).get(workload.env, "")

    def targets_of(self, env: str) -> tuple[Target, ...]:
        """Return the targets for an environment.

        Raises:
            SuiteError: there are none.
        """
        declared = self.workloads["throughput"]
        targets = tuple(target for target in self.targets if declared[target.workload].env == env)
        if not targets:
            about = sorted({declared[target.workload].env for target in self.targets})
            known_envs = ", ".join(about) or "nothing"
            raise SuiteError(f"no target is about {env}; there are targets about {known_envs}.")
        return targets


def _of_tier(declared: Mapping[str, D], tier: str) -> dict[str, D]:
    known(tier, TIERS, "tier")
    return {name: item for name, item in declared.items() if tier in item.tiers}


def load(path: Path = SUITE_FILE) -> Declaration:
    """Read and check the declaration.

    Raises:
        SuiteError: there is a mistake. The message names the key and the allowed values.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{path.name} is not valid TOML: {error}.") from error
    sanity_checks, targets, env_ids, peers = (
        tables.pop(key, empty) for key, empty in _NOT_SUITES.items()
    )
    if not isinstance(targets, list):
        raise SuiteError("targets must be an array of tables, [[targets]].")
    for suite in tables:
        known(suite, (*SUITES, *TRAINING_SUITES), "suite")
    declaration = Declaration(
        workloads={suite: _declared(Workload, suite, tables.get(suite, {})) for suite in SUITES},
        trainings={
            suite: _declared(Training, suite, tables.get(suite, {})) for suite in TRAINING_SUITES
        },
        sanity_checks={
            env: _read(SanityCheck, table, f"sanity_checks.{env}", env=env)
            for env, table in _tables(sanity_checks, "sanity_checks")
        },
        targets=tuple(
            _read(Target, table, f"targets[{index}]") for index, table in enumerate(targets)
        ),
        env_ids={
            known(library, LIBRARIES, "library of env_ids"): _names(library, table)
            for library, table in env_ids.items()
        },
        peers={
            known(name, LIBRARIES, "peer"): _read(Peer, table, f"peers.{name}", name=name)
            for name, table in _tables(peers, "peers")
        },
    )
    _check(declaration)
    return declaration


def _check(declaration: Declaration) -> None:
    """Report mistakes that involve several keys."""
    for check in declaration.sanity_checks.values():
        if (check.mean_episode_length is None) == (check.mean_episode_return is None):
            raise SuiteError(
                f"sanity_checks.{check.env} must give either mean_episode_length "
                "or mean_episode_return."
            )
    for target in declaration.targets:
        for name in filter(None, (target.workload, target.than)):
            known(name, declaration.workloads.get("throughput", {}), "workload of a target")
        if target.at_least_plain and (target.of == OURS or target.than or target.record):
            raise SuiteError(
                f"the target on {target.workload} can't have at_least_plain "
                f"beside of = {OURS!r}, than or record."
            )


def tier_from_environment(environ: Mapping[str, str] = os.environ) -> str:
    """Return the tier named by MYRIAD_TIER, or `quick` if it is not set."""
    return known(environ.get("MYRIAD_TIER") or "quick", TIERS, "MYRIAD_TIER")


def _tables(value: Any, where: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise SuiteError(f"{where} must be a table of tables, [{where}.<name>], but got {value!r}.")
    return value.items()


def _names(library: str, table: Any) -> dict[str, str]:
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise SuiteError(
            f"env_ids.{library} must be a table of environments and their names there, "
            f"but got {table!r}."
        )
    return table


def _declared(cls: type[T], suite: str, tables: Any) -> dict[str, T]:
    return {
        name: _read(cls, table, f"{suite}.{name}", suite=suite, name=name)
        for name, table in _tables(tables, suite)
    }


# Written by hand instead of with pydantic, because a peer's Python has only the standard library.
def _read(cls: type[T], table: Any, where: str, **given: str) -> T:
    """Build `cls` from a TOML table whose keys are the fields declared with `_key`."""
    if not isinstance(table, dict):
        raise SuiteError(f"{where} must be a table, but got {table!r}.")
    keys = {item.name: item for item in dataclasses.fields(cls) if "kind" in item.metadata}  # type: ignore[arg-type]
    for name, value in table.items():
        expected, fits = keys[known(name, keys, f"{where}: key")].metadata["kind"]
        if not fits(value):
            raise SuiteError(f"{where}.{name} must be {expected}, but got {value!r}.")
    for name, item in keys.items():
        if name not in table and item.default is item.default_factory is MISSING:
            raise SuiteError(f"{where} lacks the key {name!r}, {item.metadata['kind'][0]}.")
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in table.items()
    }
    return cls(**given, **values)
