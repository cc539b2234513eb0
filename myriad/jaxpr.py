"""The operations of a traced program, which JAX calls a jaxpr."""

from collections import Counter
from collections.abc import Iterator

from jax.extend.core import Jaxpr, JaxprEqn, jaxprs_in_params


def count_primitives(jaxpr: Jaxpr) -> Counter[str]:
    """Count the operations in a program and in the programs inside it, by their names."""
    return Counter(equation.primitive.name for equation in equations(jaxpr))


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Yield the operations in a program and in the programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)
