"""The counter-based random numbers of every rollout, an implementation for `jax.random`.

A step of a cheap environment costs about a nanosecond, and with JAX's default threefry more than 20
times as much. `mix2x32` draws word `i` of a key by hashing a counter with integer multiplications,
shifts and exclusive ors, which XLA fuses into the step. Environments and agents stay plain
`jax.random` code. Only the key that they get differs.

Construction. A key is two 32-bit words `(k0, k1)`. Word `i` is a Weyl sequence in both words,
hashed:

    x = k0 + i * 0x9E3779B9                       # 2**32 / golden ratio
    x = (x ^ x >> 16) * 0x21F0AAAD
    x =  x ^ (k1 + i * 0x85EBCA6B)                # the second word enters between the products
    x = (x ^ x >> 15) * 0xD35A2D97
    x =  x ^ x >> 15

The structure is SplitMix's (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
generators"): a Weyl sequence whose seed and increment belong to the stream, then a bit mixer. The
mixer's shifts and multipliers are those that Wellons found by a search for the least avalanche bias
("Prospecting for hash functions", 2018). Folding in `n` replaces `k0` by the mixer's image of `k0 +
n * 0x9E3779B9`, which is a bijection in `k0` and in `n`. It also adds a multiple of that to `k1`,
so that 64 bits of state survive every fold. If the multiple is 0, it adds 1, so that no fold
returns its own key. Statistical tests are in `tests/test_random.py`.

It is not a cipher. If an adversary sees the numbers, use `prng="threefry2x32"`.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.ranges import SEEDS, Seed

_GOLDEN = np.uint32(0x9E3779B9)
_SECOND = np.uint32(0x85EBCA6B)
_MULTIPLIER_1 = np.uint32(0x21F0AAAD)
_MULTIPLIER_2 = np.uint32(0xD35A2D97)
# Folded in before a split, since its children must differ from those of fold_in.
SPLIT = np.uint32(0x5BD1E995)
# The most children of a split that are computed one by one, so that XLA sees scalars.
_MOST_SCALARS = 8


def _mix(x: jax.Array) -> jax.Array:
    """Hash each 32-bit word by a bijection with little avalanche bias."""
    x = (x ^ (x >> 16)) * _MULTIPLIER_1
    x = (x ^ (x >> 15)) * _MULTIPLIER_2
    return x ^ (x >> 15)


def draw_word(first: jax.Array, second: jax.Array, index: jax.Array | np.uint32) -> jax.Array:
    """Return word `index` of a key of two words. All are uint32, of one shape."""
    x = first + index * _GOLDEN
    x = (x ^ (x >> 16)) * _MULTIPLIER_1
    x = x ^ (second + index * _SECOND)
    x = (x ^ (x >> 15)) * _MULTIPLIER_2
    return x ^ (x >> 15)


def fold_words(
    first: jax.Array, second: jax.Array, value: jax.Array | np.uint32
) -> tuple[jax.Array, jax.Array]:
    """Fold a value into a key of two words, all uint32, and return the new key's words."""
    first = _mix(first + value * _GOLDEN)
    return first, second + jnp.maximum(first * _SECOND, np.uint32(1))


