"""A chunk of steps as one GPU kernel, in which the environments' states stay in registers.

XLA launches a kernel for every few steps, and between kernels the states go through the device's
memory. Here one Pallas kernel, which Triton compiles, runs all steps of a chunk. It is the step of
one environment, traced and written out in scalars. Each scalar is a vector over the environments of
a block, so a thread runs environments of its own. `Rollout` makes a `ChunkKernel`.
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
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from myriad.engine import gpu_loops
from myriad.engine.devices import numbers_of
from myriad.engine.fusion import count_primitives
from myriad.engine.random import MIX2X32, SPLIT, draw_word, fold_words, holds_keys

# Two steps of a cheap environment are written out, so that the draws of one hide the waits of the
# other. A step of too many operations would compile for minutes and leave no registers.
_UNROLLED_OPERATIONS, _MOST_OPERATIONS = 512, 8_000

# Operations on each element for which Triton has code.
_ELEMENTWISE = set(
    (  # noqa: SIM905  (one name a line would be sixty lines)
        "abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type cbrt ceil "
        "clamp convert_element_type cos cosh div eq exp exp2 expm1 floor ge gt integer_pow "
        "is_finite le log log1p log2 logistic lt max min mul ne neg nextafter not "
        "one_minus_square or pow rem rsqrt select_n shift_left shift_right_arithmetic "
        "shift_right_logical sin sinh sqrt square sub tan tanh xor"
    ).split()
)
# Operations that move elements, and how many of their arguments hold these, if not all do.
_MOVES: dict[str, int | None] = dict.fromkeys(
    (  # noqa: SIM905
        "broadcast_in_dim concatenate copy pad reshape rev slice split squeeze stack transpose "
        "unstack"
    ).split()
) | {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_and": operator.and_,
    "reduce_max": jnp.maximum,
    "reduce_min": jnp.minimum,
    "reduce_or": operator.or_,
    "reduce_prod": operator.mul,
    "reduce_sum": operator.add,
}
# Coefficients of `_erf_inv` for w < 5 and beyond, the highest power first.
_ERF_INV = np.array(
    [
        (2.81022636e-08, -0.000200214257),
        (3.43273939e-07, 0.000100950558),
        (-3.5233877e-06, 0.00134934322),
        (-4.39150654e-06, -0.00367342844),
        (0.00021858087, 0.00573950773),
        (-0.00125372503, -0.0076224613),
        (-0.00417768164, 0.00943887047),
        (0.246640727, 1.00167406),
        (1.50140941, 2.83297682),
    ],
    np.float32,
)


@dataclasses.dataclass(frozen=True)
class ChunkKernel:
    """A chunk of a rollout's steps on one device, as one kernel.

    Attributes:
        step: the step of one environment, as `run_steps` takes it.
        shapes: of its results, a state and a transition.
        num_recorded: how many environments to record.
    """

    step: ClosedJaxpr
    shapes: Any
    num_recorded: int

    @classmethod
    def of(
        cls, step: Callable[..., Any], states: Any, keys: Any, shared: Any, num_recorded: int
    ) -> tuple["ChunkKernel | None", str | None]:
        """Trace `step(states, keys, env_index, shared)` for one environment, from shapes.

        Returns:
            the kernel, or None, and why there is none.
        """
        leaves, structure = jax.tree.flatten(states)

        def of_leaves(
            leaves: list[jax.Array], shared: jax.Array, keys: jax.Array, env_index: jax.Array
        ) -> Any:
            return step(jax.tree.unflatten(structure, leaves), keys, env_index, shared)

        one = [jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
        with gpu_loops.inside_kernel():
            traced, shapes = jax.make_jaxpr(of_leaves, return_shape=True)(
                one, shared, keys, jax.ShapeDtypeStruct((1,), jnp.uint32)
            )
        reason = refusal(traced, leaves)
        return (None if reason else cls(traced, shapes, num_recorded)), reason

    def run(
        self,
        states: Any,
        keys: jax.Array,
        first: jax.Array,
        num_steps: jax.Array,
        shared: jax.Array,
        kept: Callable[[Any], Any],
    ) -> tuple[Any, Any] | None:
        """Do as `run_steps`, with a tree of states and with what is kept of each transition.

        Returns None if there is no kernel that keeps so much.
        """
        leaves, structure = jax.tree.flatten(states)
        columns, kept_structure = jax.tree.flatten(kept(self.shapes[1]))
        if columns and refusal(self.step, leaves, len(columns), len(keys)):
            return None
        leaves, rows = run_steps(
            self.step,
            leaves,
            shared,
            keys,
            first,
            num_steps,
            num_columns=len(columns),
            num_recorded=self.num_recorded,
        )
        return jax.tree.unflatten(structure, leaves), jax.tree.unflatten(kept_structure, rows)


class UnsupportedError(Exception):
    """A step has an operation that has no form in the kernel."""


def refusal(
    step: ClosedJaxpr, states: Sequence[Any], num_columns: int = 0, num_rows: int = 1
) -> str | None:
    """Return why a step can't be a kernel, or None if it can, without compiling it.

    The arguments are those of `run_steps`, or their shapes, and the rows of the trajectory.
    """
    *_, shared, key, _ = step.in_avals
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in states]
    floats = jax.ShapeDtypeStruct(shared.shape, shared.dtype)
    words = [jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.int32)]
    run = functools.partial(
        run_steps,
        step,
        num_columns=num_columns,
        num_recorded=states[0].shape[0],
        interpret=False,
    )
    try:
        keys = jax.ShapeDtypeStruct((num_rows, 3), key.dtype)
        traced = jax.jit(run).trace(shapes, floats, keys, *words)
        traced.lower(lowering_platforms=("cuda",))
    except UnsupportedError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  (Pallas declares no error of its own)
        return f"Pallas can't lower the step ({type(error).__name__})"
    return None


def run_steps(  # noqa: C901, PLR0913, PLR0915  (the whole kernel in one place)
    step: ClosedJaxpr,
    states: Sequence[jax.Array],
    shared: jax.Array,
    keys: jax.Array,
    first: jax.Array,
    num_steps: jax.Array,
    *,
    num_columns: int = 0,
    num_recorded: int = 0,
    shape: tuple[int, int] = (128, 4),
    interpret: bool | None = None,
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Run `num_steps` steps of `N` environments in one kernel.

    Args:
        step: the step of one environment: from the leaves of its state, `[1, ...]`, the shared
            numbers, `[P]`, three keys, `[3]`, and its index, uint32 `[1]`, to the leaves of the
            next state and a transition's.
        states: the leaves of all states, `[N, ...]`.
        shared: numbers that all environments share, float32 `[P]`.
        keys: the keys of the steps, `[T, 3]`, of the generator `mix2x32`.
        first: the index of the first environment, uint32 scalar.
        num_steps: how many steps, an int32 scalar of at most `T`.
        num_columns: how many leaves of the transitions to record.
        num_recorded: how many environments to record.
        shape: environments of a block, and the warps that run it. No result depends on it.
        interpret: run the kernel's operations one by one, as a CPU does by default.

    Returns:
        The leaves of the next states and of the trajectory, `[T, num_recorded, ...]`. Rows from
        `num_steps` on are meaningless.

    Raises:
        UnsupportedError: `step` has an operation that the kernel can't have.
    """
    num_envs, (block, num_warps) = states[0].shape[0], shape
    avals = step.in_avals[: len(states)]
    columns = step.out_avals[len(states) : len(states) + num_columns]
    if any(holds_keys(aval) and aval.dtype != keys.dtype for aval in avals):
        raise UnsupportedError("a key of another generator in the state has no form in a kernel")
    is_unrolled = count_primitives(step.jaxpr).total() <= _UNROLLED_OPERATIONS
    # Keys are stored by their words, and booleans in bytes.
    stored = [numbers_of(leaf).reshape(num_envs, -1) for leaf in states]
    stored = [leaf.astype(jnp.uint8) if leaf.dtype == bool else leaf for leaf in stored]
    rows = [
        jax.ShapeDtypeStruct(
            (len(keys), num_recorded, math.prod(aval.shape)),
            jnp.uint8 if aval.dtype == bool else aval.dtype,
        )
        for aval in columns
    ]

    if any(math.prod(leaf.shape) >= 2**31 for leaf in [*stored, *rows]):
        raise UnsupportedError("an array of 2**31 numbers has no form in a kernel")

    def kernel(first: Any, num_steps: Any, words: Any, numbers: Any, *refs: Any) -> None:
        before, after = refs[: len(states)], refs[len(states) : 2 * len(states)]
        lane = pl.program_id(0) * block + jax.lax.broadcasted_iota(jnp.int32, (block,), 0)
        mask, is_recorded = lane < num_envs, lane < num_recorded
        env_index = first[0] + lane.astype(jnp.uint32)
        floats = _objects([numbers[i] for i in range(len(shared))], shared.shape)

        def store(value: np.ndarray, ref: Any, mask: jax.Array, *row: jax.Array) -> None:
            for j, part in enumerate(_taken_apart([value])):
                vector = _vector(part, block).astype(ref.dtype)
                triton.store(ref.at[(*row, lane, j)], vector, mask=mask)

        def body(i: jax.Array, parts: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            step_keys = _objects([_Key(words[i, p, 0], words[i, p, 1]) for p in range(3)], (3,))
            index = _objects([env_index], (1,))
            values = [*_assembled(parts, avals), floats, step_keys, index]
            num_wanted = len(states) + num_columns
            results = _Scalars(block).evaluate(step.jaxpr, step.consts, values, num_wanted)
            for value, ref in zip(results[len(states) :], refs[2 * len(states) :], strict=True):
                store(value, ref, is_recorded, i)
            return tuple(_vector(part, block) for part in _taken_apart(results[: len(states)]))

        parts = ()
        for ref, aval in zip(before, avals, strict=True):
            for j in range(ref.shape[1]):
                part = triton.load(ref.at[lane, j], mask=mask, other=0)
                parts = (*parts, part != 0 if aval.dtype == bool else part)
        # One pair of steps after the other, and then what is left.
        pairs = num_steps[0] // 2 if is_unrolled else 0
        if is_unrolled:
            pair = lambda i, parts: body(2 * i + 1, body(2 * i, parts))  # noqa: E731
            parts = jax.lax.fori_loop(0, pairs, pair, parts)
        parts = jax.lax.fori_loop(2 * pairs, num_steps[0], body, parts)
        for value, ref in zip(_assembled(parts, avals), after, strict=True):
            store(value, ref, mask)

    interpret = jax.default_backend() != "gpu" if interpret is None else interpret
    results = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in stored] + rows,
        grid=(-(-num_envs // block),),
        # The states after the chunk are written over those before it.
        input_output_aliases={4 + i: i for i in range(len(states))},
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=num_warps),
        name="chunk",
    )(
        first.reshape(1),
        num_steps.reshape(1),
        jax.random.key_data(keys),
        jnp.append(shared, 0),  # An array without elements has no form in a kernel.
        *stored,
    )

    def restored(leaf: jax.Array, aval: Any, *leading: int) -> jax.Array:
        if holds_keys(aval):
            leaf = leaf.reshape(*leading, *aval.shape[1:], 2)
            return jax.random.wrap_key_data(leaf, impl=MIX2X32)
        return leaf.reshape(*leading, *aval.shape[1:]).astype(aval.dtype)

    recorded = zip(results[len(states) :], columns, strict=True)
    return (
        [restored(leaf, aval, num_envs) for leaf, aval in zip(results, avals, strict=False)],
        [restored(leaf, aval, len(keys), num_recorded) for leaf, aval in recorded],
    )


