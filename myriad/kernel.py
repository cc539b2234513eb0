"""A chunk of steps as one GPU kernel, in which the environments' states stay in registers.

XLA launches at least one kernel for a few steps, and between kernels the states go through the
device's memory. Here one Pallas kernel, which Triton compiles, runs all steps of a chunk. Its
program is the step of one environment, traced and written out in scalars. Each scalar is a vector
over the environments of a block, so a thread runs environments of its own and waits for no other.
`Rollout` calls `refusal` and `run_steps`.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from myriad.random import MIX2X32, SPLIT, draw_word, fold_words
from myriad.xla import holds_keys, numbers_of

# Environments of a block, and the warps of 32 threads that run it.
BLOCK, WARPS = 128, 4
# A step of more operations than this compiles for minutes, and its state fits in no registers.
_MOST_OPERATIONS = 8_000
# A loop of at most this many passes is written out.
_MOST_WRITTEN_OUT = 32

_ELEMENTWISE = frozenset(
    (  # noqa: SIM905  (one name a line would be sixty lines)
        "abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type cbrt ceil "
        "clamp clz convert_element_type cos cosh div eq exp exp2 expm1 floor ge gt integer_pow "
        "is_finite le log log1p log2 logistic lt max min mul ne neg nextafter not "
        "one_minus_square or pow rem rsqrt select_n shift_left "
        "shift_right_arithmetic shift_right_logical sin sinh sqrt square sub tan tanh xor"
    ).split()
)
# Operations that only move elements. What they do to the numbers of elements, they do to elements.
_MOVES = frozenset(
    (  # noqa: SIM905
        "broadcast_in_dim concatenate copy dynamic_slice dynamic_update_slice expand_dims gather "
        "pad reshape rev slice split squeeze stack transpose unstack"
    ).split()
)
_UNCHANGED = frozenset({"optimization_barrier", "reshard"})
_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_sum": operator.add,
    "reduce_prod": operator.mul,
    "reduce_max": jnp.maximum,
    "reduce_min": jnp.minimum,
    "reduce_and": operator.and_,
    "reduce_or": operator.or_,
    "reduce_xor": operator.xor,
}
# Giles (2010), "Approximating the erfinv function", single precision: powers of w - 2.5 for w < 5,
# and of sqrt(w) - 3 beyond, where w = -log(1 - x * x).
_ERF_INV = tuple(
    (np.float32(near), np.float32(far))
    for near, far in (
        (2.81022636e-08, -0.000200214257),
        (3.43273939e-07, 0.000100950558),
        (-3.5233877e-06, 0.00134934322),
        (-4.39150654e-06, -0.00367342844),
        (0.00021858087, 0.00573950773),
        (-0.00125372503, -0.0076224613),
        (-0.00417768164, 0.00943887047),
        (0.246640727, 1.00167406),
        (1.50140941, 2.83297682),
    )
)


class UnsupportedError(Exception):
    """A step has an operation that has no form in the kernel."""


def refusal(step: ClosedJaxpr, states: Sequence[Any], num_columns: int = 0) -> str | None:
    """Return why a step can't be a kernel, or None if it can. Nothing is compiled.

    The arguments are those of `run_steps`, or their shapes.
    """
    key = jax.eval_shape(lambda: jax.random.key(0, impl=MIX2X32))
    arguments = (
        [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in states],
        jax.ShapeDtypeStruct((1, 3), key.dtype),
        jax.ShapeDtypeStruct((), jnp.uint32),
        jax.ShapeDtypeStruct((), jnp.int32),
    )
    try:
        run = jax.jit(functools.partial(run_steps, step, num_columns=num_columns, interpret=False))
        run.trace(*arguments).lower(lowering_platforms=("cuda",))
    except UnsupportedError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  (Pallas declares no error of its own)
        return f"Pallas can't lower its step, {type(error).__name__}"
    return None


def run_steps(
    step: ClosedJaxpr,
    states: Sequence[jax.Array],
    keys: jax.Array,
    first: jax.Array,
    num_steps: jax.Array,
    *,
    num_columns: int = 0,
    num_recorded: int | None = None,
    block: int = BLOCK,
    num_warps: int = WARPS,
    interpret: bool | None = None,
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Run `num_steps` steps of `N` environments in one kernel.

    Args:
        step: the step of one environment: from the leaves of its state, `[1, ...]`, three keys,
            `[3]`, and its index, uint32 `[1]`, to the leaves of the next state and those of a
            transition.
        states: the leaves of all states, `[N, ...]`.
        keys: the keys of the steps, `[T, 3]`, of the generator `mix2x32`.
        first: the index of the first environment, uint32 scalar.
        num_steps: how many steps, an int32 scalar of at most `T`.
        num_columns: how many leaves of the transitions to record.
        num_recorded: of how many environments to record them, by default of all.
        block: environments of a block, a power of two. No result depends on it or on `num_warps`.
        num_warps: warps of 32 threads that run a block.
        interpret: run the kernel's operations one by one, which a CPU can. By default it does.

    Returns:
        The leaves of the next states, and those of the trajectory, `[T, num_recorded, ...]`. Its
        rows from `num_steps` on are meaningless.

    Raises:
        UnsupportedError: `step` has an operation that the kernel can't have.
    """
    num_envs = states[0].shape[0]
    state_avals = step.in_avals[: len(states)]
    row_avals = step.out_avals[len(states) : len(states) + num_columns]
    num_recorded = num_envs if num_recorded is None else num_recorded
    flat = [_stored(leaf).reshape(-1) for leaf in states]
    rows = [
        jax.ShapeDtypeStruct((len(keys), num_recorded * len(_parts_of(aval))), _stored_dtype(aval))
        for aval in row_avals
    ]
    bounds = jnp.stack([jax.lax.bitcast_convert_type(first, jnp.int32), num_steps])

    def kernel(bounds: Any, words: Any, *refs: Any) -> None:
        of_before, of_after, of_rows = (
            refs[: len(flat)],
            refs[len(flat) : 2 * len(flat)],
            refs[2 * len(flat) :],
        )
        lane = pl.program_id(0) * block + jax.lax.broadcasted_iota(jnp.int32, (block,), 0)
        mask, recorded = lane < num_envs, lane < num_recorded
        env_index = (bounds[0] + lane).astype(jnp.uint32)

        def load(ref: Any, aval: Any) -> list[jax.Array]:
            size = len(_parts_of(aval))
            parts = [triton.load(ref.at[lane * size + i], mask=mask, other=0) for i in range(size)]
            return [part != 0 for part in parts] if aval.dtype == bool else parts

        def store(ref: Any, mask: jax.Array, parts: Sequence[Any], *row: jax.Array) -> None:
            for i, part in enumerate(parts):
                value = _vector(part, block).astype(ref.dtype)
                triton.store(ref.at[(*row, lane * len(parts) + i)], value, mask=mask)

        def body(i: jax.Array, parts: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            step_keys = [_Key(words[6 * i + 2 * p], words[6 * i + 2 * p + 1]) for p in range(3)]
            values = [
                *_assembled(parts, state_avals),
                _objects(step_keys, (3,)),
                _objects([env_index], (1,)),
            ]
            wanted = len(states) + len(rows)
            results = _Scalars(block).evaluate(step.jaxpr, step.consts, values, wanted)
            for ref, value in zip(of_rows, results[len(states) :], strict=True):
                store(ref, recorded, _taken_apart([value]), i)
            return tuple(_vector(part, block) for part in _taken_apart(results[: len(states)]))

        before = [
            part
            for ref, aval in zip(of_before, state_avals, strict=True)
            for part in load(ref, aval)
        ]
        after = jax.lax.fori_loop(0, bounds[1], body, tuple(before))
        for ref, value in zip(of_after, _assembled(after, state_avals), strict=True):
            store(ref, mask, _taken_apart([value]))

    interpret = jax.default_backend() != "gpu" if interpret is None else interpret
    results = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in flat] + rows,
        grid=(-(-num_envs // block),),
        # The states after the chunk are written over those before it.
        input_output_aliases={2 + i: i for i in range(len(flat))},
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=num_warps),
        name="chunk",
    )(bounds, jax.random.key_data(keys).reshape(-1), *flat)
    return (
        [_restored(stored, leaf.shape, leaf.dtype) for stored, leaf in zip(results, states, strict=False)],
        [
            _restored(stored, (len(keys), num_recorded, *aval.shape[1:]), aval.dtype)
            for stored, aval in zip(results[len(flat) :], row_avals, strict=True)
        ],
    )


