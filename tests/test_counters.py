"""Counts of 64 bits on the device are Python's integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myriad.engine.random import Counter, make_key
from myriad.training.loop import exact_sum, whole

WORD = 2**32
# Most interesting values are near a multiple of a word.
COUNTS = st.integers(0, 2**64 - 1) | st.builds(
    lambda words, offset: words * WORD + offset, st.integers(1, 9), st.integers(-9, 9)
)


@pytest.mark.slow
@settings(max_examples=30)
@given(count=COUNTS, value=COUNTS, period=st.integers(1, 2**31 - 1), most=st.integers(0, 2**31 - 1))
def test_what_is_asked_of_a_count_is_what_python_answers(count, value, period, most):
    counter = Counter.of(count)
    steps = np.array([0, 1, most, WORD - 1], np.uint32)
    sums = counter + jnp.asarray(steps)
    high, low = (np.asarray(each, object) for each in (sums.high, sums.low))
    assert (high * WORD + low).tolist() == [(count + int(each)) % 2**64 for each in steps]
    assert bool(counter.reaches(value)) == (count >= value)
    assert bool(Counter.of(count // period * period).is_multiple_of(period))
    assert bool(counter.is_multiple_of(period)) == (count % period == 0)
    assert int(counter.clipped(most)) == min(count, most)
    assert float(counter.as_float()) == pytest.approx(count, rel=1e-6)


def test_counts_a_word_apart_and_other_purposes_have_keys_of_their_own():
    keys = [Counter.of(n).key(make_key(0), p) for n in (0, 1, WORD, 256 * WORD) for p in (0, 1)]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == len(keys)


@pytest.mark.slow
def test_a_sum_of_many_counts_is_exact_beyond_32_bits():
    values = np.random.default_rng(0).integers(0, WORD, 100_000, dtype=np.uint32)
    assert whole(exact_sum(jnp.asarray(values))) == int(values.sum(dtype=np.uint64)) > WORD