@dataclasses.dataclass(frozen=True)
class _Key:
    """The two words of a key, which is one element of an array of keys."""

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
        self, jaxpr: Any, consts: Any, args: Sequence[np.ndarray], num_wanted: int | None = None
    ) -> list[np.ndarray]:
        """Return the first results of a program, by default all."""
        outvars = jaxpr.outvars[:num_wanted]
        needed, equations = {v for v in outvars if not isinstance(v, Literal)}, []
        for equation in reversed(jaxpr.eqns):
            if needed.intersection(equation.outvars):
                equations.append(equation)
                needed.update(v for v in equation.invars if not isinstance(v, Literal))
        values: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
        values |= {
            variable: np.asarray(const)
            for variable, const in zip(jaxpr.constvars, consts, strict=True)
            if variable in needed
        }

        def read(variable: Any) -> np.ndarray:
            if isinstance(variable, Literal):
                aval: Any = variable.aval
                return np.asarray(variable.val, aval.dtype)
            return values[variable]

        for equation in reversed(equations):
            results = self._results(equation, [read(variable) for variable in equation.invars])
            values |= zip(equation.outvars, results, strict=True)
        return [read(variable) for variable in outvars]

    def _results(  # noqa: PLR0911  (one for each kind of operation)
        self, equation: JaxprEqn, args: list[np.ndarray]
    ) -> Sequence[np.ndarray]:
        name, params = equation.primitive.name, equation.params
        inner = params.get("jaxpr") or params.get("call_jaxpr") or params.get("call")
        if rule := _RULES.get(name):
            return rule(self, params, *args)
        if inner is not None:
            # Before jax 0.11, a program without constants may be a bare `Jaxpr`.
            return self.evaluate(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), args)
        if not any(value.dtype == object for value in args):
            return _computed(equation, args)
        if name in _MOVES:
            return _moved(equation, args)
        if name in _REDUCTIONS:
            return [self.reduced(_REDUCTIONS[name], args[0], params["axes"])]
        if name in _ELEMENTWISE:
            return [self.each(functools.partial(equation.primitive.bind, **params), *args)]
        if name in _WRITTEN_OUT:
            return [self.each(lambda x: _WRITTEN_OUT[name](x, params), *args)]
        raise UnsupportedError(f"{name} has no form in a kernel")

    def each(self, operation: Callable[..., Any], *args: np.ndarray) -> np.ndarray:
        """Apply an operation to each element of broadcast arrays, and to each word of keys."""
        arrays = np.broadcast_arrays(*args)
        self.num_operations += arrays[0].size
        if self.num_operations > _MOST_OPERATIONS:
            raise UnsupportedError(f"a step has more than {_MOST_OPERATIONS:,} operations")

        def apply(elements: Sequence[Any]) -> Any:
            if any(isinstance(element, _Key) for element in elements):
                words = zip(*(_words(element) for element in elements), strict=True)
                return _Key(*map(apply, words))
            # Triton wants equal shapes.
            if any(np.ndim(element) for element in elements):
                elements = [_vector(element, self.block) for element in elements]
            return operation(*elements)

        rows = zip(*(array.reshape(-1) for array in arrays), strict=True)
        with np.errstate(over="ignore"):  # the generator's products of known numbers
            results = [*map(apply, rows)]
        return _objects(results, arrays[0].shape)

    def reduced(self, operation: Callable[..., Any], array: np.ndarray, axes: Any) -> np.ndarray:
        """Combine the elements along axes, one after the other."""
        array = np.moveaxis(array, axes, range(len(axes)))
        shape = array.shape[len(axes) :]
        rows = np.split(flat := array.reshape(-1, *shape), len(flat))
        return functools.reduce(functools.partial(self.each, operation), rows).reshape(shape)


