"""The counter-based generator, bit for bit and by its statistics, and its counts of 64 bits."""

import contextlib
import functools
import itertools
import math
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from myriad import create_config, make_key, make_train
from myriad.engine.random import MIX2X32, PRNG_IMPLEMENTATIONS, Counter
from myriad.errors import InvalidArgumentError
from myriad.training.loop import exact_sum, whole
from tests.child_processes import lacks

GOLDEN, SECOND, MULTIPLIER_1, MULTIPLIER_2 = 0x9E3779B9, 0x85EBCA6B, 0x21F0AAAD, 0xD35A2D97
MASK = 0xFFFFFFFF


def reference_word(k0, k1, i):
    x = (k0 + i * GOLDEN) & MASK
    x = (x ^ x >> 16) * MULTIPLIER_1 & MASK
    x ^= (k1 + i * SECOND) & MASK
    x = (x ^ x >> 15) * MULTIPLIER_2 & MASK
    return x ^ x >> 15


def reference_fold(k0, k1, n):
    x = (k0 + n * GOLDEN) & MASK
    x = (x ^ x >> 16) * MULTIPLIER_1 & MASK
    x = (x ^ x >> 15) * MULTIPLIER_2 & MASK
    x ^= x >> 15
    return x, (k1 + max(x * SECOND & MASK, 1)) & MASK


def key_of(k0, k1):
    return jax.random.wrap_key_data(jnp.array([k0, k1], jnp.uint32), impl=MIX2X32)


def env_words(key, step, num_envs, num_words):
    """Return what environments draw in one step, uint32 `[num_envs, num_words]`."""
    step_key = jax.random.fold_in(jax.random.fold_in(key, 1), step)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(step_key, jnp.arange(num_envs, dtype=jnp.uint32))
    return jax.vmap(lambda key: jax.random.bits(key, (num_words,)))(keys)


ALL_ENVS = jax.jit(jax.vmap(env_words, (None, 0, None, None)), static_argnums=(2, 3))


@pytest.mark.slow
@example(k0=0, k1=1640531527, n=0)  # its first word mixes to itself, so the other one must change
@given(k0=st.integers(0, MASK), k1=st.integers(0, MASK), n=st.integers(0, MASK))
def test_words_and_folds_are_those_of_the_construction(k0, k1, n):
    got = np.asarray(jax.random.bits(key_of(k0, k1), (2, 3))).ravel()
    assert got.tolist() == [reference_word(k0, k1, i) for i in range(6)]
    folded = jax.random.key_data(jax.random.fold_in(key_of(k0, k1), n))
    assert tuple(folded.tolist()) == reference_fold(k0, k1, n)


@pytest.mark.slow
def test_a_batch_of_any_depth_draws_what_its_keys_draw_alone_and_narrow_words_are_high_bits():
    keys = jax.random.split(make_key(0), (3, 4))
    batched = jax.vmap(jax.vmap(lambda key: jax.random.bits(key, (2, 5))))(keys)
    assert batched.shape == (3, 4, 2, 5)
    for i, j in np.ndindex(3, 4):
        np.testing.assert_array_equal(batched[i, j], jax.random.bits(keys[i, j], (2, 5)))
    for dtype, shift in ((jnp.uint8, 24), (jnp.uint16, 16)):
        narrow = jax.random.bits(keys[0, 0], (2, 5), dtype)
        np.testing.assert_array_equal(narrow, batched[0, 0] >> shift)


@pytest.mark.parametrize("shape", [(), (0,), (9,), (2, 3)])
def test_children_of_a_split_are_folds_of_their_numbers(shape):
    parent = reference_fold(5, 7, 0x5BD1E995)
    children = np.asarray(jax.random.key_data(jax.random.split(key_of(5, 7), shape)))
    expected = [reference_fold(*parent, i) for i in range(math.prod(shape))]
    np.testing.assert_array_equal(children, np.array(expected, np.uint32).reshape(*shape, 2))


@pytest.mark.parametrize("prng", PRNG_IMPLEMENTATIONS)
@pytest.mark.parametrize("seed", [2**32 + 5, -(2**63)])
def test_all_64_bits_of_a_seed_count_and_jax_x64_changes_none(prng, seed):
    ours = np.asarray(jax.random.key_data(make_key(seed, prng)))
    with jax.enable_x64(True):  # noqa: FBT003 (its own signature)
        wide = np.asarray(
            jax.random.key_data(jax.random.key(seed, impl=PRNG_IMPLEMENTATIONS[prng]))
        )
    np.testing.assert_array_equal(ours, wide)
    others = [make_key(seed ^ (1 << bit), prng) for bit in (0, 31, 32, 62)]
    assert all((np.asarray(jax.random.key_data(other)) != ours).any() for other in others)


def test_a_traced_seed_makes_the_key_of_its_value():
    for seed in (7, -7):
        traced = jax.random.key_data(jax.jit(make_key)(jnp.int32(seed)))
        np.testing.assert_array_equal(traced, jax.random.key_data(make_key(seed)))


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 2, 102], ids=["birthdays", "rank_32x32", "sts_serial"])
def test_dieharder_does_not_tell_the_stream_from_chance(number):
    if shutil.which("dieharder") is None:
        lacks("dieharder is missing: apt install dieharder")
    command = ["dieharder", "-g", "200", "-d", str(number)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with contextlib.suppress(BrokenPipeError):  # It has read what it needs.
            for first in itertools.count(step=64):
                steps = np.arange(first, first + 64, dtype=np.uint32)
                process.stdin.write(np.asarray(ALL_ENVS(make_key(7), steps, 4096, 5)).tobytes())
        report = process.stdout.read().decode()
    assert "PASSED" in report or "WEAK" in report, report
    assert "FAILED" not in report, report


def train(key):
    return make_train(create_config("cartpole-control", "ppo", 8))(key)


NO_SEED, NO_KEY = "^seed must be an integer .* but got ", "^key must be one typed key, .*, but got "


@pytest.mark.parametrize(
    ("function", "argument", "says"),
    [
        *((make_key, seed, NO_SEED) for seed in ("1", 1.5, None, True, np.arange(2), 2**63)),
        *((train, key, NO_KEY) for key in (0, np.float32, jnp.zeros(2, jnp.uint32))),
        (functools.partial(make_key, 0), "threefry", "did you mean 'threefry2x32'"),
    ],
)
def test_what_is_no_seed_key_or_generator_is_refused_in_a_sentence(function, argument, says):
    with pytest.raises(InvalidArgumentError, match=says):
        function(argument)


# --- counts of 64 bits ----------------------------------------------------------------------------


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
