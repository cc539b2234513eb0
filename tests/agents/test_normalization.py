"""Running moments against NumPy's over everything seen, in any split."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myriad.agents.normalization import RunningMoments, discounted_return


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
        # A batch may have any leading axes.
        moments = moments.update(jnp.asarray(batch).reshape(1, -1, 1, 3))
    assert float(moments.count) == len(values)
    scale = spread + abs(centre) * 1e-3
    np.testing.assert_allclose(moments.mean, values.mean(0, dtype=np.float64), atol=1e-4 * scale)
    np.testing.assert_allclose(
        moments.variance, values.var(0, dtype=np.float64), rtol=1e-3, atol=1e-5 * scale**2
    )


@pytest.mark.parametrize(
    ("seen", "scaled", "normalized"),
    [
        ([], [-2, 3, 10], [-2, 3, 10]),  # nothing was seen, and both are clipped
        ([9.0, 11.0], [-2, 3, 10], [-10, -7, 10]),
        ([0.25] * 100, [-10, 10, 10], [-10, 10, 10]),  # it never varied
    ],
)
def test_scaling_keeps_signs_and_what_never_varied_stays_finite(seen, scaled, normalized):
    moments = RunningMoments.create(())
    if seen:
        moments = moments.update(jnp.array(seen))
    values = jnp.array([-2.0, 3.0, 50.0])
    np.testing.assert_allclose(moments.scale(values), scaled, atol=1e-4)
    np.testing.assert_allclose(moments.normalize(values), normalized, atol=1e-4)


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
