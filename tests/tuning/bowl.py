"""A campaign with a real study and an objective that needs no training.

`python tests/tuning/bowl.py STORAGE STUDY NUMBER [SECONDS]` runs so many trials.
"""

import dataclasses
import sys
import time
from collections.abc import Mapping
from typing import Any

import optuna

from myriad.tuning.settings import TuneSettings
from myriad.tuning.study import open_study


@dataclasses.dataclass(frozen=True)
class Bowl:
    """A search space of two numbers."""

    fingerprint: str = "bowl"
    known: tuple[Mapping[str, Any], ...] = ({"x": 0.5, "y": 0.5},)

    def params(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return dict(fields)

    def suggest(self, trial: optuna.Trial) -> dict[str, float]:
        return {"x": trial.suggest_float("x", -1, 1), "y": trial.suggest_float("y", -1, 1)}


def settings(storage: str | None, study: str = "bowl", **fields: Any) -> TuneSettings:
    return TuneSettings(
        env="cartpole-control", storage=storage, study_name=study, sampler="random", **fields
    ).completed()


def run(campaign: TuneSettings, trials: int, trial_s: float = 0.0) -> None:
    """Run trials that report three values before their last."""
    space = Bowl()
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
