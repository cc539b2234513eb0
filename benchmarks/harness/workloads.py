"""Read suite.toml, the only declaration of workloads. Suites, scripts and plots call this."""

import functools
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

from pydantic import Field, ValidationError

from benchmarks.harness.registry import (
    DECLARED,
    LIBRARIES,
    SuiteError,
    known,
    mistake_in,
    validated,
)
from benchmarks.harness.workload import Tier, Workload

SUITE_FILE = Path(__file__).parents[1] / "suite.toml"
# Their tables declare whole trainings, and those of all other suites workloads.
TRAINING_SUITES = ("training", "autotune", "presets", "tuning")
TIERS = get_args(Tier)
CARTPOLE = "cartpole-control"

Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class Training:
    """A whole training. The agent's own defaults replace missing keys.

    `num_steps` counts the steps of all environments together.
    """

    __pydantic_config__: ClassVar = Workload.__pydantic_config__

    suite: str
    name: str
    env: str
    agent: str
    tiers: tuple[Tier, ...]
    num_envs: int | None = None
    num_steps: int | None = None
    target_return: float | None = None


@dataclass(frozen=True)
class SanityCheck:
    """The expected statistics of an environment's episodes under a policy.

    The check gives either their mean length in steps or their mean return. `waived` names libraries
    whose environment is known to differ, and describes the difference.
    """

    __pydantic_config__: ClassVar = Workload.__pydantic_config__

    env: str
    agent: str
    tolerance: Positive
    num_episodes: int
    mean_episode_length: Positive | None = None
    mean_episode_return: float | None = None
    waived: Mapping[str, str] = field(default_factory=dict)

    @property
    def statistic(self) -> str:
        """The key of the checked statistic in a library's stats."""
        return "mean_episode_length" if self.mean_episode_return is None else "mean_episode_return"

    @property
    def expected(self) -> float:
        """The expected value of the statistic."""
        return getattr(self, self.statistic)


@dataclass(frozen=True)
class Target:
    """The least ratio of Myriad's steps/s to those of another library or workload.

    Without `at_least` the ratio is only reported. `at_least_plain` is the least ratio for Myriad
    without `configure()`.
    """

    __pydantic_config__: ClassVar = Workload.__pydantic_config__

    workload: str
    of: str
    at_least: Positive | None = None
    at_least_plain: Positive | None = None
    than: str | None = None
    record: bool = False


@dataclass(frozen=True)
class Declaration:
    """The contents of suite.toml."""

    __pydantic_config__: ClassVar = Workload.__pydantic_config__

    workloads: Mapping[str, Mapping[str, Workload]]
    sanity_checks: Mapping[str, SanityCheck] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    trainings: Mapping[str, Mapping[str, Training]] = field(default_factory=dict)

    def of(self, suite: str, tier: str | None = None) -> dict[str, Any]:
        """Return the workloads or the trainings of `suite` by name: all, or those of a tier."""
        tables = {**self.workloads, **self.trainings}
        declared = tables[known(suite, tables, "suite")]
        return {name: each for name, each in declared.items() if tier is None or tier in each.tiers}

    def sanity_check_of(self, workload: Workload) -> SanityCheck | None:
        """Return the check for a run of `workload`, if one is declared."""
        check = self.sanity_checks.get(workload.env)
        return check if check is not None and check.agent == workload.agent else None

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


@functools.cache
def load(path: Path = SUITE_FILE) -> Declaration:
    """Read and check the declaration.

    Raises:
        SuiteError: there is a mistake. The message names the key.
    """
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        given: dict[str, Any] = {"workloads": {}, "trainings": {}}
        given["sanity_checks"] = _named(tables.pop("sanity_checks", {}), "env")
        given["targets"] = tables.pop("targets", ())
        scripts = [script.stem for script in SUITE_FILE.parent.glob("*.py")]
        for suite, table in tables.items():
            if not any(script.startswith(suite) for script in scripts):
                known(suite, scripts, "suite")
            kind = "trainings" if suite in TRAINING_SUITES else "workloads"
            given[kind][suite] = _named(table, "name", suite=suite)
        declared: Declaration = validated(Declaration, given)
        _check(declared)
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise mistake_in(path, error) from error
    return declared


def _named(tables: Any, key: str, **others: str) -> Any:
    """Tell every table its own name, which is a field of what it declares."""
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        return tables
    return {name: table | others | {key: name} for name, table in tables.items()}


def _check(declaration: Declaration) -> None:
    """Report mistakes that involve several keys."""
    for tables in (declaration.workloads, declaration.trainings):
        for each in (each for table in tables.values() for each in table.values()):
            for name, value in vars(each).items():
                if isinstance(value, int) and value < 1:
                    raise SuiteError(f"{each.suite}.{each.name}.{name} must be at least 1.")
    for check in declaration.sanity_checks.values():
        for library in check.waived:
            known(library, LIBRARIES, f"sanity_checks.{check.env}.waived")
        if (check.mean_episode_length is None) == (check.mean_episode_return is None):
            raise SuiteError(
                f"sanity_checks.{check.env} must give either mean_episode_length "
                "or mean_episode_return."
            )
    for target in declaration.targets:
        known(target.of, DECLARED, "library of a target")
        for name in filter(None, (target.workload, target.than)):
            known(name, declaration.workloads.get("throughput", {}), "workload of a target")


def tier_from_environment() -> str:
    """Return the tier named by MYRIAD_TIER, or `quick` if it is not set."""
    return known(os.environ.get("MYRIAD_TIER") or "quick", TIERS, "MYRIAD_TIER")


def sizes_of(suite: str, options: Any, num_steps: int | None) -> list[Workload]:
    """Return the workloads by size that flags select, with the flags' values.

    Without `--full` they are those of MYRIAD_TIER. An environment without declared workloads takes
    the sizes and chunks of CartPole. A given size takes the chunk of the nearest smaller one.
    """
    env = options.env or CARTPOLE
    matrix = sorted(load().of(suite, "full").values(), key=lambda workload: workload.num_envs)
    workloads = [workload for workload in matrix if workload.env == env] or [
        replace(workload, env=env) for workload in matrix if workload.env == CARTPOLE
    ]
    if options.num_envs:
        smaller = [workload for workload in workloads if workload.num_envs <= options.num_envs]
        nearest = (smaller or workloads[:1])[-1]
        workloads = [replace(nearest, num_envs=options.num_envs)]
    elif not options.full:
        tier = tier_from_environment()
        workloads = [workload for workload in workloads if tier in workload.tiers]
    given = {"scan_chunk_size": options.scan_chunk_size, "num_steps": num_steps}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value}
    return [replace(workload, **changes) for workload in workloads]


def chosen(suite: str, options: Any) -> list[Any]:
    """Return what a suite declares and `--full`, `--agent` and `--env` select.

    A named agent or environment is searched for in all tiers.

    Raises:
        SuiteError: nothing is declared for them.
    """
    every = load().of(suite).values()
    agent, env = options.agent, options.env
    found = [
        each
        for each in every
        if (options.full or agent or env or tier_from_environment() in each.tiers)
        and agent in (None, each.agent)
        and env in (None, each.env)
    ]
    if not found:
        kinds = ", ".join(f"{each.agent} in {each.env}" for each in every)
        raise SuiteError(
            f"suite.toml declares no {suite} of {agent or 'any agent'} in "
            f"{env or 'any environment'}; there are {kinds}."
        )
    return found
