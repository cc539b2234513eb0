"""sin_cos against NumPy's double precision."""

import jax
import numpy as np
import pytest

from myriad.envs.trigonometry import sin_cos


@pytest.mark.parametrize(("reach", "error"), [(0.25, 6e-8), (np.pi, 2e-7), (10_000.0, 2e-7)])
def test_the_error_stays_near_float32s_own(reach, error):
    angle = np.linspace(-reach, reach, 200_001, dtype=np.float32)
    sin, cos = jax.jit(sin_cos)(angle)
    exact = angle.astype(np.float64)
    assert np.abs(sin - np.sin(exact)).max() <= error
    assert np.abs(cos - np.cos(exact)).max() <= error


@pytest.mark.slow
def test_small_angles_keep_their_relative_precision():
    angle = np.float32(10.0) ** -np.arange(1, 20, dtype=np.float32)
    sin, _ = jax.jit(sin_cos)(angle)
    np.testing.assert_allclose(sin, np.sin(angle.astype(np.float64)), rtol=2e-7)


@pytest.mark.slow
def test_nan_and_infinity_stay_visible():
    sin, cos = sin_cos(np.array([np.nan, np.inf], np.float32))
    assert np.isnan(sin).all()
    assert np.isnan(cos).all()
