"""Functions such as the sine in a form that XLA vectorises on a CPU, put into a traced step.

XLA calls the system's math library for a sine of each environment, or branches in a way that keeps
the step from being one vector loop. `vectorized` traces a function and replaces these operations by
polynomials, and small products by loops. So environments and policies stay plain `jnp` and
`jax.random` code. `VectorEnv` and `Rollout` call it.
"""

import contextvars
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Primitive
from jax.interpreters import mlir

from myriad import settings
from myriad.engine.fusion import compiles_loops_whole, count_primitives, shape_for
from myriad.engine.random import MIX2X32, draw_word, holds_keys

Function = TypeVar("Function", bound=Callable[..., Any])

# pi/2 in five parts. The first four have so few bits that products with integers up to 2**18 are
# exact in float32, and with those up to 2**19 nearly so (Cody and Waite 1980, chapter 8).
# fmt: off
_QUARTER_PARTS = (
    1.5625, 0.00830078125, -4.410743713378906e-06, -4.377216100692749e-08, 6.07710062827671e-11,
)
# fmt: on
# Minimax polynomials, the constant first, on [0, 0.79**2]: (sin(x) / x - 1) / x**2 and
# (cos(x) - 1 + x**2 / 2) / x**4, in powers of x**2.
_SIN = (-0.16666655242443085, 0.008332150988280773, -0.00019513521692715585)
_COS = (0.04166664555668831, -0.0013887331588193774, 2.4434213628410362e-05)
# Minimax for (log(1 + t) - t + t**2 / 2) / t**3 on [sqrt(1/2) - 1, sqrt(2) - 1].
# fmt: off
_LOG = (
    0.3333333134651184, -0.2500081956386566, 0.20001226663589478, -0.16623356938362122,
    0.14201757311820984, -0.13160182535648346, 0.1276157796382904, -0.07634499669075012,
)
# fmt: on
_SQRT_HALF = np.int32(0x3F3504F3)
# Minimax for erf_inv(x) / x where w = -log(1 - x**2): 0.88622695 + w * the first polynomial of
# w - 2.5 for w < 5, and else 3.0336864 + t * the second of t = sqrt(w) - 3.2000496. These parts are
# those of Giles (2012), "Approximating the erfinv function".
# fmt: off
_CENTRAL = (
    0.24607296288013458, 0.00022692463244311512, -0.0017617300618439913,
    0.00020360610506031662, 5.90048966842005e-06, -4.35258789366344e-06,
    3.5446339552436257e-07, 4.634681971538157e-08, -9.113438892427439e-09,
)
_TAIL = (
    1.0046931505203247, 0.0059750871732831, -0.004294661805033684,
    0.002927369438111782, -0.0019886961672455072, 0.0011515042278915644,
    -0.00036477946559898555, -0.00011129763151984662, 0.0001027822436299175,
)
# fmt: on