# A function of the parameters and arguments for each operation that isn't elementwise.


def _random_fold_in(scalars: _Scalars, _: Any, keys: np.ndarray, numbers: np.ndarray) -> Any:
    def fold(first: Any, second: Any, number: Any) -> _Key:
        return _Key(*fold_words(first, second, number.astype(jnp.uint32)))

    return [scalars.each(fold, *_words(keys), numbers)]


def _random_split(scalars: _Scalars, params: Any, keys: np.ndarray) -> Any:
    def child(first: Any, second: Any, number: Any) -> _Key:
        return _Key(*fold_words(*fold_words(first, second, jnp.uint32(SPLIT)), number))

    return [scalars.each(child, *_numbered(keys, params["shape"]))]


def _random_bits(scalars: _Scalars, params: Any, keys: np.ndarray) -> Any:
    if params["bit_width"] != 32:
        raise UnsupportedError(f"a draw of {params['bit_width']} bits has no form in a kernel")
    return [scalars.each(draw_word, *_numbered(keys, params["shape"]))]


def _numbered(keys: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    numbers = np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
    first, second = _words(keys.reshape(keys.shape + (1,) * len(shape)))
    return first, second, numbers


def _random_wrap(_: _Scalars, params: Any, words: np.ndarray) -> Any:
    if params["impl"].name != "mix2x32":
        raise UnsupportedError(f"a key of {params['impl'].name} has no form in a kernel")
    pairs = zip(words[..., 0].reshape(-1), words[..., 1].reshape(-1), strict=True)
    return [_objects([_Key(*pair) for pair in pairs], words.shape[:-1])]


def _random_unwrap(_: _Scalars, params: Any, keys: np.ndarray) -> Any:
    return [_objects(_taken_apart([keys]), (*keys.shape, 2))]


def _rounded(x: jax.Array, params: Any) -> jax.Array:
    # Floats from here on are whole. Below, a sum with it leaves no fraction. The maximum changes
    # nothing, but keeps XLA from cancelling the two.
    size, whole_from = jnp.abs(x), np.float32(2**23)
    whole = jnp.maximum(size + whole_from, whole_from) - whole_from
    if params["rounding_method"] != jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        whole = jnp.where(size - whole == np.float32(0.5), size + np.float32(0.5), whole)
    return jnp.where(size < whole_from, jnp.where(x < 0, -whole, whole), x)


def _erf_inv(x: jax.Array, _: Any) -> jax.Array:
    # Giles (2010), "Approximating the erfinv function", in single precision.
    w = -jnp.log1p(-x * x)
    is_near = w < np.float32(5)
    w = jnp.where(is_near, w - np.float32(2.5), jnp.sqrt(w) - np.float32(3))
    value = jnp.zeros_like(x)
    for near, far in _ERF_INV:
        value = value * w + jnp.where(is_near, near, far)
    return jnp.where(jnp.abs(x) == np.float32(1), x * np.float32(np.inf), value * x)


def _population_count(x: jax.Array, _: Any) -> jax.Array:
    # Triton counts the bits of signed integers alone.
    return jax.lax.population_count(x.astype(jnp.int32)).astype(x.dtype)


def _sign(x: jax.Array, _: Any) -> jax.Array:
    one = jnp.ones_like(x)
    return jnp.where(x > 0, one, jnp.where(x < 0, -one, x))


def _while(scalars: _Scalars, params: Any, *args: np.ndarray) -> Any:
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body = args[:num_cond], args[num_cond : num_cond + num_body]
    avals = body.in_avals[num_body:]

    def going(carry: list[np.ndarray]) -> Any:
        (result,) = scalars.evaluate(condition.jaxpr, condition.consts, [*of_cond, *carry])
        return result.item(0)

    def goes_on(parts: Sequence[Any]) -> jax.Array:
        is_going = going(_assembled(parts, avals))
        return jnp.max(is_going.astype(jnp.int32)) > 0 if np.ndim(is_going) else is_going

    def once(parts: Sequence[Any]) -> tuple[Any, ...]:
        carry = _assembled(parts, avals)
        results = _taken_apart(scalars.evaluate(body.jaxpr, body.consts, [*of_body, *carry]))
        if np.ndim(is_going := going(carry)):
            # An environment that is done waits for the others of its block.
            results = [
                jnp.where(is_going, *(_vector(part, scalars.block) for part in pair))
                for pair in zip(results, parts, strict=True)
            ]
        return tuple(
            _vector(new, scalars.block) if np.ndim(old) else new
            for new, old in zip(results, parts, strict=True)
        )

    parts, num_vectors = tuple(_taken_apart(args[num_cond + num_body :])), -1
    # What is the same for a whole block at first may differ within it later.
    while num_vectors != (num_vectors := sum(np.ndim(part) for part in parts)):
        parts = tuple(
            _vector(part, scalars.block) if result.ndim else part
            for part, result in zip(parts, jax.eval_shape(once, parts), strict=True)
        )
    return _assembled(jax.lax.while_loop(goes_on, once, parts), avals)


_RULES: dict[str, Callable[..., Sequence[np.ndarray]]] = {
    "random_bits": _random_bits,
    "random_fold_in": _random_fold_in,
    "random_split": _random_split,
    "random_unwrap": _random_unwrap,
    "random_wrap": _random_wrap,
    "while": _while,
}
# What Triton lacks, written out.
_WRITTEN_OUT: dict[str, Callable[[jax.Array, Any], jax.Array]] = {
    "erf_inv": _erf_inv,
    "population_count": _population_count,
    "round": _rounded,
    "sign": _sign,
}


def _computed(equation: JaxprEqn, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute now, on the host, what the program's text determines."""
    with (
        jax.ensure_compile_time_eval(),
        jax.default_device(jax.local_devices(backend="cpu")[0]),
        jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())),
    ):
        results = equation.primitive.bind(*map(jnp.asarray, args), **equation.params)
        results = results if equation.primitive.multiple_results else [results]
        return [np.asarray(result) for result in results]