@dataclasses.dataclass(frozen=True)
class _Key:
    """The two words of a key of `mix2x32`, an element of an array of keys."""

    first: Any
    second: Any


class _Scalars:
    """Evaluates a program whose arrays are written out in scalars.

    A value is a NumPy array of the shape that it has in the program. It holds numbers if the
    program's text determines them, and otherwise objects. An object is a number, a traced scalar,
    or a traced vector over the environments, `[block]`. In an array of keys it is a `_Key`.
    """

    def __init__(self, block: int):
        self.block = block
        self.num_operations = 0

    def evaluate(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Any],
        args: Sequence[np.ndarray],
        wanted: int | None = None,
    ) -> list[np.ndarray]:
        """Return the first `wanted` results of a program, by default all."""
        outvars = jaxpr.outvars[:wanted]
        needed = {variable for variable in outvars if not isinstance(variable, Literal)}
        equations = []
        for equation in reversed(jaxpr.eqns):
            if needed.intersection(equation.outvars):
                equations.append(equation)
                needed.update(v for v in equation.invars if not isinstance(v, Literal))
        values = dict(zip(jaxpr.invars, args, strict=True))
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            if variable in needed:
                values[variable] = np.asarray(const)

        def read(variable: Any) -> np.ndarray:
            if isinstance(variable, Literal):
                return np.asarray(variable.val, variable.aval.dtype)
            return values[variable]

        for equation in reversed(equations):
            results = self._apply(equation, [read(variable) for variable in equation.invars])
            values |= zip(equation.outvars, results, strict=True)
        return [read(variable) for variable in outvars]

    def _apply(self, equation: JaxprEqn, args: list[np.ndarray]) -> Sequence[np.ndarray]:
        name, params = equation.primitive.name, equation.params
        inner = params.get("jaxpr") or params.get("call_jaxpr") or params.get("call")
        if rule := _RULES.get(name):
            return rule(self, equation, *args)
        if name in _UNCHANGED:
            return args
        if inner is not None:
            program, consts = inner, ()
            if isinstance(inner, ClosedJaxpr):
                program, consts = inner.jaxpr, inner.consts
            return self.evaluate(program, consts, args)
        if not any(value.dtype == object for value in args):
            return _computed(equation, args)
        if name in _MOVES:
            return _moved(equation, args)
        if name in _REDUCTIONS:
            return [self.reduced(_REDUCTIONS[name], args[0], params["axes"])]
        if name in _ELEMENTWISE:
            return [self.each(functools.partial(equation.primitive.bind, **params), *args)]
        raise UnsupportedError(f"{name} has no form in a kernel")

    def each(self, operation: Callable[..., Any], *args: np.ndarray) -> np.ndarray:
        """Apply an operation to each element of broadcast arrays, and to each word of keys."""
        arrays = np.broadcast_arrays(*args)
        self.num_operations += arrays[0].size
        if self.num_operations > _MOST_OPERATIONS:
            raise UnsupportedError(f"a step has more than {_MOST_OPERATIONS:,} operations")
        results = []
        for elements in zip(*(array.reshape(-1) for array in arrays), strict=True):
            if any(isinstance(element, _Key) for element in elements):
                words = [
                    [getattr(x, word) if isinstance(x, _Key) else x for x in elements]
                    for word in ("first", "second")
                ]
                results.append(_Key(*(operation(*self._alike(each)) for each in words)))
            else:
                results.append(operation(*self._alike(elements)))
        return _objects(results, arrays[0].shape)

    def each_key(
        self, operation: Callable[..., Any], keys: np.ndarray, numbers: np.ndarray
    ) -> np.ndarray:
        """Apply an operation on the first and the second words of keys and on numbers."""
        first, second = (
            _objects([getattr(key, word) for key in keys.reshape(-1)], keys.shape)
            for word in ("first", "second")
        )
        return self.each(operation, first, second, numbers)

    def _alike(self, elements: Sequence[Any]) -> Sequence[Any]:
        """Make vectors of all elements if one is a vector, since Triton wants equal shapes."""
        if any(np.ndim(element) for element in elements):
            return [_vector(element, self.block) for element in elements]
        return elements

    def reduced(self, operation: Callable[..., Any], array: np.ndarray, axes: Any) -> np.ndarray:
        """Combine the elements along axes, one after the other."""
        kept = [axis for axis in range(array.ndim) if axis not in axes]
        rows = np.transpose(array, [*axes, *kept]).reshape(-1, *(array.shape[i] for i in kept))
        return functools.reduce(functools.partial(self.each, operation), _rows(rows))

    def looped(
        self,
        once: Callable[[list[np.ndarray]], list[np.ndarray]],
        carry: list[np.ndarray],
        avals: Sequence[Any],
        goes_on: Callable[[list[np.ndarray]], jax.Array],
    ) -> list[np.ndarray]:
        """Loop `carry = once(carry)` while it goes on."""

        def body(parts: Sequence[Any]) -> tuple[Any, ...]:
            results = _taken_apart(once(_assembled(parts, avals)))
            return tuple(
                _vector(new, self.block) if np.ndim(old) else new
                for new, old in zip(results, parts, strict=True)
            )

        parts, num_vectors = tuple(_taken_apart(carry)), -1
        # What is the same for a whole block at first may differ within it later.
        while num_vectors != (num_vectors := sum(np.ndim(part) for part in parts)):
            parts = tuple(
                _vector(part, self.block) if result.ndim else part
                for part, result in zip(parts, jax.eval_shape(body, parts), strict=True)
            )
        after = jax.lax.while_loop(lambda parts: goes_on(_assembled(parts, avals)), body, parts)
        return _assembled(after, avals)