def _sin_cos(x: jax.Array, turned: int) -> jax.Array:
    """Return the sine of `x + turned * pi/2`.

    The error is below 2.5 units in the last place for |x| up to 10,000, and 2e-7 up to 820,000.
    Beyond, it is the sine of an angle that float32 hardly tells from x.
    """
    quarters = jnp.round(x * np.float32(2 / np.pi))
    rest = x
    for part in _QUARTER_PARTS:
        rest = rest - quarters * np.float32(part)
    # It is inside already, unless x has hardly a digit after the point.
    rest = jnp.clip(rest, -0.85, 0.85)
    square = rest * rest
    sin = rest + rest * square * polynomial(_SIN, square)
    cos = 1.0 - 0.5 * square + square * square * polynomial(_COS, square)
    quadrant = quarters.astype(jnp.int32) + turned
    value = jnp.where(quadrant & 1 == 1, cos, sin)
    sign = (quadrant.astype(jnp.uint32) & 2) << 30
    bits = jax.lax.bitcast_convert_type(value, jnp.uint32) ^ sign
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _log(x: jax.Array) -> jax.Array:
    """Return the logarithm of a normal positive float32."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    # Mantissas go from sqrt(1/2) to sqrt(2), so that the result near 1 keeps its digits.
    exponent = (bits - _SQRT_HALF) >> 23
    t = jax.lax.bitcast_convert_type(bits - (exponent << 23), jnp.float32) - 1.0
    exponent = exponent.astype(jnp.float32)
    # log(2) in two parts. The product of the first with an exponent is exact.
    low = t * t * (t * polynomial(_LOG, t) - 0.5) - exponent * np.float32(2.12194440e-4)
    return exponent * np.float32(0.693359375) + (t + low)


def _log1p(x: jax.Array) -> jax.Array:
    large, small = jnp.maximum(x, 1.0), jnp.minimum(x, 1.0)
    total = large + small
    # What the sum lost, to first order. An infinity lost nothing.
    lost = jnp.where(total < np.inf, (small - (total - large)) / total, 0.0)
    return jnp.where(total == 0, -np.inf, jnp.log(total) + lost)


def _erf_inv(x: jax.Array) -> jax.Array:
    # The product is exact to the last bit also near 1, where 1 - x**2 is not.
    w = -_log((1.0 - x) * (1.0 + x))
    is_central = w < 5.0

    def choose(central: Any, tail: Any) -> jax.Array:
        return jnp.where(is_central, np.float32(central), np.float32(tail))

    t = jnp.where(is_central, w - 2.5, jnp.sqrt(w) - 3.2000496)
    slope = polynomial([*map(choose, _CENTRAL, _TAIL)], t)
    value = choose(0.88622695, 3.0336864) + jnp.where(is_central, w, t) * slope
    edge = jnp.where(jnp.abs(x) == 1, x * np.inf, np.nan)
    return jnp.where(jnp.abs(x) < 1, x * value, edge)


def _tanh(x: jax.Array) -> jax.Array:
    # XLA (jaxlib 0.10.2) computes a tanh that it fuses with nothing, as between two products, in
    # vectors of 256 bits and copies each through the stack. Fused with a selection, which changes
    # no value, it is a loop of full vectors, which took a third of the time on an AMD EPYC.
    return jnp.where(x > 20, np.float32(1), jax.lax.tanh(x))


# A larger product is faster in XLA's library. In any layout a rollout of up to 32 environments has
# at most 32 rows, and another one has at least 48.
_MOST_ROWS, _MOST_NUMBERS = 32, 2048


def _product(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Multiply `[N, k]` or `[N, 1, k]` by `[k, m]` in a loop over `k` of vectors over `m`.

    XLA calls a library for a product. A call took 0.4 us on an AMD EPYC, and it keeps a loop of
    steps from being one function.
    """
    rows = x.reshape(len(x), len(weights))

    def add(i: Any, total: jax.Array) -> jax.Array:
        column = jax.lax.dynamic_slice_in_dim(rows, i, 1, axis=1)
        return total + column * jax.lax.dynamic_slice_in_dim(weights, i, 1, axis=0)

    total = jnp.zeros((len(rows), weights.shape[1]), np.float32)
    total = jax.lax.fori_loop(0, len(weights), add, total, unroll=4)
    return total.reshape(*x.shape[:-1], weights.shape[1])


def _is_small_product(avals: Sequence[Any], params: Any) -> bool:
    x, weights = avals
    return (
        params["dimension_numbers"] == (((x.ndim - 1,), (0,)), ((), ()))
        and x.dtype == weights.dtype == np.float32
        and params["preferred_element_type"] in (None, np.float32)
        and (x.ndim, weights.ndim) in ((2, 2), (3, 2))
        and 1 < math.prod(x.shape[:-1]) == x.shape[0] <= _MOST_ROWS
        and 0 < x.shape[0] * weights.shape[1] <= _MOST_NUMBERS
        and x.shape[-1] > 0
        and compiles_loops_whole()
    )


# The most columns that an array is taken apart into.
_MOST_COLUMNS = 32
_EXTREMES = {"argmax": jnp.max, "argmin": jnp.min}


def argmax(x: jax.Array, axis: int) -> jax.Array:
    """Do as `jnp.argmax`, in operations that XLA vectorises.

    XLA's reduction to a pair is no vector loop, and computes its input twice. Of stored numbers it
    is faster all the same. If its outputs are fused, two of them end the process (jaxlib 0.10.2).
    """
    return _first_extreme(jnp.max, x, axis, np.int32)


