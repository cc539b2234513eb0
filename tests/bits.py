"""Hold two trees of arrays to each other."""

import jax
import numpy as np

from myriad.random import numbers_of


def plain(tree):
    """Return the leaves in NumPy, keys and counters as the words that they hold."""
    return jax.tree.map(lambda leaf: np.asarray(numbers_of(leaf)), tree)


def assert_same_bits(a, b):
    """Hold two trees to the same numbers."""
    jax.tree.map(np.testing.assert_array_equal, plain(a), plain(b))


def assert_close(a, b, **tolerance):
    """Hold two trees to near numbers, as NumPy's `assert_allclose` does."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), plain(a), plain(b))