def _moved(equation: JaxprEqn, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Move elements as the operation moves their numbers."""
    name = equation.primitive.name
    moved, others = args[: _MOVES[name]], args[_MOVES[name] or len(args) :]
    if any(value.dtype == object for value in others):
        raise UnsupportedError(f"{name} at indices from the state has no form in a kernel")
    elements = [element for value in moved for element in value.reshape(-1)]
    ends = np.cumsum([value.size for value in moved])
    numbers = [
        np.arange(end - value.size, end, dtype=np.int32).reshape(value.shape)
        for value, end in zip(moved, ends, strict=True)
    ]
    results = _computed(equation, [*numbers, *others])
    if any((result < 0).any() for result in results):
        raise UnsupportedError(f"{name} beyond the end of an array has no form in a kernel")
    return [_objects([elements[i] for i in result.reshape(-1)], result.shape) for result in results]


def _objects(elements: Sequence[Any], shape: Sequence[int]) -> np.ndarray:
    array = np.empty(len(elements), object)
    for i, element in enumerate(elements):  # NumPy would look into a list of arrays
        array[i] = element
    return array.reshape(shape)


def _words(keys: Any) -> tuple[Any, Any]:
    """Return the first and the second words of an array of keys, or of one element."""
    if isinstance(keys, np.ndarray):
        words = _taken_apart([keys])
        return _objects(words[::2], keys.shape), _objects(words[1::2], keys.shape)
    return (keys.first, keys.second) if isinstance(keys, _Key) else (keys, keys)


def _vector(element: Any, block: int) -> jax.Array:
    return element if np.ndim(element) else jax.lax.full((block,), element, element.dtype)


def _taken_apart(values: Sequence[np.ndarray]) -> list[Any]:
    """Return the elements of arrays, and the words of keys."""
    elements = [element for value in values for element in value.reshape(-1)]
    pairs = (_words(each) if isinstance(each, _Key) else (each,) for each in elements)
    return [part for pair in pairs for part in pair]


def _assembled(parts: Sequence[Any], avals: Sequence[Any]) -> list[np.ndarray]:
    """Undo `_taken_apart`."""
    rest, values = iter(parts), []
    for aval in avals:
        kind = (lambda: _Key(next(rest), next(rest))) if holds_keys(aval) else (lambda: next(rest))
        values.append(_objects([kind() for _ in range(math.prod(aval.shape))], aval.shape))
    return values