def _first_extreme(extreme: Any, x: jax.Array, axis: int, dtype: Any) -> jax.Array:
    """Return the index of the first extreme value along an axis, or of the first NaN."""
    is_moved = axis % x.ndim > 0
    if is_moved:
        # With the first axis, that of environments, in the last place, it is vector work.
        x, axis = jnp.moveaxis(x, 0, -1), axis % x.ndim - 1
    size = x.shape[axis]
    most = extreme(x, axis, keepdims=True)
    # XLA's extreme value beside a NaN may be one or not (jaxlib 0.10.2).
    if size > _MOST_COLUMNS:
        each = jax.lax.broadcasted_iota(dtype, x.shape, axis)
        is_first = x == most, jax.lax.ne(x, x)
        value, nan = (jnp.min(jnp.where(is_it, each, size), axis) for is_it in is_first)
    else:
        # Of 12 Gumbel draws, XLA's loop over the axis took longer than to draw them.
        most = jnp.squeeze(most, axis)
        value = nan = jnp.full(most.shape, size, dtype)
        for i in reversed(range(size)):
            column = jax.lax.index_in_dim(x, i, axis, keepdims=False)
            value = jnp.where(column == most, np.asarray(i, dtype), value)
            nan = jnp.where(jax.lax.ne(column, column), np.asarray(i, dtype), nan)
    first = jnp.where(nan < size, nan, value)
    return jnp.moveaxis(first, -1, 0) if is_moved else first


def polynomial(coefficients: Sequence[Any] | np.ndarray, x: jax.Array) -> jax.Array:
    """Return the polynomial of `x` with these coefficients, the constant first."""
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


# The form of each operation, for float32.
FORMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "cos": functools.partial(_sin_cos, turned=1),
    "erf_inv": _erf_inv,
    "log1p": _log1p,
    "sin": functools.partial(_sin_cos, turned=0),
    "tanh": _tanh,
}
for _name, _form in FORMS.items():
    # Bits have no derivative, so a form has that of its operation.
    _derived = jax.custom_jvp(_form)
    _derived.defjvp(functools.partial(jax.jvp, getattr(jax.lax, _name)))
    FORMS[_name] = _derived


# Set while a function is traced, so that a part of it is not traced twice.
_IS_TRACING = contextvars.ContextVar("is tracing", default=False)


def vectorized(function: Function) -> Function:
    """Return a function of arrays with its operations in the forms below.

    Everywhere but on a CPU, and with the setting `MYRIAD_VECTOR_MATH=off`, it returns the function
    as it is.
    """
    is_off = os.environ.get(settings.VECTOR_MATH, "on").lower() in settings.OFF
    if is_off or _IS_TRACING.get() or jax.default_backend() != "cpu":
        return function

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        token = _IS_TRACING.set(True)
        try:
            traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        finally:
            _IS_TRACING.reset(token)
        results = _evaluate(traced, *jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run  # pyright: ignore[reportReturnType]


def vectorized_method(method: Function) -> Function:
    """Return a method that runs as `vectorized` does, which is asked at each call."""

    @functools.wraps(method)
    def run(self: Any, *args: Any) -> Any:
        return vectorized(functools.partial(method, self))(*args)

    return run  # pyright: ignore[reportReturnType]


# The largest constant that becomes part of the program.
_MOST_EMBEDDED_BYTES = 1 << 16


class _Columns(NamedTuple):
    """The columns `[N]` of an array `[N, k]`, or of the `[k, N]` that becomes one."""

    columns: Sequence[jax.Array]
    axis: int = 1


class _Value:
    """A value in a program, and how its users need it.

    Attributes:
        held: what it is, once it has been computed.
        is_whole: somebody needs all of it.
        is_taken: somebody takes a column out of it, or out of what is computed from it.
        is_mixed: somebody takes a column out of what is computed from it. XLA itself takes columns
            out of a stack. With such stacks as columns, bucket-brigade took 1.4 times as long.
        is_drawn: it is computed from a draw, so that computing it twice costs.
    """

    def __init__(self, aval: Any, held: Any = None, *, is_drawn: bool = False):
        self.aval: Any = aval
        self.held = held
        self.is_drawn = is_drawn
        self.is_whole = self.is_taken = self.is_mixed = False


_REPLACED = FORMS.keys() | _EXTREMES.keys() | {"dot_general", "random_bits"}


class _Embedded:
    """An array that is a parameter of an operation."""

    def __init__(self, array: np.ndarray):
        self.array = array


# A constant as an operation without operands. JAX passes others through every loop, so that XLA
# can't fold what depends on them alone.
_embed = Primitive("embed")
_embed.def_impl(lambda *, embedded: jnp.asarray(embedded.array))
_embed.def_abstract_eval(
    lambda *, embedded: ShapedArray(embedded.array.shape, embedded.array.dtype)
)
mlir.register_lowering(_embed, lambda _, *, embedded: [mlir.ir_constant(embedded.array)])


def _constant(value: Any) -> Any:
    is_known = isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer)
    if not is_known or holds_keys(value) or value.nbytes > _MOST_EMBEDDED_BYTES:
        return value
    return _embed.bind(embedded=_Embedded(np.asarray(value)))


_Operation = tuple[JaxprEqn, list[_Value], list[_Value]]


