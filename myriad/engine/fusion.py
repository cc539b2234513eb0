"""Which options the compiler gets for a program, by the operations of the traced program."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxprs_in_params

# Options of XLA's CPU backend that `configure` sets: see `machine.XLA_CPU_OPTIONS`.
WHOLE_LOOPS = "xla_cpu_small_while_loop_byte_threshold"
FUSED_OUTPUTS = "xla_cpu_use_multi_output_fusion"
# XLA skips this pass in every program, except those that are compiled with another list.
SKIP_PASSES = "xla_disable_hlo_passes"
SKIPPED = f"--{SKIP_PASSES}=cpu_multi_output_fusion"
# Programs that become part of the one that calls them.
_INLINED = frozenset({"custom_jvp_call", "custom_vjp_call", "jit"})
# What XLA writes to memory, and so computes once. A loop or a branch is, too.
_STORED = frozenset({"conv_general_dilated", "dot_general", "scatter", "scatter-add", "sort"})
# With outputs fused, a loop of 890,000 operations, as `emits_more_than` counts them, compiled in
# 40 s on an AMD EPYC. The most in Myriad's own environments, 430,000, compile in seconds.
_MOST_EMITTED = 600_000
# Operations whose outputs XLA may fuse, besides elementwise ones. Indexed updates (`scatter` by any
# name) are not among them.
_FUSABLE = frozenset(
    (  # noqa: SIM905  (one name a line would be fifty lines)
        # shapes
        "broadcast_in_dim concatenate dynamic_slice dynamic_update_slice embed gather iota pad "
        "reshape rev slice split squeeze stack tile transpose unstack "
        # reductions, products and sorts
        "cummax cummin cumprod cumsum dot_general reduce_and reduce_max reduce_min reduce_or "
        "reduce_prod reduce_sum sort "
        # draws
        "random_bits random_fold_in random_seed random_split random_unwrap random_wrap "
        # calls and collectives
        "all_gather axis_index cond custom_jvp_call custom_vjp_call jit optimization_barrier psum "
        "psum_invariant reshard shard_map"
    ).split()
)
_LOOPS = frozenset({"scan", "while"})


def output_fusion(trace: Callable[[], ClosedJaxpr], loops: int | None = None) -> dict[str, str]:
    """Return the compiler options with which XLA fuses the outputs of a program, or none.

    XLA aborts the process if it fuses two indexed updates (jaxlib 0.10.2). So the program must
    contain only operations that are known to be safe. If fusing would write the same operations
    again and again, the options leave out all that `--xla_backend_extra_options` gives, since the
    program would compile for a minute.

    Args:
        trace: returns the program, such as `jax.jit(fn).trace(*args).jaxpr`. It is called only if
            the answer depends on it.
        loops: how deep loops that carry vectors `[N, k]` may be nested, or None for any depth and
            for loops that write rows. With outputs fused, a step that scans over a vector of 8 took
            four times as long, and a loop that records its steps eleven times (jaxlib 0.10.2).
    """
    flags = os.environ.get("XLA_FLAGS", "")
    is_set = FUSED_OUTPUTS in flags and SKIPPED in flags
    if not is_set or jax.default_backend() != "cpu":
        return {}
    jaxpr = trace().jaxpr
    if emits_more_than(_MOST_EMITTED, jaxpr):
        return {"xla_backend_extra_options": ""}
    if loops is not None and _depth_of_loops(jaxpr) > loops:
        return {}
    known = _FUSABLE | _LOOPS
    is_safe = all(
        # It computes each element of its result from one of each operand.
        each.primitive.name in known or shape_for(each, lambda _: ()) == ()
        for each in equations(jaxpr)
    )
    return {SKIP_PASSES: ""} if is_safe else {}


def compiles_loops_whole() -> bool:
    """Return whether `configure` made XLA's CPU backend compile a loop into one function."""
    return WHOLE_LOOPS in os.environ.get("XLA_FLAGS", "")


def _depth_of_loops(jaxpr: Jaxpr) -> float:
    """Return how deep loops that carry vectors of environments are nested.

    One that writes a row of an array in each pass is too deep anywhere. If XLA fuses two such
    writes, it copies both arrays instead of writing the rows in place.
    """
    depth = 0.0
    for equation in jaxpr.eqns:
        inner = [*jaxprs_in_params(equation.params)]
        within = max(map(_depth_of_loops, inner), default=0)
        if equation.primitive.name in _LOOPS:
            shapes = [*map(_shape, equation.outvars)]
            # What a scan stacks has an axis more outside than inside.
            carried = [[*map(_shape, body.outvars)] for body in inner]
            stacks = equation.primitive.name == "scan" and shapes not in carried
            if stacks or any(count_primitives(body)["dynamic_update_slice"] for body in inner):
                return math.inf
            within += any(len(shape) > 1 for shape in shapes)
        depth = max(depth, within)
    return depth


def shape_for(equation: JaxprEqn, change: Callable[[Any], Any]) -> tuple[int, ...] | None:
    """Return the shape of a result if shapes of operands change, or None if they can't."""
    primitive, params = equation.primitive, equation.params
    avals: Any = [each.aval for each in equation.invars]
    if primitive.multiple_results or not avals or any(jaxprs_in_params(params)):
        return None
    operands = tuple((change(each.shape), each.dtype) for each in avals)
    try:
        return _shape_of(primitive, operands, tuple(params.items()))
    except TypeError:  # A parameter doesn't hash.
        return _shape_of.__wrapped__(primitive, operands, tuple(params.items()))


# A program has thousands of operations and few kinds of them, and an answer took 0.2 to 0.8 ms.
@lru_cache(maxsize=4096)
def _shape_of(primitive: Any, operands: Any, params: Any) -> tuple[int, ...] | None:
    given = [jax.ShapeDtypeStruct(*each) for each in operands]
    try:
        return jax.eval_shape(partial(primitive.bind, **dict(params)), *given).shape
    except Exception:  # noqa: BLE001  (each operation refuses in its own way)
        return None


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
