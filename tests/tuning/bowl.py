"""A campaign with a real study, and a trainer in whose place a bowl has values at once.

`python tests/tuning/bowl.py STORAGE STUDY NUMBER [SECONDS]` runs so many trials.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna

from myriad.tuning import campaign
from myriad.tuning.campaign import Event
from myriad.tuning.objective import Boundary, Score
from myriad.tuning.parameter import Parameter
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.storage import disconnect
from myriad.tuning.study import open_study

MIDDLE = {"x": 0.5, "y": 0.5}


def bowl(known: Mapping[str, Any] = MIDDLE, reach: float = 1.0) -> SearchSpace:
    """Return a search space of two numbers."""
    parameters = tuple(Parameter(name, low=-reach, high=reach) for name in ("x", "y"))
    return SearchSpace("ppo", {}, parameters, (known,), (), Path("bowl.toml"))


def settings(storage: str | None, study: str = "bowl", **fields: Any) -> TuneSettings:
    given = {"sampler": "random", "pruner": "none", **fields}
    return TuneSettings(
        env="cartpole-control", storage=storage, study_name=study, **given
    ).completed()


def run(
    made: TuneSettings,
    trials: int,
    trial_s: float = 0.0,
    stop_after: int = 10**9,
    on_event: Callable[[Event, optuna.Study], None] = lambda event, study: None,
) -> None:
    """Run trials that report three values before their last, and stop after so many evaluations."""
    heard = []

    def train_all(programs, source, is_interrupted):
        while not is_interrupted() and (training := source.take(None)):
            if not source.admits(training, 0):
                continue
            value = -(training.fields["x"] ** 2) - training.fields["y"] ** 2
            for number in range(1, 4):
                time.sleep(trial_s / 3)
                training.score = Score(value - 3 + number, 0.0, (value,), 1)
                step = Boundary(number, (number * made.eval_interval,))
                heard.append(number)
                goes_on = source.evaluated(training, step, is_last=number == 3)
                if not goes_on or len(heard) >= stop_after:
                    break

    study = open_study(made, bowl())
    trainer, campaign.train_all = campaign.train_all, train_all
    try:
        campaign.run(
            study,
            TuneSettings(**{**vars(made), "n_trials": trials}),
            bowl(),
            lambda event: on_event(event, study),
            is_interrupted=lambda: len(heard) >= stop_after,
        )
    finally:
        campaign.train_all = trainer
        disconnect(study._storage)


if __name__ == "__main__":
    where, name, number, *seconds = sys.argv[1:]
    run(settings(where, name), int(number), float(seconds[0]) if seconds else 0.0)