def _evaluate(program: ClosedJaxpr, *args: Any) -> list[Any]:
    """Run a traced program with its operations, and those of its loops, in their forms."""
    operations: list[_Operation] = []
    inputs = [
        _Value(variable.aval, arg) for variable, arg in zip(program.jaxpr.invars, args, strict=True)
    ]
    results = _inlined(program, inputs, operations)
    for each in results:
        each.is_whole = True
    # From the last operation to the first, so that all uses of a value are known.
    needed = [each for each in reversed(operations) if _notes_needs(*each)]
    for equation, inputs, outputs in reversed(needed):
        for output, held in zip(outputs, _results(equation, inputs, outputs), strict=True):
            output.held = held
    return [_array(each.held) for each in results]


def _inlined(
    program: ClosedJaxpr, inputs: list[_Value], operations: list[_Operation]
) -> list[_Value]:
    """Add a program's operations, and those of programs that it calls, and return its results."""
    jaxpr = program.jaxpr
    values: dict[Any, _Value] = dict(zip(jaxpr.invars, inputs, strict=True))
    for variable, value in zip(jaxpr.constvars, program.consts, strict=True):
        values[variable] = _Value(variable.aval, _constant(value))

    def read(each: Any) -> _Value:
        return _Value(each.aval, each.val) if isinstance(each, Literal) else values[each]

    for equation in jaxpr.eqns:
        taken = [read(each) for each in equation.invars]
        if equation.primitive.name == "jit":
            results = _inlined(equation.params["jaxpr"], taken, operations)
        else:
            is_drawn = any(each.is_drawn for each in taken)
            is_drawn |= equation.primitive.name == "random_bits"
            results = [_Value(each.aval, is_drawn=is_drawn) for each in equation.outvars]
            operations.append((equation, taken, results))
        values |= zip(equation.outvars, results, strict=True)
    return [read(each) for each in jaxpr.outvars]


def _notes_needs(equation: JaxprEqn, inputs: list[_Value], outputs: list[_Value]) -> bool:
    """Note what an operation needs of its inputs, and return whether it is needed itself."""
    is_whole = any(each.is_whole for each in outputs)
    is_taken = any(each.is_taken for each in outputs)
    is_mixed = any(each.is_mixed for each in outputs)
    if not (is_whole or is_taken or equation.effects or not outputs):
        return False
    if _takes_apart(equation):
        is_taken |= any(each.is_whole for each in outputs if each.aval.ndim == 1)
        is_whole = any(each.is_whole for each in outputs if each.aval.ndim == 2)
    elif is_taken and _is_by_column(equation):
        is_mixed = True
    elif not (is_mixed and _stacks(equation)):
        is_whole, is_taken, is_mixed = True, False, False
    for each in inputs:
        each.is_whole |= is_whole
        each.is_taken |= is_taken
        each.is_mixed |= is_mixed
    return True


def _takes_apart(equation: JaxprEqn) -> bool:
    """Return whether an operation takes columns out of an array `[N, k]`."""
    operand: Any = equation.invars[0].aval if len(equation.invars) == 1 else None
    if getattr(operand, "ndim", 0) != 2:
        return False
    name, params = equation.primitive.name, equation.params
    rows, size = operand.shape
    if name == "squeeze":
        return params["dimensions"] == (1,)
    if name == "slice":
        of_rows = (params["start_indices"][0], params["limit_indices"][0])
        return of_rows == (0, rows) and params["strides"] in (None, (1, 1))
    # What has several results that are together as large as its operand, whatever its name.
    avals: Any = [each.aval for each in equation.outvars]
    return (
        len(avals) > 1
        and all(each.shape[:1] == (rows,) and each.ndim <= 2 for each in avals)
        and sum(each.size for each in avals) == rows * size
    )


def _stacks(equation: JaxprEqn) -> bool:
    """Return whether an operation makes an array `[N, k]` of columns."""
    name, params = equation.primitive.name, equation.params
    result: Any = equation.outvars[0].aval
    shape = result.shape
    if len(shape) != 2 or max(shape, default=0) == 0:
        return False
    if name == "concatenate":
        return params["dimension"] == 1 and shape[1] <= _MOST_COLUMNS
    if name == "stack":
        first: Any = equation.invars[0].aval
        return first.ndim == 1 and len(equation.invars) <= _MOST_COLUMNS
    return name == "transpose"