# One function for each operation that isn't elementwise, or that Triton lacks.


def _random_fold_in(
    scalars: _Scalars, _: JaxprEqn, keys: np.ndarray, numbers: np.ndarray
) -> list[np.ndarray]:
    def fold(first: Any, second: Any, number: Any) -> _Key:
        return _Key(*fold_words(first, second, number.astype(jnp.uint32)))

    return [scalars.each_key(fold, keys, numbers)]


def _random_split(scalars: _Scalars, equation: JaxprEqn, keys: np.ndarray) -> list[np.ndarray]:
    def child(first: Any, second: Any, number: Any) -> _Key:
        return _Key(*fold_words(*fold_words(first, second, SPLIT), number))

    return [scalars.each_key(child, *_numbered(keys, equation.params["shape"]))]


def _random_bits(scalars: _Scalars, equation: JaxprEqn, keys: np.ndarray) -> list[np.ndarray]:
    width = equation.params["bit_width"]
    if width > 32:
        raise UnsupportedError("a draw of 64 bits has no form in a kernel")

    def draw(first: Any, second: Any, number: Any) -> jax.Array:
        word = draw_word(first, second, number)
        return word if width == 32 else (word >> (32 - width)).astype(f"uint{width}")

    return [scalars.each_key(draw, *_numbered(keys, equation.params["shape"]))]


