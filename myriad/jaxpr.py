"""The operations of a traced program, which JAX calls a jaxpr."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from jax.extend.core import Jaxpr, JaxprEqn, Var, jaxprs_in_params

# What XLA writes to memory, and so computes once.
_STORED = frozenset(
    (  # noqa: SIM905
        "cond conv_general_dilated dot_general scan scatter scatter-add sort while"
    ).split()
)


def count_primitives(jaxpr: Jaxpr) -> Counter[str]:
    """Count the operations in a program and in the programs inside it, by their names."""
    return Counter(equation.primitive.name for equation in equations(jaxpr))


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Yield the operations in a program and in the programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def emits_more_than(most: int, jaxpr: Jaxpr) -> bool:
    """Return whether XLA would write more operations than `most` for the program as one function.

    It writes a value once for each index at which the results need it. A stack, and a slice out of
    one, ask for others each time. So where arrays are stacked and split again and again, the number
    grows without bound: gymnax's Acrobot has 441 operations, and XLA writes over a million.
    """
    emitted = 0

    def needed(jaxpr: Jaxpr, of_results: list[set[int]]) -> list[set[int]]:
        """Return the indices at which arguments are needed, as hashes of the way to a result."""
        nonlocal emitted
        indices: dict[Any, set[int]] = {}

        def need(values: list[Any], by_value: list[set[int]]) -> None:
            for value, new in zip(values, by_value, strict=True):
                if isinstance(value, Var):
                    indices.setdefault(value, set()).update(new)

        need(jaxpr.outvars, of_results)
        for number, equation in enumerate(reversed(jaxpr.eqns)):
            name = equation.primitive.name
            at_shape = equation.outvars[0].aval.shape if equation.outvars else ()
            of_each = [indices.get(value, set()) for value in equation.outvars]
            if name == "jit":
                need(equation.invars, needed(equation.params["jaxpr"].jaxpr, of_each))
                continue
            at = {number} if name in _STORED else set[int]().union(*of_each)
            emitted += len(at)
            if emitted > most:
                break
            # Two stacks are two branches, but the same slice twice is one.
            way = number if name in ("concatenate", "stack") else f"{name} {equation.params}"
            for place, value in enumerate(equation.invars):
                is_moved = value.aval.shape != at_shape
                moved = {hash((index, way, place)) for index in at} if is_moved else at
                need([value], [moved])
        return [indices.get(value, set()) for value in jaxpr.invars]

    needed(jaxpr, [{0}] * len(jaxpr.outvars))
    return emitted > most