def _is_by_column(equation: JaxprEqn) -> bool:
    """Return whether an operation gives the columns of its result from those of its operands.

    It does if it also takes `[N]` in place of `[N, k]`.
    """
    avals: Any = [each.aval for each in (*equation.outvars, *equation.invars)]
    return (
        all(each.ndim in (0, 2) for each in avals)
        and avals[0].ndim == 2
        and avals[0].shape[1] <= _MOST_COLUMNS
        and shape_for(equation, lambda shape: shape[:1]) == avals[0].shape[:1]
    )


def _results(equation: JaxprEqn, inputs: list[_Value], outputs: list[_Value]) -> Sequence[Any]:
    primitive = equation.primitive
    name = primitive.name
    held = [each.held for each in inputs]
    avals: list[Any] = [each.aval for each in inputs]
    params = {name: _with_forms(value) for name, value in equation.params.items()}

    def compute(*inputs: Any) -> Any:
        if name in FORMS and avals[0].dtype == np.float32:
            return FORMS[name](*inputs)
        return primitive.bind(*inputs, **primitive.get_bind_params(params))

    if (columns := _in_columns(equation, held, outputs, compute)) is not None:
        return columns
    held = [*map(_array, held)]
    if name in _EXTREMES and inputs[0].is_drawn:
        (operand,), (axis,) = held, params["axes"]
        return [_first_extreme(_EXTREMES[name], operand, axis, params["index_dtype"])]
    if name == "dot_general" and _is_small_product(avals, params):
        return [_product(*held)]
    results = compute(*held)
    return results if primitive.multiple_results else [results]


def _in_columns(
    equation: JaxprEqn, held: list[Any], outputs: list[_Value], compute: Callable[..., Any]
) -> Sequence[Any] | None:
    """Return the results of an operation on columns, or None if it is better done on arrays."""
    name, params = equation.primitive.name, equation.params
    has_columns = any(isinstance(each, _Columns) and each.axis == 1 for each in held)
    if has_columns and _takes_apart(equation):
        columns = held[0].columns
        last = params["start_indices"][1] if name == "slice" else 0
        results = []
        for output in outputs:
            first, last = last, last + math.prod(output.aval.shape[1:])
            is_one = output.aval.ndim == 1
            results.append(columns[first] if is_one else _Columns(columns[first:last]))
        return results
    if not outputs or not outputs[0].is_taken:
        return None
    output, columns = outputs[0], None
    if output.is_mixed and _stacks(equation):
        if name == "stack":
            columns = _Columns(held, params["axis"])
        elif name == "concatenate":
            columns = _Columns([column for each in held for column in _columns_of(each)])
        elif isinstance(held[0], _Columns):
            columns = _Columns(held[0].columns, 1 - held[0].axis)
    elif name == "random_bits" and not output.is_whole and _is_few_words(params, held[0]):
        words = jax.random.key_data(held[0])
        first, second = words[:, 0], words[:, 1]
        indices = np.arange(params["shape"][0], dtype=np.uint32)
        with np.errstate(over="ignore"):  # the generator's products of known numbers
            columns = _Columns([draw_word(first, second, i) for i in indices])
    elif has_columns and _is_by_column(equation):
        rows = zip(*(_columns_of(each, output.aval.shape[1]) for each in held), strict=True)
        columns = _Columns([compute(*row) for row in rows])
    return None if columns is None else [columns]


def _is_few_words(draw: Any, keys: jax.Array) -> bool:
    """Return whether a draw of our generator gives a few words for each key of `[N]`."""
    is_few = len(draw["shape"]) == keys.ndim == 1 and 0 < draw["shape"][0] <= _MOST_COLUMNS
    return is_few and draw["bit_width"] == 32 and jax.random.key_impl(keys) == MIX2X32


def _columns_of(value: Any, number: int | None = None) -> Sequence[Any]:
    """Return the columns of one array. A number, or a single column, is all of `number`."""
    columns = [value]
    if isinstance(value, _Columns):
        columns = value.columns
    elif np.ndim(value):
        columns = [value[:, i] for i in range(value.shape[1])]
    return [*columns] * (1 if number in (None, len(columns)) else number)


def _array(value: Any) -> Any:
    """Return an ordinary array for columns, and anything else as it is."""
    return jnp.stack(value.columns, value.axis) if isinstance(value, _Columns) else value


def _with_forms(value: Any) -> Any:
    """Return a program, or programs, of a loop or a branch in their forms, and else the value."""
    if type(value) is tuple:
        return tuple(map(_with_forms, value))
    if not isinstance(value, ClosedJaxpr) or not _REPLACED & count_primitives(value.jaxpr).keys():
        return value
    return jax.make_jaxpr(lambda *args: _evaluate(value, *args))(*value.in_avals)
