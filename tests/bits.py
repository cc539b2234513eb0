"""Hold two trees of arrays to each other."""

import jax
import numpy as np

from myriad.engine.devices import numbers_of


def plain(tree):
    """Return the leaves in NumPy, keys and counters as the words that they hold."""
    return jax.tree.map(lambda leaf: np.asarray(numbers_of(leaf)), tree)


def assert_same_bits(a, b):
    """Hold two trees to the same numbers."""
    jax.tree.map(np.testing.assert_array_equal, plain(a), plain(b))


def assert_close(a, b, **tolerance):
    """Hold two trees to near numbers, as NumPy's `assert_allclose` does."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), plain(a), plain(b))


def assert_alike(a, b, tolerance=1e-6):
    """Hold floats to near numbers, and everything else to the same bits."""

    def compare(one, other):
        if np.issubdtype(one.dtype, np.floating):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(one, other)

    jax.tree.map(compare, plain(a), plain(b))
