"""Running moments against NumPy's over everything seen, in any split."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myriad.agents.networks.mlp import MLP
from myriad.agents.normalization import (
    RunningMoments,
    discounted_return,
    preserve_outputs,
)


@pytest.mark.slow
@settings(max_examples=8)  # each shape compiles anew
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(-100, 100), st.floats(0.01, 100)
)
def test_moments_are_those_of_everything_in_whatever_batches_it_came(sizes, centre, spread):
    values = (
        np.random.default_rng(sum(sizes)).normal(centre, spread, (sum(sizes), 3)).astype(np.float32)
    )
    moments = RunningMoments.create((3,))
    for batch in np.split(values, np.cumsum(sizes)[:-1]):
        moments = moments.update(jnp.asarray(batch))
    assert float(moments.count) == len(values)
    scale = spread + abs(centre) * 1e-3
    np.testing.assert_allclose(moments.mean, values.mean(0, dtype=np.float64), atol=1e-4 * scale)
    np.testing.assert_allclose(
        moments.variance, values.var(0, dtype=np.float64), rtol=1e-3, atol=1e-5 * scale**2
    )


def test_a_batch_may_have_any_leading_axes():
    values = jax.random.normal(jax.random.key(0), (4, 5, 2))
    whole, flat = (RunningMoments.create((2,)).update(v) for v in (values, values.reshape(20, 2)))
    np.testing.assert_array_equal(whole.mean, flat.mean)
    np.testing.assert_array_equal(whole.variance, flat.variance)


def test_nothing_seen_changes_nothing():
    values = jnp.array([[0.5, -3.0]])
    moments = RunningMoments.create((2,))
    np.testing.assert_allclose(moments.normalize(values), values)
    np.testing.assert_allclose(moments.scale(values), values)


def test_scaling_keeps_signs_and_both_are_clipped():
    moments = RunningMoments.create(()).update(jnp.array([9.0, 11.0]))
    np.testing.assert_allclose(moments.scale(jnp.array([-2.0, 3.0, 50.0])), [-2, 3, 10], atol=1e-5)
    np.testing.assert_allclose(moments.normalize(jnp.array([9.0, -50.0])), [-1, -10], atol=1e-5)


@pytest.mark.slow
def test_outputs_are_preserved_as_the_moments_change():
    network = MLP((8, 8), 2)
    layers = network.init(jax.random.key(0), jnp.zeros((1, 3)))["params"]
    rng = np.random.default_rng(0)
    old = RunningMoments.create((3,)).update(jnp.asarray(rng.normal(5, [1, 20, 0.1], (500, 3))))
    new = old.update(jnp.asarray(rng.normal(5.02, [1.5, 22, 0.1], (200, 3))))
    obs = jnp.asarray(rng.normal(5, [1, 20, 0.1], (50, 3)), jnp.float32)
    before = network.apply({"params": layers}, old.normalize(obs))
    changed = preserve_outputs(layers, old, new)
    after = network.apply({"params": changed}, new.normalize(obs))
    np.testing.assert_allclose(after, before, atol=1e-4)
    assert not np.allclose(network.apply({"params": layers}, new.normalize(obs)), before, atol=1e-2)


@pytest.mark.slow
def test_a_coordinate_that_never_varied_changes_its_weights_by_two_at_most():
    layers = MLP((8,), 2).init(jax.random.key(0), jnp.zeros((1, 1)))["params"]
    old = RunningMoments.create((1,)).update(jnp.zeros((100, 1)))
    new = old.update(jnp.asarray(np.random.default_rng(0).normal(3, 50, (100, 1))))
    changed = preserve_outputs(layers, old, new)["Dense_0"]
    np.testing.assert_allclose(changed["kernel"], 2 * layers["Dense_0"]["kernel"])
    np.testing.assert_allclose(changed["bias"], layers["Dense_0"]["kernel"][0])


def test_what_never_varied_stays_finite():
    moments = RunningMoments.create(()).update(jnp.full(100, 0.25))
    assert float(moments.normalize(jnp.float32(0.25))) == pytest.approx(0, abs=1e-3)
    assert np.isfinite(moments.normalize(jnp.float32(1e6)))


def test_moments_stay_right_over_a_hundred_million_elements():
    batch = jnp.tile(jnp.array([99.0, 101.0], jnp.float32), 5000)
    moments = jax.lax.fori_loop(
        0, 10_000, lambda _, moments: moments.update(batch), RunningMoments.create(())
    )
    assert float(moments.mean) == pytest.approx(100, abs=1e-3)
    assert float(moments.variance) == pytest.approx(1, abs=1e-3)


def test_the_discounted_return_begins_again_after_an_episode():
    reward, done = np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, False])
    carried, seen = jnp.zeros(1), []
    for r, d in zip(reward, done, strict=True):
        current, carried = discounted_return(carried, jnp.full(1, r), jnp.full(1, d), 0.5)
        seen.append(float(current[0]))
    assert seen == [1, 2.5, 3, 5.5]
