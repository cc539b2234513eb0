"""A hyperparameter that is an argument has the bits of one that is a constant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from myriad.agents.minibatches import draw_permutations, repeat_epochs
from myriad.agents.traced import TracedFloat, float32, number, words_of
from myriad.errors import InvalidArgumentError
from myriad.random import after_words, make_key, seed_key, words_of_seed

_UNIT = st.floats(1e-6, 1.0)


@jax.jit
def _derived(words):
    a, b = (TracedFloat.of_words(each) for each in words)
    values = 1 - a, 1 + a, a * b, a - b, a / 3, 2 / a, a**3, -a, b + 0.1
    return jnp.stack([number(value) for value in values])


@given(_UNIT, _UNIT)
def test_it_computes_in_float64_as_python_does(a, b):
    expected = [1 - a, 1 + a, a * b, a - b, a / 3, 2 / a, a**3, -a, b + 0.1]
    found = np.asarray(_derived(words_of([a, b])))
    np.testing.assert_array_equal(found, np.array(expected, np.float64).astype(np.float32))


def test_it_is_float32_beside_arrays():
    @jax.jit
    def beside(words, array):
        value = TracedFloat.of_words(words)
        return [value * array, array * value, np.ones(2, np.float32) - value, float32(value)]

    found = beside(words_of([0.3])[0], np.arange(2, dtype=np.float32))
    assert {each.dtype for each in found} == {np.dtype("float32")}
    np.testing.assert_array_equal(found[0], np.arange(2, dtype=np.float32) * np.float32(0.3))


def test_it_switches_nothing_on_or_off():
    with pytest.raises(InvalidArgumentError, match="can't differ by slot"):
        bool(TracedFloat.of_words(jnp.zeros(2, jnp.uint32)))


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, -1, -(2**63), 2**63 - 1])
def test_the_key_of_a_seeds_words_is_the_key_of_the_seed(seed):
    low, high = (np.uint32(word) for word in words_of_seed(seed))
    found = jax.random.key_data(jax.jit(seed_key)(low, high))
    np.testing.assert_array_equal(found, jax.random.key_data(make_key(seed)))


@pytest.mark.slow
@given(st.integers(0, 60))
def test_draws_go_on_after_the_first_words(first):
    key = make_key(4)
    whole = jax.random.bits(key, (64,))
    rest = jax.random.bits(after_words(key, jnp.uint32(first)), (4,))
    np.testing.assert_array_equal(rest, whole[first : first + 4])


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [12, 2**20 + 4])
def test_epochs_of_a_traced_number_visit_the_permutations_of_a_known_one(num_rows):
    def visit(seen, order):
        return seen * np.uint32(31) + order.astype(jnp.uint32), jnp.float32(1)

    @jax.jit
    def traced(num_epochs):
        return repeat_epochs(
            visit,
            jnp.zeros(num_rows // 4, jnp.uint32),
            make_key(2),
            num_epochs,
            num_rows,
            lambda permutation: permutation.reshape(4, -1),
        )

    seen, mean = traced(np.int32(3))
    expected = np.zeros(num_rows // 4, np.uint32)
    for order in np.asarray(draw_permutations(make_key(2), 3, num_rows)).reshape(12, -1):
        expected = expected * np.uint32(31) + order.astype(np.uint32)
    np.testing.assert_array_equal(seen, expected)
    assert float(mean) == pytest.approx(1)
