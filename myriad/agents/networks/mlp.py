"""The default network, a multilayer perceptron in flax, and what the others share with it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from myriad.errors import InvalidArgumentError

Dtype = Literal["float32", "bfloat16", "float16"]
# How the first weights are drawn: as `orthogonal` does, or as flax's initialiser of this name.
KernelInit = Literal["orthogonal", "lecun_normal", "lecun_uniform"]

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}

# For reductions that are written as products, since GPUs round the factors of a product to 11 bits
# by default.
EXACT = jax.lax.Precision.HIGHEST
_EPSILON = 1e-6  # of flax's layer norm
_GAIN = float(np.sqrt(2))  # of the orthogonal weights of hidden layers


@dataclasses.dataclass(frozen=True)
class Precision:
    """The dtypes of a network, each float32, bfloat16 or float16 by name.

    Losses, reductions, layer norm and the optimiser always stay in float32.

    Attributes:
        param_dtype: dtype of the parameters.
        compute_dtype: dtype of products and activations.
        output_dtype: dtype of the network's outputs.
    """

    param_dtype: Dtype = "float32"
    compute_dtype: Dtype = "float32"
    output_dtype: Dtype = "float32"

    @classmethod
    def of(cls, learner: Any) -> "Precision":
        """Return the precision from a learner's hyperparameters of the same names.

        Raises:
            InvalidArgumentError: `loss_scaling` is off with float16.
        """
        precision = cls(learner.param_dtype, learner.compute_dtype, learner.output_dtype)
        if learner.loss_scaling == "off" and precision.needs_loss_scale:
            rule = "must be 'dynamic' with float16, whose small gradients vanish without it"
            raise InvalidArgumentError("loss_scaling", rule, learner.loss_scaling)
        return precision

    @property
    def needs_loss_scale(self) -> bool:
        """Whether gradients pass through float16, in which values below 6e-8 vanish."""
        return "float16" in (self.compute_dtype, self.output_dtype)


# The default precision of networks and layers.
FLOAT32 = Precision()


# Linen and not nnx: a jitted call takes 1.06 times as long as with plain functions, but 9.5 to 15
# times as long with `nnx.jit`.
class Network(nn.Module):
    """What our networks share. A subclass has `__call__` and may have further fields.

    Attributes:
        hidden_sizes: the widths of the dense layers before the last one.
        num_outputs: the width of the last layer.
        activation: a name in `ACTIVATIONS`.
        layer_norm: whether hidden layers are normalised before their activation (Ba et al. 2016).
        output_scale: the gain of the last layer's initial weights, if they are orthogonal.
        kernel_init: how initial weights are drawn. Biases begin at zero.
        precision: the dtypes. Layer norm is in float32.
    """

    # What a learner's hyperparameters are by default with this network.
    DEFAULTS: ClassVar[dict[str, Any]] = {}

    hidden_sizes: tuple[int, ...]
    num_outputs: int
    activation: str = "tanh"
    layer_norm: bool = False
    output_scale: float = 1.0
    kernel_init: KernelInit = "orthogonal"
    precision: Precision = FLOAT32

    @classmethod
    def of(cls, spec: Any, **fields: Any) -> Any:
        """Build the network that a `NetworkSpec` describes."""
        return cls(**fields)

    def kernels(self, scale: float = _GAIN) -> Callable[..., jax.Array]:
        """Return the initialiser of a layer's weights. Only orthogonal ones have a gain."""
        if self.kernel_init == "orthogonal":
            return orthogonal(scale)
        return getattr(nn.initializers, self.kernel_init)()

    def dense(self, num_outputs: int, scale: float = _GAIN) -> "Dense":
        """Return a layer from `[..., I]` to `[..., num_outputs]` in the compute dtype."""
        compute_dtype = self.precision.compute_dtype
        hidden = dataclasses.replace(self.precision, output_dtype=compute_dtype)
        return Dense(num_outputs, self.kernels(scale), hidden)

    def last(self, hidden: jax.Array) -> jax.Array:
        """Apply the last layer to `[B, I]`."""
        outputs = self.dense(self.num_outputs, self.output_scale)(hidden)
        return outputs.astype(self.precision.output_dtype)

    def normalized(self, hidden: jax.Array) -> jax.Array:
        """Apply a layer norm to the last axis in float32, and convert back to the compute dtype."""
        norm = nn.LayerNorm(dtype="float32", param_dtype=self.precision.param_dtype)
        return norm(hidden).astype(self.precision.compute_dtype)

    def activated(self, hidden: jax.Array) -> jax.Array:
        """Apply the activation and, if asked, layer norm before it."""
        if self.layer_norm:
            hidden = self.normalized(hidden)
        return ACTIVATIONS[self.activation](hidden)

    def hidden_layers(self, hidden: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
        """Apply dense layers of these sizes to `[B, I]`."""
        for size in sizes:
            hidden = self.activated(self.dense(size)(hidden))
        return hidden


class MLP(Network):
    """Dense layers with activations between them.

    Example:
        >>> network = MLP((64, 64), 2)
        >>> params = network.init(jax.random.key(0), jnp.zeros((1, 4)))
        >>> network.apply(params, jnp.zeros((8, 4))).shape
        (8, 2)
    """

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Map `[B, D]` to `[B, num_outputs]`."""
        hidden = inputs
        for size in self.hidden_sizes:
            if self.layer_norm:
                before = dataclasses.replace(self.precision, output_dtype="float32")
                hidden = Dense(size, self.kernels(), before, centre)(hidden)
                hidden = LayerNorm(self.precision.param_dtype)(hidden)
            else:
                hidden = self.dense(size)(hidden)
            hidden = ACTIVATIONS[self.activation](hidden.astype(self.precision.compute_dtype))
        return Dense(self.num_outputs, self.kernels(self.output_scale), self.precision)(hidden)


class Dense(nn.Module):
    """flax's layer with the gradient of `affine`: maps `[..., I]` to `[..., num_outputs]`.

    `prepare` changes the kernel, and the bias as a row, before they are used.
    """

    num_outputs: int
    kernel_init: Callable[..., jax.Array]
    precision: Precision = FLOAT32
    prepare: Callable[[jax.Array], jax.Array] | None = None

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        num_inputs = inputs.shape[-1]
        dtype = self.precision.param_dtype
        # Draw in float32 and then round, or the rows would not be orthogonal.
        kernel = self.param(
            "kernel",
            lambda *args: self.kernel_init(*args).astype(dtype),
            (num_inputs, self.num_outputs),
        )
        bias = self.param("bias", nn.initializers.zeros, (self.num_outputs,), jnp.dtype(dtype))
        if self.prepare is not None:
            kernel, bias = self.prepare(kernel), self.prepare(bias[None])[0]
        rows = inputs.reshape(-1, num_inputs).astype(self.precision.compute_dtype)
        outputs: Any = affine(rows, kernel, bias, self.precision)
        return outputs.reshape(*inputs.shape[:-1], self.num_outputs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def affine(
    inputs: jax.Array, kernel: jax.Array, bias: jax.Array, precision: Precision
) -> jax.Array:
    """Map `[B, I]` by a kernel `[I, O]` and a bias `[O]`, with a gradient faster than autodiff's.

    Inputs are in the compute dtype, as products are, and kernels may have any dtype. The gradients
    of kernel and bias are summed in float32.
    """
    return _affine_forward(inputs, kernel, bias, precision)[0]


def _affine_forward(
    inputs: jax.Array, kernel: jax.Array, bias: jax.Array, precision: Precision
) -> tuple[jax.Array, Any]:
    outputs = _product(inputs, kernel.astype(inputs.dtype), precision.output_dtype)
    return outputs + bias.astype(outputs.dtype)[None], (inputs, kernel)


def _affine_backward(
    precision: Precision, saved: Any, gradient: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    inputs, kernel = saved
    of_outputs = gradient.astype(precision.compute_dtype)
    if precision.compute_dtype == "float32":
        of_inputs = of_outputs @ kernel.astype(inputs.dtype).T
    else:
        # Contract by dimension numbers, since after a transpose XLA on a CPU multiplies in float32.
        of_inputs = _product(
            of_outputs, kernel.astype(inputs.dtype), precision.compute_dtype, along=(1, 1)
        )
    left, right = inputs, of_outputs
    # The narrower side is cheaper to transpose: 1,024 rows of 64 inputs and an output took 2 us
    # instead of 29.
    swaps = kernel.shape[1] < kernel.shape[0]
    if swaps:
        left, right = right, left
    of_kernel = _product(_as_made(left.T), right, "float32")
    if swaps:
        of_kernel = _as_made(of_kernel).T
    return of_inputs, of_kernel.astype(kernel.dtype), sum_rows(gradient).astype(kernel.dtype)


def _as_made(matrix: jax.Array) -> jax.Array:
    """Keep XLA on a CPU from merging a transpose and a product into plain loops.

    For 128 rows of 4 inputs and 64 outputs they took 21 us instead of 1.3.
    """
    return jax.lax.optimization_barrier(matrix) if jax.default_backend() == "cpu" else matrix


affine.defvjp(_affine_forward, _affine_backward)


def _product(
    left: jax.Array, right: jax.Array, dtype: str, along: tuple[int, int] = (1, 0)
) -> jax.Array:
    """Multiply matrices, with sums over the dimensions `along` in float32, rounded to `dtype`."""
    # XLA on a CPU turns a bfloat16 product into a float32 product unless its result is float32. On
    # a Xeon with AMX, 1,024 x 1,024 x 1,024 then took 41 ms instead of 2.8.
    result = "float32" if jax.default_backend() == "cpu" else dtype
    dimensions = (((along[0],), (along[1],)), ((), ()))
    product = jax.lax.dot_general(left, right, dimensions, preferred_element_type=jnp.dtype(result))
    return product.astype(dtype)


def sum_rows(matrix: jax.Array) -> jax.Array:
    """Sum `[B, O]` over the batch in float32. On a CPU this is a product, which is faster there."""
    matrix = matrix.astype(jnp.float32)
    if jax.default_backend() != "cpu":
        return jnp.sum(matrix, axis=0)
    return jnp.ones(matrix.shape[0], matrix.dtype) @ matrix


class LayerNorm(nn.Module):
    """Normalise rows of mean 0, `[B, O]`, then scale and shift.

    The mean of a dense layer over its features is linear in its inputs, so `centre` subtracts it
    from the weights and from the bias before. With flax's layer norm, a gradient of 1,024 rows and
    64 units took 1.4 times as long on a CPU.
    """

    param_dtype: str

    @nn.compact
    def __call__(self, centred: jax.Array) -> jax.Array:
        shape, dtype = centred.shape[1:], jnp.dtype(self.param_dtype)
        scale = self.param("scale", nn.initializers.ones, shape, dtype)
        shift = self.param("bias", nn.initializers.zeros, shape, dtype)
        return _normalize(centred, scale, shift)


@jax.custom_vjp
def _normalize(centred: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    return _normalize_forward(centred, scale, shift)[0]


def _normalize_forward(
    centred: jax.Array, scale: jax.Array, shift: jax.Array
) -> tuple[jax.Array, Any]:
    inverse = jax.lax.rsqrt(_mean_columns(jnp.square(centred)) + _EPSILON)
    return centred * inverse * scale[None] + shift[None], (centred, inverse, scale)


def _normalize_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    centred, inverse, scale = saved
    weighted = gradient * centred
    mean = jnp.matmul(weighted, (scale / scale.size)[:, None], precision=EXACT)
    along = jnp.square(inverse) * mean
    # In the gradient of a whole layer norm, the mean over features is subtracted as well. `centre`
    # does that, since its gradient is `centre` itself.
    return (
        inverse * (gradient * scale[None] - centred * along),
        jnp.matmul(inverse[:, 0], weighted, precision=EXACT),
        sum_rows(gradient),
    )


@jax.custom_vjp
def centre(matrix: jax.Array) -> jax.Array:
    """Subtract the mean over columns from a matrix. This is a projection, so its own gradient."""
    return matrix - _mean_columns(matrix)


def _mean_columns(matrix: jax.Array) -> jax.Array:
    """Average `[B, O]` over its columns, `[B, 1]`, on a CPU as a product."""
    if jax.default_backend() != "cpu":
        return jnp.mean(matrix, axis=1, keepdims=True)
    return matrix @ jnp.full((matrix.shape[1], 1), 1 / matrix.shape[1], matrix.dtype)


_normalize.defvjp(_normalize_forward, _normalize_backward)
centre.defvjp(lambda matrix: (centre(matrix), None), lambda _, gradient: (centre(gradient),))


def orthogonal(scale: float) -> Callable[..., jax.Array]:
    """Return an initialiser of weights `[M, N]`: orthogonal rows or columns of norm `scale`.

    Source: Saxe et al. (2014), "Exact solutions to the nonlinear dynamics of learning in deep
    linear neural networks".
    """

    def draw(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        # Compile this even if jit is disabled, since flax asks for a weight's shape in every step.
        with jax.disable_jit(False):  # noqa: FBT003
            rows = _orthonormal(jax.random.normal(key, sorted(shape), dtype))
            return scale * (rows if shape[0] <= shape[1] else rows.T)

    return draw


# Jitted, so that each shape is traced and compiled only once: flax asks for the shape of each
# weight whenever a network is applied, with a key of another generator.
@jax.jit
def _orthonormal(rows: jax.Array) -> jax.Array:
    """Turn `[M, N]` with `M <= N` into orthonormal rows by Gram-Schmidt.

    A QR factorisation would do the same, but on a CPU its lowering imports scipy, which takes a
    quarter of a second at start-up.
    """
    numbers = jnp.arange(rows.shape[0])[:, None]

    def orthonormalize(turn: jax.Array, rows: jax.Array) -> jax.Array:
        i = turn >> 1  # Once leaves rounding errors, and twice is enough (Giraud et al. 2005).
        row = jax.lax.dynamic_index_in_dim(rows, i, keepdims=False)
        before = jnp.where(numbers < i, rows, 0)
        along = jnp.matmul(before, row, precision=EXACT)
        row = row - jnp.matmul(along, before, precision=EXACT)
        square = jnp.vdot(row, row, precision=EXACT)
        return jax.lax.dynamic_update_index_in_dim(rows, row * jax.lax.rsqrt(square), i, 0)

    return jax.lax.fori_loop(0, 2 * rows.shape[0], orthonormalize, rows)


def flatten(obs: Any) -> jax.Array:
    """Return observations `[B, *O]` as `[B, D]`."""
    return obs.reshape(obs.shape[0], -1)
