"""The settings of a tuning campaign: `TuneSettings`, whose fields are the flags of `myriad tune`.

The command line takes its flags from here, so importing this module imports neither JAX nor Optuna.
"""

import dataclasses
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from myriad.errors import InvalidArgumentError
from myriad.files import user_path
from myriad.host import usable_cores
from myriad.ranges import INT64, Integer, Number, Seed, require
from myriad.training.config import TrainingConfig, make_config

Sampler = Literal["tpe", "random", "qmc", "nsgaii"]
Pruner = Literal["median", "none", "hyperband", "successive_halving", "wilcoxon"]
Objective = Literal["return", "train_s", "steps_per_s"]

# For each objective, whether more is better.
GROWS: dict[str, bool] = {"return": True, "train_s": False, "steps_per_s": True}
_EVAL_INTERVAL = 5_000
# A study's name must be a safe file name, since the names of its files begin with it.
_STUDY_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,99}"


@dataclasses.dataclass(frozen=True)
class TuneSettings:
    """A campaign: a number of trials of an agent in an environment, added to a study.

    Example:
        >>> settings = TuneSettings(env="bucket-brigade", scenario="easy", n_trials=20)
        >>> settings.fields()["env.scenario"]
        'easy'
    """

    env: str
    """Environment: a name that `myriad envs` lists, or package.module:Name for your own."""

    agent: str = "ppo"
    """Agent: a name that `myriad agents` lists."""

    scenario: str | None = None
    """Scenario of the environment, if it has several."""

    num_opponents: Annotated[int | None, Integer(0, 100)] = None
    """Number of opponents in the environment. bucket-brigade has 2 by default."""

    num_steps: Annotated[int, Integer(1, INT64)] = 50_000
    """Steps of one trial, over all its environments together."""

    n_trials: Annotated[int, Integer(0)] = 100
    """Number of trials to run, in addition to those that the study already has."""

    seed: Seed = 42
    """Seed of the sampler and of the trainings."""

    n_jobs: Annotated[int, Integer(-1)] = 1
    """Number of processes that run trials, each on its own core. -1 uses all cores."""

    num_seeds: Annotated[int, Integer(1, 1_000)] = 3
    """Number of training seeds, the same in all trials. A trial's value is the mean over them."""

    eval_interval: Annotated[int | None, Integer(1, INT64)] = None
    """Steps between two evaluations of a trial, over all its environments together. By default
    5,000, or num_steps if that is less."""

    sampler: Sampler = "tpe"
    """How parameters are drawn."""

    pruner: Pruner | None = None
    """What ends a trial early. By default median, and none with several objectives."""

    study_name: str | None = None
    """Name of the study, with which the names of its files begin. By default a new one."""

    storage: str | None = dataclasses.field(default=None, repr=False)  # It may hold a password.
    """Where the study is kept: FILE.db, postgresql://USER@HOST/DATABASE or FILE.journal.
    By default in memory, and in an SQLite file for several processes."""

    timeout: Annotated[float | None, Number(positive=True)] = None
    """Seconds after which no further trial starts."""

    objectives: tuple[Objective, ...] = ("return",)
    """What to optimize. With several you get a Pareto front."""

    max_memory_gib: Annotated[float | None, Number(positive=True)] = None
    """GiB that a trial may need with all of its seeds, as a constraint for the sampler. A trial
    that needs more is pruned before it trains."""

    space: Path | None = None
    """File of the search space. By default the agent's own."""

    trust: bool = False
    """Import code that the file of --space names as module:Class."""

    warm_start: tuple[str, ...] = ()
    """Studies in the same storage whose best parameters are tried first."""

    validate: Annotated[int, Integer(0, 1_000)] = 0
    """Number of fresh seeds on which the best parameters are trained again at the end."""

    ensemble: Annotated[int, Integer(0, 100)] = 0
    """Number of best policies that are evaluated together at the end."""

    fail_if_exists: bool = False
    """Refuse an existing study. Otherwise it is resumed."""

    force: bool = False
    """Replace the results of an older study of the same name, which this one does not resume."""

    output: Path = Path("results/tuning")
    """Folder of the results."""

    quiet: bool = False
    """Show no progress."""

    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the agent and the environment by dotted name, the same in all trials."""

    def __post_init__(self):
        for field in dataclasses.fields(TuneSettings):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                require(field.name, value, field.type)
        is_safe = self.study_name is None or re.fullmatch(_STUDY_NAME, self.study_name)
        count = len(self.objectives)
        is_compared = count == 1 or self.pruner in (None, "none")
        most = f"be at most num_steps ({self.num_steps:,})"
        rules = (
            ("n_jobs", self.n_jobs != 0, "be at least 1, or -1 for all cores"),
            ("eval_interval", self.steps_per_eval <= self.num_steps, most),
            ("ensemble", self.ensemble != 1, "be 0 or at least 2"),
            ("study_name", is_safe, "be up to 100 of A-Z a-z 0-9 _ . = - and begin with no . = -"),
            ("objectives", 0 < count == len({*self.objectives}), "be one or more different ones"),
            ("pruner", is_compared, "be none with several objectives, which no pruner compares"),
        )
        for name, is_kept, rule in rules:
            if not is_kept:
                raise InvalidArgumentError(name, f"must {rule}", getattr(self, name))

    @property
    def steps_per_eval(self) -> int:
        """`eval_interval`, or its default."""
        return self.eval_interval or min(_EVAL_INTERVAL, self.num_steps)

    def completed(self) -> "TuneSettings":
        """Return the same campaign with its pruner, name, processes and storage chosen.

        Example:
            >>> TuneSettings(env="cartpole-control", n_jobs=-1).completed().pruner
            'median'
        """
        n_jobs = usable_cores() if self.n_jobs == -1 else self.n_jobs
        name = self.study_name
        if name is None:
            # Campaigns that start at the same time get different names.
            started = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
            parts = (self.agent, self.env.rpartition(":")[2], self.scenario, started)
            joined = "-".join(filter(None, parts))
            name = re.sub(r"[^A-Za-z0-9_.-]", "-", joined)[-100:].lstrip(".-")
        output = user_path(self.output)
        storage = self.storage
        if storage is None and n_jobs > 1:
            storage = str(output / f"{name}.db")
        pruner = self.pruner or ("none" if len(self.objectives) > 1 else "median")
        return dataclasses.replace(
            self, n_jobs=n_jobs, study_name=name, storage=storage, pruner=pruner, output=output
        )

    def seeds(self) -> list[int]:
        """Return the training seeds of every trial."""
        return [self.seed + index for index in range(self.num_seeds)]

    def config(self, **fields: Any) -> TrainingConfig:
        """Return the training of a trial: the default one, or one with these fields.

        Args:
            fields: fields of `TrainingConfig`, and options by dotted name.

        Raises:
            UnknownNameError: there is no such environment, agent, scenario or option.
            InvalidArgumentError: a value can't be used, or the agent can't act there.
        """
        return make_config(**{**self.fields(), **fields})

    def fields(self) -> dict[str, Any]:
        """Return the fields that all trials share, as `create_config` takes them."""
        named = {"env.scenario": self.scenario, "env.num_opponents": self.num_opponents}
        named = {name: value for name, value in named.items() if value is not None}
        shared = {"env": self.env, "agent": self.agent, "total_steps": self.num_steps}
        shared["num_devices"] = 1  # Trials share the devices.
        return {**shared, **self.options, **named}
