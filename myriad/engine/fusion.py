"""Which programs XLA may fuse the outputs of, by the operations of the traced program."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxprs_in_params

from myriad.engine import machine

# Programs that become part of the one that calls them.
_INLINED = frozenset({"custom_jvp_call", "custom_vjp_call", "jit"})
# What XLA writes to memory, and so computes once. A loop or a branch is, too.
_STORED = frozenset({"conv_general_dilated", "dot_general", "scatter", "scatter-add", "sort"})
# With outputs fused, a loop of 890,000 operations, as `emits_more_than` counts them, compiled in
# 40 s on an AMD EPYC. The most in Myriad's own environments, 430,000, compile in seconds.
_MOST_EMITTED = 600_000
# Operations whose outputs XLA may fuse: elementwise operations, reductions, products, shapes,
# random numbers, loops and collectives. Indexed updates (`scatter` by any name) are not among
# them.
_FUSABLE = frozenset(
    (  # noqa: SIM905  (one name a line would be a hundred lines)
        "abs acos acosh add add_any all_gather and asin asinh atan atan2 atanh "
        "axis_index bitcast_convert_type broadcast_in_dim cbrt ceil clamp clz concatenate cond "
        "convert_element_type copy cos cosh cummax cummin cumprod cumsum custom_jvp_call "
        "custom_vjp_call div dot_general dynamic_slice dynamic_update_slice eq erf erf_inv erfc "
        "exp exp2 expm1 floor gather ge gt integer_pow iota is_finite jit le le_to log log1p "
        "logistic lt lt_to max min mul ne neg nextafter not one_minus_square optimization_barrier "
        "or pad population_count pow psum psum_invariant random_bits random_fold_in random_seed "
        "random_split random_unwrap random_wrap reduce_and reduce_max reduce_min reduce_or "
        "reduce_prod reduce_sum rem reshape reshard rev round rsqrt scan select_n shard_map "
        "shift_left shift_right_arithmetic shift_right_logical sign sin sinh slice sort split "
        "sqrt square squeeze stack stop_gradient sub tan tanh tile transpose unstack while xor "
    ).split()
)


def output_fusion(trace: Callable[[], ClosedJaxpr]) -> dict[str, str]:
    """Return the compiler options with which XLA fuses the outputs of a program, or none.

    XLA aborts the process if it fuses two indexed updates (jaxlib 0.10.2). So the program must
    contain only operations that are known to be safe. If fusing would write the same operations
    again and again, the options leave out all that `--xla_backend_extra_options` gives, since the
    program would compile for a minute.

    Args:
        trace: returns the program, such as `jax.jit(fn).trace(*args).jaxpr`. It is called only if
            the answer depends on it.
    """
    options = machine.output_fusion_options()
    if not options:
        return {}
    jaxpr = trace().jaxpr
    if emits_more_than(_MOST_EMITTED, jaxpr):
        return {"xla_backend_extra_options": ""}
    return options if set(count_primitives(jaxpr)) <= _FUSABLE else {}


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