def _words(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return the first words of `key`, `[2]`, as uint32 of `shape`."""

    @jax.custom_batching.custom_vmap
    def words(first: jax.Array, second: jax.Array) -> jax.Array:
        # As many axes each, since JAX may be told to add none.
        index = _counters(shape).reshape(shape + (1,) * first.ndim)
        first, second = (x.reshape((1,) * len(shape) + x.shape) for x in (first, second))
        return draw_word(first, second, index)

    @words.def_vmap
    def envs_last(
        axis_size: int, in_batched: list[bool], first: jax.Array, second: jax.Array
    ) -> Any:
        # Environments stay the fastest axis in memory for draws of any shape, so that a step
        # remains one vector loop over environments.
        return jnp.moveaxis(words(first, second), len(shape), 0), True

    return words(key[0], key[1])


def _fold(key: jax.Array, value: jax.Array) -> jax.Array:
    """Return a key for `key`, `[2]`, and each of `value`, `[*S]`: uint32 `[*S, 2]`."""
    words = fold_words(key[0], key[1], jnp.asarray(value).astype(jnp.uint32))
    # XLA sees through a slice of a concatenation, but not through the transposition that JAX makes
    # of a stack over environments.
    return jnp.concatenate([word[..., None] for word in words], axis=-1)


def _seed(seed: jax.Array) -> jax.Array:
    seed = jnp.asarray(seed)
    # For a seed of fewer bits, the high word is the sign extension, as in 64 bits.
    wide = seed.dtype.itemsize > 4
    high = seed >> (32 if wide else seed.dtype.itemsize * 8 - 1)
    if not wide and jnp.issubdtype(seed.dtype, jnp.unsignedinteger):
        high = jnp.zeros_like(seed)
    return jnp.stack(_seed_words(seed.astype(jnp.uint32), high.astype(jnp.uint32)))


def _seed_words(low: Any, high: Any) -> tuple[Any, Any]:
    """Return the words of a seed's key, from the seed's two words."""
    # Mix twice, the second time crosswise, so that two seeds share a word only by chance.
    first = _mix((low + _GOLDEN) ^ _mix(high))
    return first, _mix(high ^ _mix(first + _SECOND))


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    parent = _fold(key, jnp.uint32(SPLIT))
    num = math.prod(shape)
    if 0 < num <= _MOST_SCALARS:
        children = [_fold(parent, jnp.uint32(i)) for i in range(num)]
        return jnp.concatenate([child[None] for child in children]).reshape(*shape, 2)
    return _fold(parent, _counters(shape))


def _counters(shape: tuple[int, ...]) -> jax.Array:
    """Number the elements of `shape` in row-major order by iotas, so that nothing is stored."""
    index = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        # The counter has 32 bits, so words would repeat beyond 2**32 elements.
        index = index + jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * np.uint32(
            stride & 0xFFFFFFFF
        )
        stride *= shape[axis]
    return index


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    if bit_width == 64:
        words = _words(key, (*shape, 2)).astype(jnp.uint64)
        return words[..., 0] << 32 | words[..., 1]
    words = _words(key, shape)
    if bit_width == 32:
        return words
    # The high bits are mixed better.
    return (words >> (32 - bit_width)).astype({8: jnp.uint8, 16: jnp.uint16}[bit_width])


MIX2X32 = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold,  # pyright: ignore[reportArgumentType]  (declared for int alone; vmap gives arrays)
    name="mix2x32",
    tag="mix",
)

PRNG_IMPLEMENTATIONS = {"mix2x32": MIX2X32, "threefry2x32": "threefry2x32", "rbg": "rbg"}


def make_key(seed: Seed | np.integer | jax.Array, prng: str = "mix2x32") -> jax.Array:
    """Make a typed random key, a scalar, from an integer seed.

    Args:
        seed: any integer that fits in 64 bits, all of which count, or a traced one.
        prng: `mix2x32`, or one of the slower `threefry2x32` (JAX's default) and `rbg`. The
            documentation shows the cost.

    Raises:
        UnknownNameError: `prng` names no implementation.
        InvalidArgumentError: `seed` is not an integer, or does not fit.

    Example:
        >>> key = make_key(0)
        >>> jax.random.uniform(key, (3,)).shape, jax.random.split(key, 5).shape
        ((3,), (5,))
    """
    if not isinstance(prng, str) or prng not in PRNG_IMPLEMENTATIONS:
        raise UnknownNameError("random number generator", prng, PRNG_IMPLEMENTATIONS)
    implementation = PRNG_IMPLEMENTATIONS[prng]
    if not isinstance(seed, int | np.integer):
        is_scalar = isinstance(seed, jax.Array | np.ndarray) and not seed.shape
        if not is_scalar or not jnp.issubdtype(seed.dtype, jnp.integer):
            raise InvalidArgumentError("seed", f"must be {SEEDS}", seed)
        return jax.random.key(seed, impl=implementation)
    low, high = map(np.uint32, words_of_seed(seed))
    if prng == "mix2x32":
        # In NumPy, since JAX would compile or load a program for each operation.
        with np.errstate(over="ignore"):
            words: Any = np.stack(_seed_words(low, high))
    else:
        # The key that JAX makes from 64 bits, of which it would keep only the low word without
        # `jax_enable_x64`. rbg's four words are threefry's two words, twice.
        words = np.tile([high, low], 2 if prng == "rbg" else 1)
    return jax.random.wrap_key_data(words, impl=implementation)


def make_keys(seeds: Iterable[int]) -> jax.Array:
    """Return the key that `make_key` makes from each seed, `[N]`."""
    low, high = np.array([words_of_seed(seed) for seed in seeds], np.uint32).T
    words: Any = np.stack(_seed_words(low, high), axis=-1)
    return jax.random.wrap_key_data(words, impl=MIX2X32)


def words_of_seed(seed: int | np.integer) -> tuple[int, int]:
    """Return the low and the high 32 bits of a seed that fits in 64, as `seed_key` takes them.

    Raises:
        InvalidArgumentError: `seed` is not an integer, or does not fit.
    """
    SEEDS.require("seed", seed)
    return int(seed) & 0xFFFFFFFF, int(seed) >> 32 & 0xFFFFFFFF


def seed_key(low: jax.Array, high: jax.Array) -> jax.Array:
    """Make `make_key(seed)` in a compiled program, from the seed's two words, uint32 scalars."""
    return jax.random.wrap_key_data(jnp.stack(_seed_words(low, high)), impl=MIX2X32)


def is_key(value: Any) -> bool:
    """Return whether a value is one typed key, known or traced."""
    return isinstance(value, jax.Array) and not value.shape and holds_keys(value)


def holds_keys(array: Any) -> bool:
    """Return whether an array, or one of such a shape, holds typed keys."""
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


# Counts of 64 bits, since JAX's integers have 32 unless `jax_enable_x64` is on. Updates pass 2**32
# within days, and the steps of a single environment within minutes.
_WORD = 1 << 32
# Purposes are below this, so that a purpose and the high word fit into one word that is folded in.
_PURPOSES = 1 << 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Counter:
    """A count of up to 64 bits: two uint32 words, scalars or of one shape.

    Example:
        >>> count = Counter.of(2**32 - 1) + jnp.uint32(2)
        >>> int(count)
        4294967297
    """

    low: jax.Array
    high: jax.Array

    @classmethod
    def of(cls, value: int = 0) -> "Counter":
        """Return a count of a known value."""
        return cls(jnp.uint32(value % _WORD), jnp.uint32(value // _WORD))

    def __add__(self, steps: jax.Array | int) -> "Counter":
        """Add a number of 0 to 2**32 - 1, of any shape."""
        low = self.low + jnp.asarray(steps).astype(jnp.uint32)
        return Counter(low, self.high + (low < self.low).astype(jnp.uint32))

    def __int__(self) -> int:
        """Return the value, outside a trace."""
        return int(self.high) * _WORD + int(self.low)

    def as_float(self) -> jax.Array:
        """Return the value in float32, exact up to 2**24."""
        return self.high.astype(jnp.float32) * np.float32(_WORD) + self.low.astype(jnp.float32)

    def clipped(self, most: int) -> jax.Array:
        """Return the value, but at most `most`, as an int32. So `most` must be below 2**31."""
        return jnp.where(self.high > 0, most, jnp.minimum(self.low, np.uint32(most))).astype(
            jnp.int32
        )

    def reaches(self, value: int) -> jax.Array:
        """Return whether the count is at least `value`, an int of up to 64 bits."""
        high, low = divmod(max(value, 0), _WORD)
        equal = (self.high == np.uint32(high)) & (self.low >= np.uint32(low))
        return (self.high > np.uint32(high)) | equal

    def is_multiple_of(self, period: int) -> jax.Array:
        """Return whether `period`, below 2**31, divides the count."""
        divisor = np.uint32(period)
        # Double the high word's remainder 32 times, since a product would exceed 32 bits.
        doublings = jnp.where(self.high > 0, 32, 0)
        rest = jax.lax.fori_loop(
            0, doublings, lambda _, rest: rest * 2 % divisor, self.high % divisor
        )
        return (rest + self.low % divisor) % divisor == 0

    def key(self, key: jax.Array, purpose: int) -> jax.Array:
        """Fold a purpose, below 256, and the count into a key."""
        of_purpose = jax.random.fold_in(key, self.high * np.uint32(_PURPOSES) + np.uint32(purpose))
        return jax.random.fold_in(of_purpose, self.low)
