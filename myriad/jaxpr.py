"""The operations of a traced program, which JAX calls a jaxpr."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from jax.extend.core import Jaxpr, JaxprEqn, Var, jaxprs_in_params

# Programs that become part of the one that calls them.
_INLINED = frozenset({"custom_jvp_call", "custom_vjp_call", "jit"})
# What XLA writes to memory, and so computes once. A loop or a branch is, too.
_STORED = frozenset({"conv_general_dilated", "dot_general", "scatter", "scatter-add", "sort"})


def count_primitives(jaxpr: Jaxpr) -> Counter[str]:
    """Count the operations in a program and in the programs inside it, by their names."""
    return Counter(equation.primitive.name for equation in equations(jaxpr))


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Yield the operations in a program and in the programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def largest_factor_bytes(jaxpr: Jaxpr) -> int:
    """Return the bytes of the largest matrix that a program multiplies."""
    products = (each for each in equations(jaxpr) if each.primitive.name == "dot_general")
    matrices: Any = [operand.aval for product in products for operand in product.invars]
    return max((each.size * each.dtype.itemsize for each in matrices), default=0)


def emits_more_than(most: int, jaxpr: Jaxpr) -> bool:
    """Return whether XLA would write a program, or a loop in it, with more operations than `most`.

    If XLA fuses as much as it can, it writes a value once for each index at which a result needs
    it. A stack, and a slice out of one, ask for others each time. So where arrays are stacked and
    split again and again, the number grows without bound: gymnax's Acrobot has 441 operations, and
    XLA would write over a million.
    """
    emitted = 0
    bodies: list[Jaxpr] = []

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
            inner = [*jaxprs_in_params(equation.params)]
            of_each = [indices.get(value, set()) for value in equation.outvars]
            if name in _INLINED:
                need(equation.invars, needed(inner[0], of_each))
                continue
            bodies.extend(inner)
            at = {number} if inner or name in _STORED else set[int]().union(*of_each)
            emitted += len(at)
            if emitted > most:
                break
            # Two stacks are two branches, but the same slice twice is one.
            is_apart = inner or name in ("concatenate", "gather", "stack")
            way = number if is_apart else f"{name} {equation.params}"
            shape = _shape(equation.outvars[0]) if equation.outvars else ()
            for place, value in enumerate(equation.invars):
                moved = at
                if name in ("gather", "rev") or _shape(value) != shape:
                    moved = {hash((index, way, place)) for index in at}
                need([value], [moved])
        return [indices.get(value, set()) for value in jaxpr.invars]

    needed(jaxpr, [{0}] * len(jaxpr.outvars))
    return emitted > most or any(emits_more_than(most, body) for body in bodies)


def _shape(value: Any) -> tuple[int, ...]:
    return value.aval.shape
