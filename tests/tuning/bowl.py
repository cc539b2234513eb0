"""A campaign with a real study and an objective that needs no training.

`python tests/tuning/bowl.py STORAGE STUDY NUMBER [SECONDS]` runs so many trials.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from myriad.tuning.parameter import Parameter
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.study import open_study

MIDDLE = {"x": 0.5, "y": 0.5}


def bowl(known: Mapping[str, Any] = MIDDLE, reach: float = 1.0) -> SearchSpace:
    """Return a search space of two numbers."""
    parameters = tuple(Parameter(name, low=-reach, high=reach) for name in ("x", "y"))
    return SearchSpace("ppo", {}, parameters, (known,), (), Path("bowl.toml"))


def settings(storage: str | None, study: str = "bowl", **fields: Any) -> TuneSettings:
    return TuneSettings(
        env="cartpole-control", storage=storage, study_name=study, sampler="random", **fields
    ).completed()


def run(campaign: TuneSettings, trials: int, trial_s: float = 0.0) -> None:
    """Run trials that report three values before their last."""
    space = bowl()
    with open_study(campaign, space) as study:
        for _ in range(trials):
            trial = study.ask()
            point = space.suggest(trial)
            value = -(point["x"] ** 2) - point["y"] ** 2
            for step in range(3):
                time.sleep(trial_s / 3)
                trial.report(value - 2 + step, step * campaign.eval_interval)
            study.tell(trial, value)


if __name__ == "__main__":
    where, name, number, *seconds = sys.argv[1:]
    run(settings(where, name), int(number), float(seconds[0]) if seconds else 0.0)
