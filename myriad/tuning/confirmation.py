"""The end of a campaign: its best trials are trained again, on fresh seeds and as an ensemble.

A winner must differ from the agent's defaults by more than luck.
"""

import dataclasses
import functools
import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optuna
from optuna.trial import FrozenTrial

from myriad.agents.agent import Learner
from myriad.spaces import Box, Discrete
from myriad.training.evaluation import Evaluation, key_alone
from myriad.tuning.objective import CONFIDENCE, NUM_EPISODES, Programs, Score, Training, take_first
from myriad.tuning.study import best_trials

# The distance between the seeds of the trials, of the confirmation and of the validation.
FRESH_SEEDS = 1_000
VALIDATION_SEEDS = 2_000
# How many trials are trained again, and on how many fresh seeds at least.
_BEST_FEW, _LEAST_SEEDS = 3, 5
_NOT_DISTINGUISHABLE = "not distinguishable from the default"
_LOG = logging.getLogger(__name__)

IsInterrupted = Callable[[], bool]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A trial's configuration that was trained again on fresh seeds.

    Attributes:
        number: the number of the trial.
        score: the score on the fresh seeds.
        difference: its mean minus the default's.
        low: the lower end of the difference's interval, which holds for all candidates at once.
        high: the upper end.
        verdict: whether it is better or worse than the default, by whether the interval excludes 0.
    """

    number: int
    score: Score
    difference: float
    low: float
    high: float
    verdict: str


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """The best few trials, trained again on fresh seeds beside the default.

    Attributes:
        default: the score of the agent's defaults; None if they failed.
        candidates: the trials, best first by their scores on the fresh seeds. If the default
            failed, no difference from it is known.
    """

    default: Score | None
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]

    @property
    def winner(self) -> Candidate | None:
        """The best trial that is better than the default, or None if no trial is."""
        return next((each for each in self.candidates if each.verdict == "better"), None)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.default is None and not self.winner:
            return "the default failed on fresh seeds, so nothing is compared with it"
        if not self.candidates:
            return "no trial could be trained again on fresh seeds"
        best = self.winner or self.candidates[0]
        says = {"better": "better than the default by", "worse": "worse by"}
        return (
            f"trial {best.number} is {says.get(best.verdict, f'{best.verdict}:')} "
            f"{best.difference:.4g} ({best.low:.4g} to {best.high:.4g})"
        )


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


def confirm_best(
    study: optuna.Study, programs: Programs, is_interrupted: IsInterrupted
) -> Confirmation | None:
    """Train the best few trials and the agent's defaults again, on fresh seeds.

    Returns:
        the confirmation, or None if no trial was completed or the confirmation was interrupted.
    """
    settings, space = programs.settings, programs.space
    best = best_trials(study, settings)[:_BEST_FEW]
    if not best or is_interrupted():
        return None
    _LOG.info("the best trials train again beside the default, on fresh seeds")
    # None stands for the default.
    fields: dict[Any, Mapping[str, Any]] = {None: space.defaults(settings.config())}
    fields |= {trial.number: space.fields(trial.params) for trial in best}
    # Whole groups of as many seeds as a trial has.
    count = -(-_LEAST_SEEDS // settings.num_seeds) * settings.num_seeds
    seeds = [settings.seed + FRESH_SEEDS + index for index in range(count)]
    again = train_again(programs, fields, seeds, is_interrupted)
    if again is None:
        return None
    scores = scores_of(again)
    return confirm(scores.pop(None, None), scores, seeds)


def confirm(
    default: Score | None, scores: Mapping[int, Score], seeds: Sequence[int]
) -> Confirmation:
    """Compare candidates with the default, by Welch's interval of the means over seeds.

    All intervals hold together with 95% confidence. Each has its share of the error (Bonferroni),
    so that trying more candidates doesn't make a lucky one a winner. The default's score is None if
    it failed.
    """
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(scores))
    candidates = []
    for number, score in sorted(scores.items(), key=lambda item: -item[1].value):
        difference, low, high = math.nan, -math.inf, math.inf
        if default is not None:
            difference = score.value - default.value
            low, high = difference_interval(score.by_seed, default.by_seed, confidence)
        verdict = "better" if low > 0 else "worse" if high < 0 else _NOT_DISTINGUISHABLE
        candidates.append(Candidate(number, score, difference, low, high, verdict))
    return Confirmation(default, tuple(candidates), tuple(seeds))


def difference_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return Welch's interval of a difference of means.

    It is infinite if either side has fewer than two values.

    Example:
        >>> difference_interval([5.0, 5.0], [3.0, 3.0])
        (2.0, 2.0)
    """
    if min(len(first), len(second)) < 2:
        return -math.inf, math.inf
    if np.ptp(first) == np.ptp(second) == 0:
        difference = float(np.mean(first) - np.mean(second))
        return difference, difference
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        # SciPy warns where one configuration's returns are all equal. Their variance is 0 then.
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        found = ttest_ind(first, second, equal_var=False).confidence_interval(confidence)
    return float(found.low), float(found.high)


