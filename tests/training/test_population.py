"""A training in a slot of a population ends as the same training alone, whatever is beside it."""

import itertools
from typing import Any

import numpy as np
import pytest

from myriad.engine.random import make_key
from myriad.errors import InvalidArgumentError
from myriad.training.compiled import CompiledTraining
from myriad.training.config import make_config
from myriad.training.population import Population
from myriad.xla import count_compilations
from tests.bits import assert_close

_SIZES: dict[str, Any] = {"eval_rollouts": 4, "eval_max_steps": 40, "agent.hidden_sizes": [8]}
_SIZES |= {"agent.rollout_steps": 16, "agent.num_minibatches": 4}
# Two trainings that differ in all that is derived from a hyperparameter before the device sees it.
_OPTIONS = {
    "num_epochs": [3, 2],
    "learning_rate": [1e-3, 2e-4],
    "clip_epsilon": [0.13, "linear(0.27, 0)"],
    "gamma": [0.97, 0.993],
    "gae_lambda": [0.91, 0.973],
    "entropy_coef": [0.003, 0.03],
    "value_coef": [0.37, 0.61],
    "max_grad_norm": [0.31, float("inf")],
}


def _config(**options):
    chosen = {f"agent.{name}": value for name, value in options.items()}
    return make_config("cartpole-control", "ppo", 8, 160, **_SIZES | chosen)


def _alone(config, seed, chunks):
    training = CompiledTraining(config)
    training.compile()
    state = training.first_state([seed])
    report = None
    for i, num_updates in enumerate(chunks):
        state, report = training.programs["run"](state, np.int32(num_updates), np.bool_(i == 0))
    return state.agent.params, report


@pytest.mark.slow
@pytest.mark.parametrize(("mapping", "num_devices"), [("map", 2), ("vmap", 1)])
def test_members_learn_what_the_training_alone_does_beside_idle_and_refilled_ones(
    mapping, num_devices
):
    population = Population(_config(), 3, list(_OPTIONS), mapping=mapping, num_devices=num_devices)
    population.compile()
    with count_compilations() as compilations:
        first = {name: [a, b, a] for name, (a, b) in _OPTIONS.items()}
        state = population.first_state([5, -7, 2**40 + 1], first)
        state, _ = population.run(state, [2, 5, 1], [True, True, True])
        state = population.refill(state, [2], [11], {n: [b] for n, (_, b) in _OPTIONS.items()})
        state, report = population.run(state, [3, 0, 4], [False, False, True])
        returns, _ = population.evaluate(state, [True, False, True])
    assert not list(compilations.names)
    assert population.updates_done(state).tolist() == [5, 5, 4]
    for slot, seed, index, chunks in ((0, 5, 0, (2, 3)), (2, 11, 1, (4,))):
        options = {name: values[index] for name, values in _OPTIONS.items()}
        params, last = _alone(_config(**options), seed, chunks)
        found = population.member(state, slot).agent.params
        assert_close(found, params, rtol=1e-3, atol=1e-4)
        found = report.metric_sums["loss"][slot]
        np.testing.assert_allclose(found, last.metric_sums["loss"], rtol=1e-3)
    assert not returns[1].any()


@pytest.mark.slow
def test_held_out_keys_give_each_policy_the_same_episodes():
    population = Population(_config(), 2, num_devices=1)
    population.compile()
    state = population.first_state([3, 3])
    state, _ = population.run(state, [1, 2], [True, True])
    own, _ = population.evaluate(state)
    state = population.refill(state, [0, 1], [3, 3])
    key = make_key(9)
    returns, _ = population.evaluate(state, keys=key)
    again, _ = population.evaluate(state, [False, True], keys=key)
    np.testing.assert_array_equal(returns[0], returns[1])
    np.testing.assert_array_equal(returns[1], again[1])
    assert own.shape == returns.shape == (2, 4)
    population.run(state, [1, 0], [True, True])
    for use in (
        lambda: population.run(state, [1, 0], [True, True]),
        lambda: population.refill(state, [0], [3]),
        lambda: population.evaluate(state),
        lambda: population.member(state, 0),
    ):
        with pytest.raises(InvalidArgumentError, match="state was used after it was passed to"):
            use()


def _population(*names):
    return Population(_config(), 2, list(names))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: _population("num_minibatches"), "num_minibatches of ppo can't differ by slot"),
        (lambda: _population("lerning_rate"), "lerning_rate.*learning_rate"),
        (lambda: Population(_config(), 0), "num_slots must be an integer from 1"),
        (lambda: _population().first_state([1]), "seeds must be one for each of 2 slots"),
        (lambda: _population().first_state([0.5, 1.7]), "seed must be an integer .*, but got 0.5"),
        (
            lambda: _population("gamma").first_state([1, 2], {}),
            "options must give values of gamma, but got {}",
        ),
        (
            lambda: _population("gamma").first_state([1, 2], {"gamma": [0.5, -1]}),
            "gamma must be a number from 0 to 1",
        ),
        (
            lambda: _population("gamma").first_state([1, 2], {"gamma": [0.5]}),
            "gamma must have 2 values",
        ),
        *[
            (
                lambda slots=slots: _population().refill((), slots, [1, 2]),
                "slots must be ",
            )
            for slots in ([0, 0], [0.7], [2], 0)
        ],
        (lambda: _population().run((), [2**40, 0], [True, True]), "num_updates must be "),
        (lambda: _population().evaluate((), keys=3), "keys must be one or 2, .*, but got 3"),
    ],
    ids=itertools.count(),
)
def test_what_can_not_be_is_refused_in_a_sentence(call, says):
    with pytest.raises(InvalidArgumentError, match=says):
        call()
