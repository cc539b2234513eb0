"""The common parts of system identification: log-normal priors and a Gaussian posterior.

A score says where a parameter lies in its prior: parameter = median * exp(spread * score).
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import InvalidArgumentError, UnknownNameError

Scalars = tuple[jax.Array, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gaussian:
    """A Gaussian over `D` quantities: the means, and the upper triangle of covariances by rows.

    All are float32 scalars, so that environments stay the fastest axis in memory.
    """

    mean: Scalars
    covariance: Scalars

    def push(
        self, model: Callable[..., tuple[Sequence[Any], Sequence[Any]]], keep: int
    ) -> "Gaussian":
        """Return the joint law of the first `keep` quantities and of `model`'s results.

        It is exact if `model` is linear.

        `model(*quantities)` returns the results expected and the variances of independent noise on
        them. Averages are over `2 D` points: the mean, plus and minus sqrt(D) times each column of
        the covariance's Cholesky factor. Source: Arasaratnam and Haykin (2009), "Cubature Kalman
        filters".
        """
        size = len(self.mean)
        columns = self._cholesky()
        entry = self._entries()
        reach = np.float32(size**0.5)
        share = np.float32(0.5 / size)
        points = [self._moved(column, step) for step in (reach, -reach) for column in columns]
        expected, variances = zip(*(model(*point) for point in points), strict=True)
        results = list(zip(*expected, strict=True))
        noises = zip(*variances, strict=True)
        noise = [reduce(add, values) * share for values in noises]
        means = tuple(reduce(add, values) * share for values in results)
        apart = [
            [value - mean for value in values] for values, mean in zip(results, means, strict=True)
        ]

        def covariance(i: int, j: int) -> jax.Array:
            if j < keep:
                return entry[i, j]
            values = apart[j - keep]
            if i < keep:  # Later columns don't involve a kept quantity.
                moves = (columns[k][i - k] * (values[k] - values[size + k]) for k in range(i + 1))
                return reduce(add, moves) * (reach * share)
            product = (
                reduce(add, (x * y for x, y in zip(apart[i - keep], values, strict=True))) * share
            )
            return product + noise[i - keep] if i == j else product

        return Gaussian(
            self.mean[:keep] + means, tuple(covariance(i, j) for i, j in _cells(keep + len(means)))
        )

    def condition(self, value: jax.Array) -> "Gaussian":
        """Condition on the last quantity, of positive variance, and drop it: a Kalman update."""
        last = len(self.mean) - 1
        entry = self._entries()
        inverse = 1.0 / entry[last, last]
        surprise = (value - self.mean[last]) * inverse
        return Gaussian(
            mean=tuple(self.mean[i] + entry[i, last] * surprise for i in range(last)),
            covariance=tuple(
                entry[i, j] - entry[i, last] * entry[j, last] * inverse for i, j in _cells(last)
            ),
        )

    def deviations(self) -> Scalars:
        """Return the standard deviation of each quantity, `D` scalars."""
        # A variance close to zero may be rounded below zero.
        return tuple(
            jnp.sqrt(jnp.maximum(x, 0.0)) for (i, j), x in self._entries().items() if i == j
        )

    def _entries(self) -> dict[tuple[int, int], jax.Array]:
        return dict(zip(_cells(len(self.mean)), self.covariance, strict=True))

    def _cholesky(self) -> list[Scalars]:
        """Return the lower factor's columns from the diagonal down; zero without variance."""
        entry = self._entries()
        columns = []
        for i in range(len(self.mean)):
            rest = [entry[i, j] for j in range(i, len(self.mean))]
            for k, column in enumerate(columns):
                rest = [x - column[i - k] * y for x, y in zip(rest, column[i - k :], strict=True)]
            scale = jnp.where(rest[0] > 1e-10, jax.lax.rsqrt(jnp.maximum(rest[0], 1e-10)), 0.0)
            columns.append(tuple(x * scale for x in rest))
        return columns

    def _moved(self, column: Scalars, step: np.float32) -> Scalars:
        """Return the mean moved by `step` times a column. The first quantities stay."""
        still = len(self.mean) - len(column)
        return self.mean[:still] + tuple(
            x + step * y for x, y in zip(self.mean[still:], column, strict=True)
        )


def standard_gaussian(size: int) -> Gaussian:
    """Return `size` independent standard normals, the prior of the scores."""
    zero = jnp.zeros((), jnp.float32)
    one = jnp.ones((), jnp.float32)
    return Gaussian((zero,) * size, tuple(one if i == j else zero for i, j in _cells(size)))


def with_scores(params: Any, names: tuple[str, ...], scores: Sequence[jax.Array]) -> Any:
    """Set the parameters called `names` by their scores. `params` holds their medians."""
    factors = {
        name: jnp.exp(params.spread * score) for name, score in zip(names, scores, strict=True)
    }
    return dataclasses.replace(
        params, **{name: getattr(params, name) * factor for name, factor in factors.items()}
    )


def squared_error(estimate: Sequence[jax.Array], truth: Sequence[jax.Array]) -> jax.Array:
    """Return the mean over the hidden parameters of (estimate - truth)^2, in scores."""
    errors = [each - true for each, true in zip(estimate, truth, strict=True)]
    return reduce(add, (error * error for error in errors)) * np.float32(1 / len(errors))


def require_hidden(hidden: Any, known: tuple[str, ...]) -> None:
    """Raise unless `hidden` is a tuple of different names out of `known`."""
    if not isinstance(hidden, tuple) or not hidden or len(set(hidden)) < len(hidden):
        raise InvalidArgumentError(
            "hidden", f"must be a tuple of one or more different names, but got {hidden!r}."
        )
    for name in hidden:
        if name not in known:
            raise UnknownNameError("hidden figure", name, known)


def _cells(size: int) -> list[tuple[int, int]]:
    """Return the rows and columns of an upper triangle, row by row."""
    return [(i, j) for i in range(size) for j in range(i, size)]
