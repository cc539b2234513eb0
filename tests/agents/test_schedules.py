"""Schedules: a training's program looks up what you wrote, and a constant is just that number."""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from myriad import create_config, make_key
from myriad.agents.agent import row_of
from myriad.engine.random import Counter
from myriad.training.loop import LearningLoop, values_at
from tests.compilations import count_compilations
from tests.learners import SMALL

LENGTH = 500


def half_cosine(share):
    return 0.3 + 0.7 * np.cos(np.pi * share / 2) ** 2


@pytest.mark.parametrize(
    ("schedule", "expected", "tolerance"),
    [
        ("linear(0.2, 0)", lambda share: 0.2 * (1 - share), 1e-7),
        ("linear(-20, 1e3)", lambda share: -20 + 1_020 * share, 1e-4),
        # Between two of the 33 values it is a line.
        ("cosine(1, 0.3)", half_cosine, 1e-3),
        (
            " points(0: 0, 0.25: 1, 0.5: 0.2)",
            lambda share: np.interp(share, [0, 0.25, 0.5], [0, 1, 0.2]),
            1e-6,
        ),
    ],
)
def test_a_schedule_goes_as_it_says_and_ends_with_the_training(schedule, expected, tolerance):
    updates = np.arange(LENGTH + 20)
    constants = [0.1, -3e-30, 0.0, np.inf, 1e38, 3]
    rows = np.stack([row_of(schedule, LENGTH), *map(row_of, constants)])
    found = jax.vmap(lambda update: values_at(rows, Counter(update, np.uint32(0))))(
        updates.astype(np.uint32)
    )
    share = np.minimum(updates / LENGTH, 1)
    np.testing.assert_allclose(found[:, 0], expected(share), rtol=1e-6, atol=tolerance)
    np.testing.assert_array_equal(found[:, 1:], np.float32([constants] * len(updates)))


def loop_of(learning_rate, **options):
    fields = {f"agent.{name}": value for name, value in (SMALL["ppo"] | options).items()}
    fields |= {"agent.learning_rate": learning_rate}
    config = create_config("cartpole", "ppo", 8, 8 * 8, **fields)
    learner = config.learner.scheduled(config.num_updates)
    return LearningLoop(config.environment, learner, 8, schedules=config.schedules)


@pytest.mark.slow
def test_another_schedule_compiles_nothing_and_a_falling_rate_is_that_of_anneal_updates():
    def moved(loop, init, run):
        first = init(make_key(0), loop.options)
        before = np.asarray(ravel_pytree(first.agent.params)[0])
        last, _ = run(first, np.int32(6), np.bool_(1))
        return np.asarray(ravel_pytree(last.agent.params)[0]) - before

    constant = loop_of(1e-3, anneal_updates=None)
    init, run = constant.jitted()
    steady = moved(constant, init, run)
    with count_compilations() as compilations:
        rates = ("linear(1e-3, 0)", "points(0: 0, 0.5: 1e-4)", "cosine(1e-3, 1e-4)")
        falls, rises, _ = [moved(loop_of(rate), init, run) for rate in rates]
    assert not {"jit(run)", "jit(init)"} & {*compilations}
    size = np.linalg.norm
    assert size(rises) < size(falls) < size(steady)
    annealed = loop_of(1e-3)
    np.testing.assert_allclose(falls, moved(annealed, *annealed.jitted()), rtol=1e-3, atol=1e-6)


def test_a_rate_with_a_schedule_is_not_annealed_besides():
    config = create_config("cartpole", "ppo", **{"agent.learning_rate": "cosine(1e-3, 0)"})
    assert config.learner.anneal_updates is None
    assert config.changed(**{"agent.learning_rate": 1e-3}).learner.anneal_updates == "training"