def _numbered(keys: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
    return keys.reshape(keys.shape + (1,) * len(shape)), numbers


def _random_wrap(scalars: _Scalars, _: JaxprEqn, words: np.ndarray) -> list[np.ndarray]:
    pairs = zip(words[..., 0].reshape(-1), words[..., 1].reshape(-1), strict=True)
    return [_objects([_Key(*pair) for pair in pairs], words.shape[:-1])]


def _random_unwrap(scalars: _Scalars, _: JaxprEqn, keys: np.ndarray) -> list[np.ndarray]:
    return [_objects(_taken_apart([keys]), (*keys.shape, 2))]


def _round(scalars: _Scalars, equation: JaxprEqn, array: np.ndarray) -> list[np.ndarray]:
    to_even = equation.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    # Floats from here on are whole. Below, a sum with it leaves no fraction.
    whole_from = np.float32(2**23)

    def rounded(x: jax.Array) -> jax.Array:
        size = jnp.abs(x)
        # The maximum changes nothing, but keeps XLA from cancelling the two.
        whole = jnp.maximum(size + whole_from, whole_from) - whole_from
        if not to_even:
            whole = jnp.where(size - whole == np.float32(0.5), size + np.float32(0.5), whole)
        return jnp.where(size < whole_from, jnp.where(x < 0, -whole, whole), x)

    return [scalars.each(rounded, array)]


def _sign(scalars: _Scalars, _: JaxprEqn, array: np.ndarray) -> list[np.ndarray]:
    def sign(x: jax.Array) -> jax.Array:
        one = jnp.ones_like(x)
        return jnp.where(x > 0, one, jnp.where(x < 0, -one, x))

    return [scalars.each(sign, array)]


def _erf_inv(scalars: _Scalars, _: JaxprEqn, array: np.ndarray) -> list[np.ndarray]:
    def erf_inv(x: jax.Array) -> jax.Array:
        w = -jnp.log1p(-x * x)
        is_near = w < np.float32(5)
        w = jnp.where(is_near, w - np.float32(2.5), jnp.sqrt(w) - np.float32(3))
        value = jnp.zeros_like(x)
        for near, far in _ERF_INV:
            value = value * w + jnp.where(is_near, near, far)
        return jnp.where(jnp.abs(x) == np.float32(1), x * np.float32(np.inf), value * x)

    return [scalars.each(erf_inv, array)]


def _population_count(scalars: _Scalars, _: JaxprEqn, array: np.ndarray) -> list[np.ndarray]:
    # Triton counts the bits of signed integers alone.
    def count(x: jax.Array) -> jax.Array:
        return jax.lax.population_count(x.astype(jnp.int32)).astype(x.dtype)

    return [scalars.each(count, array)]


def _dot_general(
    scalars: _Scalars, equation: JaxprEqn, one: np.ndarray, two: np.ndarray
) -> list[np.ndarray]:
    (sum_one, sum_two), (batch_one, batch_two) = equation.params["dimension_numbers"]
    free_one = [i for i in range(one.ndim) if i not in (*sum_one, *batch_one)]
    free_two = [i for i in range(two.ndim) if i not in (*sum_two, *batch_two)]
    one = np.transpose(one, [*sum_one, *batch_one, *free_one])
    two = np.transpose(two, [*sum_two, *batch_two, *free_two])
    shared = len(sum_one) + len(batch_one)
    one = one.reshape(*one.shape, *(1,) * len(free_two))
    two = two.reshape(*two.shape[:shared], *(1,) * len(free_one), *two.shape[shared:])
    products = scalars.each(operator.mul, one, two)
    return [scalars.reduced(operator.add, products, range(len(sum_one)))]


def _first_best(beats: Callable[[Any, Any], Any]) -> Any:
    def argbest(scalars: _Scalars, equation: JaxprEqn, array: np.ndarray) -> list[np.ndarray]:
        (axis,) = equation.params["axes"]

        def better(new: Any, old: Any) -> Any:
            # The first NaN is the best of all, as in NumPy.
            return (beats(new, old) & (old == old)) | ((new != new) & (old == old))

        best, *rest = _rows(np.moveaxis(array, axis, 0))
        number = np.zeros(best.shape, equation.params["index_dtype"])
        for i, row in enumerate(rest, start=1):
            wins = scalars.each(better, row, best)
            number = scalars.each(jnp.where, wins, np.asarray(i, number.dtype), number)
            best = scalars.each(jnp.where, wins, row, best)
        return [number]

    return argbest


def _cond(
    scalars: _Scalars, equation: JaxprEqn, index: np.ndarray, *args: np.ndarray
) -> list[np.ndarray]:
    # Compute all branches, since the environments of a block may take different ones.
    results, *others = (
        scalars.evaluate(each.jaxpr, each.consts, args) for each in equation.params["branches"]
    )
    for i, other in enumerate(others, start=1):
        taken = scalars.each(lambda index, i=i: index >= np.int32(i), index)
        results = [
            scalars.each(jnp.where, taken, new, old)
            for new, old in zip(other, results, strict=True)
        ]
    return results


def _while(scalars: _Scalars, equation: JaxprEqn, *args: np.ndarray) -> list[np.ndarray]:
    params = equation.params
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body = args[:num_cond], args[num_cond : num_cond + num_body]

    def goes_on(carry: list[np.ndarray]) -> jax.Array:
        (result,) = scalars.evaluate(condition.jaxpr, condition.consts, [*of_cond, *carry])
        going = result.reshape(-1)[0]
        # The program itself leaves an environment alone that is done before others.
        return jnp.max(going.astype(jnp.int32)) > 0 if np.ndim(going) else going

    def once(carry: list[np.ndarray]) -> list[np.ndarray]:
        return scalars.evaluate(body.jaxpr, body.consts, [*of_body, *carry])

    carry = list(args[num_cond + num_body :])
    return scalars.looped(once, carry, body.in_avals[num_body:], goes_on)


def _scan(scalars: _Scalars, equation: JaxprEqn, *args: np.ndarray) -> list[np.ndarray]:
    params = equation.params
    length, body = params["length"], params["jaxpr"]
    if "ft_in" in params:  # from jax 0.11 on
        num_consts, num_carry, _ = map(len, params["ft_in"].unpack())
    else:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
    last = num_consts + num_carry
    consts, carry, columns = args[:num_consts], list(args[num_consts:last]), args[last:]

    def once(carry: Sequence[np.ndarray], *row: np.ndarray) -> list[np.ndarray]:
        return scalars.evaluate(body.jaxpr, body.consts, [*consts, *carry, *row])

    if not columns and len(body.out_avals) == len(carry):
        number = np.zeros((), np.int32)
        avals = [jax.core.ShapedArray((), np.int32), *body.in_avals[num_consts:last]]
        _, *carry = scalars.looped(
            lambda carry: [scalars.each(operator.add, carry[0], np.int32(1)), *once(carry[1:])],
            [number, *carry],
            avals,
            lambda carry: carry[0].reshape(-1)[0] < length,
        )
        return carry
    if length > _MOST_WRITTEN_OUT:
        raise UnsupportedError(f"a scan of {length} passes over rows has no form in a kernel")
    rows = list(zip(*map(_rows, columns), strict=True)) if columns else [()] * length
    written: list[list[np.ndarray]] = []
    for row in reversed(rows) if params["reverse"] else rows:
        results = once(carry, *row)
        carry = results[: len(carry)]
        written.append(results[len(carry) :])
    written = written[::-1] if params["reverse"] else written
    return [*carry, *(np.stack(column) for column in zip(*written, strict=True))]


_RULES: dict[str, Callable[..., Sequence[np.ndarray]]] = {
    "argmax": _first_best(operator.gt),
    "argmin": _first_best(operator.lt),
    "cond": _cond,
    "dot_general": _dot_general,
    "erf_inv": _erf_inv,
    "population_count": _population_count,
    "random_bits": _random_bits,
    "random_fold_in": _random_fold_in,
    "random_split": _random_split,
    "random_unwrap": _random_unwrap,
    "random_wrap": _random_wrap,
    "round": _round,
    "scan": _scan,
    "sign": _sign,
    "while": _while,
}


def _computed(equation: JaxprEqn, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute now what the program's text determines."""
    host, nothing = jax.local_devices(backend="cpu")[0], jax.sharding.AbstractMesh((), ())
    with (
        jax.ensure_compile_time_eval(),
        jax.default_device(host),
        jax.sharding.use_abstract_mesh(nothing),
    ):
        results = equation.primitive.bind(*map(jnp.asarray, args), **equation.params)
        results = results if equation.primitive.multiple_results else [results]
        return [np.asarray(result) for result in results]


def _moved(equation: JaxprEqn, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Move elements as the operation moves their numbers."""
    name = equation.primitive.name
    num_data = {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1}.get(name, len(args))
    data, known = args[:num_data], args[num_data:]
    if any(value.dtype == object for value in known):
        raise UnsupportedError(f"{name} at indices that differ by environment has no form in a kernel")
    elements = [element for value in data for element in value.reshape(-1)]
    ends = np.cumsum([value.size for value in data])
    numbers = [
        np.arange(end - value.size, end, dtype=np.int32).reshape(value.shape)
        for value, end in zip(data, ends, strict=True)
    ]
    results = _computed(equation, [*numbers, *known])
    if any((result < 0).any() for result in results):
        raise UnsupportedError(f"{name} beyond an array's end has no form in a kernel")
    return [
        _objects([elements[i] for i in result.reshape(-1)], result.shape) for result in results
    ]


def _objects(elements: Sequence[Any], shape: Sequence[int]) -> np.ndarray:
    array = np.empty(len(elements), object)
    # One by one, since NumPy would look into a sequence of arrays.
    for i, element in enumerate(elements):
        array[i] = element
    return array.reshape(shape)


def _rows(array: np.ndarray) -> list[np.ndarray]:
    return [array[i : i + 1].reshape(array.shape[1:]) for i in range(len(array))]


def _vector(element: Any, block: int) -> jax.Array:
    return element if np.ndim(element) else jax.lax.full((block,), element, element.dtype)


def _parts_of(aval: Any) -> range:
    """Return the numbers of an environment's parts in a leaf: its elements, or words of keys."""
    return range(math.prod(aval.shape[1:]) * (2 if holds_keys(aval) else 1))


def _taken_apart(values: Sequence[np.ndarray]) -> list[Any]:
    parts = []
    for value in values:
        for element in value.reshape(-1):
            parts += [element.first, element.second] if isinstance(element, _Key) else [element]
    return parts


def _assembled(parts: Sequence[Any], avals: Sequence[Any]) -> list[np.ndarray]:
    rest = iter(parts)
    return [
        _objects(
            [
                _Key(next(rest), next(rest)) if holds_keys(aval) else next(rest)
                for _ in range(math.prod(aval.shape))
            ],
            aval.shape,
        )
        for aval in avals
    ]


def _stored(leaf: jax.Array) -> jax.Array:
    """Return a leaf as the kernel reads it: keys by their words, and booleans in bytes."""
    return numbers_of(leaf).astype(_stored_dtype(leaf))


def _stored_dtype(leaf: Any) -> Any:
    if holds_keys(leaf):
        return jnp.uint32
    return jnp.uint8 if leaf.dtype == bool else leaf.dtype


def _restored(stored: jax.Array, shape: Sequence[int], dtype: Any) -> jax.Array:
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(stored.reshape(*shape, 2), impl=MIX2X32)
    return stored.reshape(shape).astype(dtype)
