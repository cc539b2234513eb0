"""A campaign with a real study, and a trainer in whose place a bowl has values at once.

`python tests/tuning/bowl.py STORAGE STUDY NUMBER` runs so many trials.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import optuna
from optuna.trial import FrozenTrial

from myriad.tuning.objective import Programs, Training
from myriad.tuning.settings import TuneSettings
from myriad.tuning.space import Parameter, SearchSpace
from myriad.tuning.storage import disconnect
from myriad.tuning.study import TrialLoop, open_study

MIDDLE = {"x": 0.5, "y": 0.5}


def bowl(known: Mapping[str, Any] = MIDDLE, reach: float = 1.0) -> SearchSpace:
    """Return a search space of two numbers."""
    parameters = {name: Parameter(low=-reach, high=reach) for name in ("x", "y")}
    return Bowl("ppo", {}, parameters, (known,), Path("bowl.toml"))


class Bowl(SearchSpace):
    """A space whose trials have one shape."""

    static: ClassVar = []


def settings(storage: str | None, study: str = "bowl", **fields: Any) -> TuneSettings:
    given = {"sampler": "random", "pruner": "none", **fields}
    return TuneSettings(
        env="cartpole-control", storage=storage, study_name=study, **given
    ).completed()


class Values(Programs):
    """A trainer in whose place a bowl has values: two before the last."""

    def train(self, take, is_interrupted=lambda: False):
        while not is_interrupted() and (training := take(None)):
            yield "ready", training
            for number in range(1, 4):
                if not training.is_over and not is_interrupted():
                    self.evaluate(training, number)
                    yield "evaluated", training

    def evaluate(self, training: Training, number: int) -> None:
        value = -(training.fields["x"] ** 2) - training.fields["y"] ** 2
        training.returns = np.array([[value - 3 + number]])
        training.steps = [number * self.settings.steps_per_eval]
        training.is_over = number == 3


def run(
    made: TuneSettings,
    trials: int,
    stop_after: int = 10**9,
    on_event: Callable[[str, Training, optuna.Study], None] = lambda *_: None,
    space: SearchSpace | None = None,
    trainer: type[Programs] = Values,
) -> list[FrozenTrial]:
    """Run trials, and stop after so many evaluations. Return the study's trials."""
    heard = []
    space = space or bowl()

    class Heard(trainer):
        def train(self, take, is_interrupted=lambda: False):
            for happened, training in super().train(take, is_interrupted):
                on_event(happened, training, study)
                yield happened, training
                if training.is_over:
                    on_event("over", training, study)
                heard.extend([happened] if happened == "evaluated" else [])

    study = open_study(made, space)
    programs = Heard(TuneSettings(**{**vars(made), "n_trials": trials}), space)
    ends_at = time.time() + (made.timeout or 1e9)
    try:
        TrialLoop(study, programs, ends_at=ends_at).run(lambda: len(heard) >= stop_after)
        return study.get_trials()
    finally:
        disconnect(study._storage)


if __name__ == "__main__":
    where, name, number = sys.argv[1:]
    run(settings(where, name), int(number))
