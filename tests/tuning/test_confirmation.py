"""Whether a winner is more than luck, trained again on fresh seeds, and the best together."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import stats

from myriad import make_env
from myriad.agents import Learner
from myriad.tuning.confirmation import EnsemblePolicy, confirm, difference_interval
from myriad.tuning.objective import Score


def score(*by_seed):
    return Score.of(np.array(by_seed)[:, None] + np.array([-1.0, 1.0]))


def test_the_standard_error_is_that_of_seeds_or_of_the_episodes_of_one():
    returns = np.random.default_rng(0).normal(10, 1, (4, 50))
    found = Score.of(returns)
    assert found.value == pytest.approx(returns.mean())
    assert found.standard_error == pytest.approx(stats.sem(returns.mean(axis=1)))
    expected = stats.t.interval(0.95, 3, found.value, found.standard_error)
    assert found.interval() == pytest.approx(expected)
    assert Score.of(returns[:1]).standard_error == pytest.approx(stats.sem(returns[0]))
    assert Score.of(np.full((2, 3), 500.0)).interval() == (500.0, 500.0)


def test_the_interval_of_a_difference_is_welchs():
    assert difference_interval([1.0], [5.0]) == (-math.inf, math.inf)
    # One that always reaches the most, such as CartPole's 500, leaves the interval of the other.
    varied = [480.0, 490.0, 500.0, 470.0, 495.0]
    low, high = stats.t.interval(0.95, 4, np.mean(varied), stats.sem(varied))
    assert difference_interval([500.0] * 5, varied) == pytest.approx((500 - high, 500 - low))


def test_only_a_candidate_far_above_the_default_wins():
    default = score(10.0, 12.0, 11.0)
    near = confirm(default, {3: score(11.0, 13.0, 10.0)}, [1, 2, 3])
    assert near.winner is None
    assert near.verdict.startswith("trial 3 is not distinguishable from the default")
    far = confirm(default, {1: score(0.0, 1.0, 2.0), 2: score(90.0, 91.0, 92.0)}, [1, 2, 3])
    assert far.winner is far.candidates[0]
    assert [each.number for each in far.candidates] == [2, 1]
    assert far.candidates[1].verdict == "worse"
    assert far.verdict.startswith("trial 2 is better than the default by 80")


def test_more_candidates_make_no_lucky_one_a_winner():
    # Nothing differs, so that any winner is luck. Each error would be 5% if candidates had a whole
    # interval each.
    draw = np.random.default_rng(7)
    wins = 0
    for _ in range(400):
        default, *others = (score(*draw.normal(0, 1, 5)) for _ in range(6))
        found = confirm(default, dict(enumerate(others)), range(5))
        wins += found.winner is not None
    assert wins / 400 < 0.05


@dataclasses.dataclass(frozen=True)
class Fixed(Learner):
    """A policy whose actions are its state."""

    def act(self, state, key, obs, *, greedy):
        return state


def together(env, *actions):
    policy = EnsemblePolicy(make_env(env), (Fixed(),) * len(actions))
    states = tuple(map(np.asarray, actions))
    memory = policy.first_memory(1)
    action, _ = policy.control(states, memory, jax.random.key(0), None, greedy=True)
    return np.asarray(action)


def test_an_ensemble_takes_the_mean_in_a_box_and_elsewhere_a_vote_in_doubt_that_of_the_best():
    mean = together("pendulum", np.array([[1.0]]), np.array([[2.0]]))
    assert mean.tolist() == [[1.5]]
    votes = together("cartpole-control", [0, 1, 1], [1, 1, 0], [1, 0, 0])
    assert votes.tolist() == [1, 1, 0]
    assert together("cartpole-control", [1, 0], [0, 1]).tolist() == [1, 0]
    several = together("bucket-brigade", [[3, 1, 0]], [[3, 0, 1]], [[7, 0, 1]])
    assert several.tolist() == [[3, 0, 1]]
