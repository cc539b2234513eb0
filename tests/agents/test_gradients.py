"""Gradients in parts, and their statistics, for every learner."""

import functools

import jax
import jax.numpy as jnp
import pytest

from myriad import make_env
from myriad.agents import make_learner, minibatches
from myriad.agents.gradients import GRADIENT_METRICS
from myriad.agents.minibatches import mean_over_blocks
from tests.bits import assert_close
from tests.learners import DISTINCT, SMALL, env_of, trained


def after(agent, num_updates, **options):
    learner = make_learner(agent, make_env(env_of(agent)), **SMALL[agent] | options)
    return trained(learner, 8, num_updates)[0]


@pytest.mark.slow
@pytest.mark.parametrize("agent", DISTINCT)
def test_parts_of_a_minibatch_have_its_gradient_and_statistics_change_nothing(agent):
    whole = after(agent, 4)
    parts = after(agent, 4, gradient_accumulation=4, gradient_statistics=True)
    assert_close(parts.agent.params, whole.agent.params, rtol=1e-7, atol=1e-6)
    assert not whole.metric_sums.keys() & set(GRADIENT_METRICS)
    sums = {name: float(parts.metric_sums[name]) for name in GRADIENT_METRICS}
    assert all(total > 0 for total in sums.values())
    assert sums["parameter_norm"] > sums["update_norm"]


def test_parts_take_a_sixteenth_of_the_memory(monkeypatch):
    monkeypatch.setattr(minibatches, "BLOCK_ROWS", 1 << 30)  # blocks for the cache save it, too
    weights = jnp.ones((64, 256))

    def loss(weights, rows):
        return jnp.mean(jnp.tanh(rows @ weights) ** 2)

    def temporaries(parts):
        gradient = functools.partial(jax.grad(loss), weights)
        program = jax.jit(lambda rows: mean_over_blocks(gradient, rows, parts))
        compiled = program.lower(jnp.ones((16_384, 64))).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporaries(1) >= 10 * temporaries(16)
