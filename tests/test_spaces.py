"""Spaces: every sample belongs, every element is drawn equally often."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from myriad import make_key
from myriad.errors import InvalidArgumentError
from myriad.spaces import Box, Discrete, MultiDiscrete

SPACES = [
    Discrete(1),
    Discrete(7),
    MultiDiscrete((10, 2, 2)),
    Box(-2.0, 2.0, (3,)),
    Box(-np.inf, np.inf, (2, 2)),
    Box(np.array([-1.0, -np.inf]), np.array([1.0, np.inf]), (2,)),
    Box(0, 255, (3,), np.uint8),
    Box(-np.inf, np.inf, (3,), np.int32),
    Box(-1.0, 1.0, (3,), jnp.bfloat16),
    Box(-np.inf, np.inf, (3,), np.float16),
]


def samples(space, num):
    return jax.jit(jax.vmap(space.sample))(jax.random.split(make_key(0), num))


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_every_sample_belongs_to_the_space(space):
    drawn = samples(space, 1000)
    assert drawn.shape == (1000, *space.shape)
    assert drawn.dtype == space.dtype
    assert bool(jax.vmap(space.contains)(drawn).all())
    assert bool(jnp.isfinite(drawn).all())


@pytest.mark.parametrize("n", [1, 2, 20])
def test_every_integer_is_drawn_equally_often(n):
    counts = np.bincount(np.asarray(samples(Discrete(n), 20_000)), minlength=n)
    assert len(counts) == n
    assert n == 1 or stats.chisquare(counts).pvalue > 1e-6


def test_what_lies_outside_does_not_belong():
    assert not bool(Discrete(2).contains(np.int32(2)))
    assert not bool(MultiDiscrete((2, 3)).contains(np.array([1, 3])))
    assert not bool(Box(-1.0, 1.0, (1,)).contains(np.array([1.5])))


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (Discrete, (0,)),
        (Discrete, ("2",)),
        (MultiDiscrete, ((),)),
        (MultiDiscrete, ((2, 0),)),
        (MultiDiscrete, (3,)),
        (Box, (1.0, 0.0, ())),
        (Box, (0.0, np.array([1.0, np.nan]), (2,))),
        (Box, (0.0, 1.0, (-1,))),
        *((Discrete(2).validate, (each,)) for each in ("left", None, object(), 2**40, [0, 1])),
    ],
)
def test_an_empty_space_or_an_action_of_another_kind_is_refused(make, arguments):
    with pytest.raises(InvalidArgumentError):
        make(*arguments)