def validate(best: FrozenTrial, programs: Programs, is_interrupted: IsInterrupted) -> Score | None:
    """Train a trial again over `settings.validate` seeds that played no part in any choice.

    Returns:
        None if it failed or was interrupted.
    """
    settings = programs.settings
    seeds = [settings.seed + VALIDATION_SEEDS + index for index in range(settings.validate)]
    fields = {best.number: programs.space.fields(best.params)}
    return scores_of(train_again(programs, fields, seeds, is_interrupted) or {}).get(best.number)


def evaluate_ensemble(
    study: optuna.Study, programs: Programs, is_interrupted: IsInterrupted
) -> Ensemble | None:
    """Train the `settings.ensemble` best trials again, and evaluate their policies together.

    Returns:
        None if fewer than two could be trained, or it was interrupted.
    """
    settings, space = programs.settings, programs.space
    best = best_trials(study, settings)[: settings.ensemble]
    fields = {trial.number: space.fields(trial.params) for trial in best}
    seeds = [settings.seed]
    again = train_again(programs, fields, seeds, is_interrupted, keeps_agents=True) or {}
    if len(again) < 2:
        return None
    states = tuple(each.agents[0] for (each,) in again.values())
    configs = [settings.config(**fields[number]) for number in again]
    env = configs[0].environment
    together = EnsemblePolicy(env, tuple(each.learner for each in configs))
    key = key_alone(settings.seed + VALIDATION_SEEDS)

    def score(learner: Any, state: Any) -> Score:
        evaluation = Evaluation(env, learner, NUM_EPISODES, max_steps=configs[0].eval_max_steps)
        returns, _ = jax.device_get(jax.jit(evaluation.returns)(state, key, evaluation.env_params))
        return Score.of(returns[None])

    alone = tuple(score(each.learner, state) for each, state in zip(configs, states, strict=True))
    combined = "mean action" if together.is_box else "majority vote"
    return Ensemble(tuple(again), combined, score(together, states), alone)


@dataclasses.dataclass(frozen=True)
class EnsemblePolicy(Learner[Any]):
    """Several policies as one, for an evaluation. Its state is the tuple of their states.

    Attributes:
        env: the environment.
        members: the learners, the best first.
    """

    env: Any
    members: tuple[Any, ...]

    @property
    def is_box(self) -> bool:
        """Whether actions are averaged, in place of a vote."""
        return isinstance(self.env.action_space(self.env.default_params), Box)

    def first_memory(self, num_envs: int) -> Any:
        return tuple(member.first_memory(num_envs) for member in self.members)

    def control(
        self, state: Any, memory: Any, key: jax.Array, obs: jax.Array, *, greedy: bool
    ) -> tuple[jax.Array, Any]:
        chosen = [
            member.control(state[i], memory[i], jax.random.fold_in(key, i), obs, greedy=greedy)
            for i, member in enumerate(self.members)
        ]
        each, memories = zip(*chosen, strict=True)
        actions = jnp.stack(each)
        if self.is_box:
            return jnp.mean(actions, axis=0), memories
        # The choice of most members, component by component.
        space = self.env.action_space(self.env.default_params)
        most = space.n if isinstance(space, Discrete) else max(space.nvec)
        count = len(self.members)
        # Better members' votes count slightly more, to break ties. All the extra together is less
        # than one vote.
        weights = 1 + (count - jnp.arange(count)) / (count * (count + 1))
        votes = jax.nn.one_hot(actions, int(most)) * weights.reshape(-1, *[1] * actions.ndim)
        return jnp.argmax(votes.sum(axis=0), axis=-1).astype(actions.dtype), memories


def train_again(
    programs: Programs,
    fields: Mapping[Any, Mapping[str, Any]],
    seeds: Sequence[int],
    is_interrupted: IsInterrupted = lambda: False,
    *,
    keeps_agents: bool = False,
) -> dict[Any, list[Training]] | None:
    """Train configurations over seeds, in the programs of the trials.

    The configurations are named by the numbers of their trials, and the default by None.

    Returns:
        the trainings of each configuration in the order of the seeds; None after an interrupt. A
        configuration of which one failed is left out, with a warning.
    """
    each = programs.settings.num_seeds
    groups = [tuple(seeds[first : first + each]) for first in range(0, len(seeds), each)]
    again = {
        number: [Training(values, group, number, keeps_agents) for group in groups]
        for number, values in fields.items()
    }
    waiting = [training for trainings in again.values() for training in trainings]
    take = functools.partial(take_first, waiting, programs.space)
    for happened, training in programs.train(take, is_interrupted):
        if happened == "failed":
            number = training.origin
            who = "the default" if number is None else f"trial {number}"
            _LOG.warning("%s failed on other seeds: %s", who, training.failure)
            again.pop(number, None)
    if not all(training.is_over for trainings in again.values() for training in trainings):
        return None
    return again


def scores_of(again: Mapping[Any, Sequence[Training]]) -> dict[Any, Score]:
    """Return the scores of configurations that were trained again."""
    return {
        number: Score.of(np.concatenate([each.returns for each in trainings]))
        for number, trainings in again.items()
    }
