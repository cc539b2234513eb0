"""The conclusion of a campaign: its best trials are trained again, also as an ensemble."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from myriad.spaces import Box, Discrete
from myriad.training.evaluation import Evaluation, key_alone
from myriad.tuning.objective import (
    FRESH_SEEDS,
    NUM_EPISODES,
    VALIDATION_SEEDS,
    Boundary,
    Confirmation,
    Failure,
    Score,
    confirm,
)
from myriad.tuning.settings import GROWS, TuneSettings
from myriad.tuning.space import SearchSpace
from myriad.tuning.trainings import Programs, Shape, Source, Training, train_all

# How many trials are trained again, and on how many fresh seeds at least.
_BEST_FEW, _LEAST_SEEDS = 3, 5
_DEFAULT = -1

IsInterrupted = Callable[[], bool]


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """The best policies together, evaluated on the same episodes as each of them alone.

    Attributes:
        trials: numbers of the trials, best first. Each was trained on the first training seed.
        combined: how they act together: by the mean of their actions in a Box, and otherwise by the
            action that most of them choose. In a tie, the best member among those decides.
        score: the score of all together.
        alone: the score of each alone.
    """

    trials: tuple[int, ...]
    combined: str
    score: Score
    alone: tuple[Score, ...]


def best_trials(study: optuna.Study, settings: TuneSettings, count: int) -> list[FrozenTrial]:
    """Return the best completed trials by the first objective.

    With several objectives, return the trials of the Pareto front.
    """
    objective, *others = settings.objectives
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if others:
        done = study.best_trials
    sign = -1 if GROWS[objective] else 1
    return sorted(done, key=lambda trial: sign * trial.values[0])[:count]


def confirm_best(
    study: optuna.Study,
    settings: TuneSettings,
    space: SearchSpace,
    is_interrupted: IsInterrupted = lambda: False,
) -> Confirmation | None:
    """Train the best few trials and the agent's defaults again, on fresh seeds.

    Returns:
        the confirmation, or None if no trial was completed or the confirmation was interrupted.
    """
    best = best_trials(study, settings, _BEST_FEW)
    if not best:
        return None
    seeds = fresh_seeds(settings)
    fields = {trial.number: space.fields(trial.params) for trial in best}
    fields[_DEFAULT] = space.defaults(settings.config())
    again = train_again(settings, space, fields, seeds, is_interrupted)
    if again.is_interrupted:
        return None
    scores = {number: _score(trainings) for number, trainings in again.trainings.items()}
    default = scores.pop(_DEFAULT, None)
    failures = [
        Failure(None if number == _DEFAULT else number, reason)
        for number, reason in again.failures.items()
    ]
    return confirm(default, list(scores.items()), seeds, failures)


def fresh_seeds(settings: TuneSettings) -> list[int]:
    """Return seeds on which no trial trained, in whole groups of as many as a trial has."""
    count = -(-_LEAST_SEEDS // settings.num_seeds) * settings.num_seeds
    return [settings.seed + FRESH_SEEDS + index for index in range(count)]


def validate(
    fields: Mapping[str, Any],
    settings: TuneSettings,
    space: SearchSpace,
    is_interrupted: IsInterrupted = lambda: False,
) -> Score | None:
    """Train a configuration over `settings.validate` seeds that played no part in any choice.

    Returns:
        None if it failed or was interrupted.
    """
    seeds = [settings.seed + VALIDATION_SEEDS + index for index in range(settings.validate)]
    again = train_again(settings, space, {0: fields}, seeds, is_interrupted)
    return _score(again.trainings[0]) if again.trainings else None


def evaluate_ensemble(
    study: optuna.Study,
    settings: TuneSettings,
    space: SearchSpace,
    is_interrupted: IsInterrupted = lambda: False,
) -> Ensemble | None:
    """Train the `settings.ensemble` best trials again, and evaluate their policies together.

    Returns:
        None if fewer than two could be trained.
    """
    best = best_trials(study, settings, settings.ensemble)
    fields = {trial.number: space.fields(trial.params) for trial in best}
    again = train_again(settings, space, fields, [settings.seed], is_interrupted, keeps=True)
    trained = again.trainings
    if len(trained) < 2:
        return None
    numbers = tuple(trial.number for trial in best if trial.number in trained)
    states = tuple(trained[number][0].states[0] for number in numbers)
    configs = [settings.config(**fields[number]) for number in numbers]
    env = configs[0].environment
    together = EnsemblePolicy(env, tuple(each.learner for each in configs))
    key = key_alone(settings.seed + VALIDATION_SEEDS)
    max_steps = configs[0].eval_max_steps

    def score(learner: Any, state: Any) -> Score:
        evaluation = Evaluation(env, learner, NUM_EPISODES, max_steps=max_steps)
        returns, ended = jax.device_get(jax.jit(evaluation.returns)(state, key))
        return Score.of(returns[None], ended[None])

    alone = tuple(score(each.learner, state) for each, state in zip(configs, states, strict=True))
    return Ensemble(numbers, together.combined, score(together, states), alone)


@dataclasses.dataclass(frozen=True)
class EnsemblePolicy:
    """Several policies as one, for an evaluation. Its state is the tuple of their states.

    Attributes:
        env: the environment.
        members: the learners, the best first.
    """

    env: Any
    members: tuple[Any, ...]

    @property
    def combined(self) -> str:
        """How they act together."""
        return "mean action" if self._is_box else "majority vote"

    @property
    def _is_box(self) -> bool:
        return isinstance(self.env.action_space(self.env.default_params), Box)

    def act(self, state: Any, key: jax.Array, obs: jax.Array, *, greedy: bool) -> jax.Array:
        actions = jnp.stack(
            [
                member.act(of_member, jax.random.fold_in(key, index), obs, greedy=greedy)
                for index, (member, of_member) in enumerate(zip(self.members, state, strict=True))
            ]
        )
        return jnp.mean(actions, axis=0) if self._is_box else self._vote(actions)

    def _vote(self, actions: jax.Array) -> jax.Array:
        """Return the choice of most members, component by component."""
        space = self.env.action_space(self.env.default_params)
        most = space.n if isinstance(space, Discrete) else max(space.nvec)
        count = len(self.members)
        # Better members' votes count slightly more, to break ties. All the extra together is less
        # than one vote.
        weights = 1 + (count - jnp.arange(count)) / (count * (count + 1))
        votes = jax.nn.one_hot(actions, int(most)) * weights.reshape(-1, *[1] * actions.ndim)
        return jnp.argmax(votes.sum(axis=0), axis=-1).astype(actions.dtype)


@dataclasses.dataclass(frozen=True)
class Again:
    """Configurations that were trained again.

    Attributes:
        trainings: the trainings of each configuration, in the order of the seeds.
        failures: why a seed of a configuration failed. Such a configuration has no trainings here.
        is_interrupted: whether some trainings were left unfinished.
    """

    trainings: Mapping[int, list[Training]]
    failures: Mapping[int, str]
    is_interrupted: bool


def train_again(
    settings: TuneSettings,
    space: SearchSpace,
    fields: Mapping[int, Mapping[str, Any]],
    seeds: Sequence[int],
    is_interrupted: IsInterrupted,
    *,
    keeps: bool = False,
) -> Again:
    """Train configurations over seeds, in programs of the same shapes as the trials'.

    Args:
        settings: the campaign.
        space: its search space.
        fields: the configurations, by numbers of your choice.
        seeds: the training seeds.
        is_interrupted: returns whether to stop now.
        keeps: keep the agents' states.

    """
    each = settings.num_seeds
    groups = [tuple(seeds[first : first + each]) for first in range(0, len(seeds), each)]
    trainings = [
        Training(values, group, origin=number, keep_states=keeps)
        for number, values in fields.items()
        for group in groups
    ]
    programs = Programs(settings, space, settings.num_seeds)
    todo = _ToTheEnd(programs, trainings)
    left = train_all(programs, todo, is_interrupted)
    unfinished = {training.origin for training in [*left, *todo.waiting]}
    ended = {
        number: [training for training in trainings if training.origin == number]
        for number in fields
        if number not in unfinished | todo.failures.keys()
    }
    return Again(ended, todo.failures, bool(unfinished))


class _ToTheEnd(Source):
    """A source of trainings that all run to their ends."""

    def __init__(self, programs: Programs, trainings: Sequence[Training]):
        self.waiting = list(trainings)
        self.failures: dict[int, str] = {}
        self._programs = programs

    def take(self, shape: Shape | None) -> Training | None:
        for training in self.waiting:
            if shape in (None, self._programs.shape(training.fields)):
                self.waiting.remove(training)
                return training
        return None

    def admits(self, training: Training, num_bytes: int) -> bool:
        return True

    def evaluated(self, training: Training, boundary: Boundary, *, is_last: bool) -> bool:
        return True

    def failed(self, training: Training, reason: str) -> None:
        self.failures[training.origin] = reason

    def put_back(self, training: Training) -> None:
        self.waiting.insert(0, training)


def _score(trainings: Sequence[Training]) -> Score:
    returns = np.concatenate([training.returns for training in trainings])
    return Score.of(returns, np.concatenate([training.ended for training in trainings]))
