"""What the learners with networks share: their common fields, and the gradient step.

What a learner need not know is here: blocks of rows that fit into the caches, gradient
accumulation, the average over devices, parameters that are narrower than float32, and the scaled
loss that keeps float16's gradients from vanishing. So are learning rates that fall.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import optax
from flax.training.dynamic_scale import DynamicScale

from myriad.agents.agent import DEFAULT_TOTAL_STEPS, Count, Learner, Mean, State, Widths
from myriad.agents.minibatches import MANY_ENVS, mean_over_blocks
from myriad.agents.networks import network_defaults
from myriad.agents.networks.mlp import EXACT, Dtype, KernelInit, Precision
from myriad.engine.random import Counter
from myriad.envs import Environment
from myriad.envs.wrappers import privileged_of
from myriad.ranges import INT64, Integer

# The value of `anneal_updates` that means the length of the training.
WHOLE_TRAINING = "training"
ManyUpdates = Annotated[int | str | None, Integer(1, INT64, words=(WHOLE_TRAINING, None))]
# The metrics that a learner with `gradient_statistics` reports in addition to its losses.
GRADIENT_METRICS = ("gradient_norm", "update_norm", "parameter_norm")
# The first scale of a loss, as in Micikevicius et al. (2018), "Mixed precision training".
_FIRST_SCALE = 2.0**15

Metrics = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class GradientLearner(Learner[State]):
    """A learner that takes gradient steps on networks: derive yours from it, and add its fields.

    `NetworkSpec.of(learner)` builds its networks and `gradient_step` takes its steps. Both read
    these fields. A subclass can give a field another default. `losses` are the names of the metrics
    that its loss reports.

    Attributes:
        env: the environment, for its spaces.
        gradient_accumulation: parts that a minibatch is cut into. Their gradients are averaged
            before a step, so that activations take less memory.
        gradient_statistics: report the norms of the gradient, of each step and of the parameters.
        network: mlp, another name in docs/networks.md, or `module:Class` of your own.
        attention: implementation of attention in network attention: auto, reference, xla or cudnn.
        attention_patch: side of a token in cells, in network attention.
        hidden_sizes: widths of the hidden layers. In network cnn they follow the convolution, in
            network attention the mean of the tokens.
        activation: a name in `myriad.agents.networks.ACTIVATIONS`.
        kernel_init: the initial weights: orthogonal, with the gain sqrt(2) and a small last layer,
            or flax's lecun_normal or lecun_uniform in all layers.
        param_dtype: dtype of the parameters: float32, bfloat16 or float16. Each step is computed in
            float32 and rounded to it.
        compute_dtype: dtype of the network's products and activations.
        output_dtype: dtype of the network's outputs. Losses convert them to float32.
        loss_scaling: dynamic or off. It has an effect only if gradients pass through float16, and
            then it must be dynamic.
        normalize_observations: shift and scale observations by their running moments.
    """

    env: Environment
    gradient_accumulation: Count = 1
    gradient_statistics: bool = False
    network: str = "mlp"
    attention: str = "auto"
    attention_patch: Annotated[int, Integer(1, 64)] = 2
    hidden_sizes: Widths = (64, 64)
    activation: str = "tanh"
    kernel_init: KernelInit = "orthogonal"
    param_dtype: Dtype = "float32"
    compute_dtype: Dtype = "float32"
    output_dtype: Dtype = "float32"
    loss_scaling: Literal["dynamic", "off"] = "dynamic"
    normalize_observations: bool = True
    losses: ClassVar[tuple[str, ...]] = ("loss",)
    # Whether there is a critic, which sees a `privileged_observation` of the environment.
    trains_critic: ClassVar[bool] = False
    # Steps of all environments together in a training of unknown length: with many environments,
    # each takes `many_steps_per_env`, and all take at least `least_total_steps`.
    least_total_steps: ClassVar[int] = DEFAULT_TOTAL_STEPS
    many_steps_per_env: ClassVar[int] = 2_000

    @property
    def metric_names(self) -> tuple[str, ...]:
        return self.losses + GRADIENT_METRICS if self.gradient_statistics else self.losses

    @property
    def is_masked(self) -> bool:
        """Whether a mask of the legal actions follows each observation."""
        return hasattr(self.env, "unmasked")

    @property
    def sees_privileged(self) -> bool:
        """Whether a `privileged_observation` follows each observation in training."""
        return self.trains_critic and privileged_of(self.env) is not None

    @classmethod
    def create(cls, env: Environment, **overrides: Any) -> Self:
        """Build the learner for `env`. Raises InvalidArgumentError if a value can't be used."""
        learner = super().create(env, **network_defaults(cls, overrides) | overrides)
        learner.require_fit()
        return learner

    @property
    def unused(self) -> dict[str, str]:
        """What the networks don't take: those of your own have their own layers."""
        actor = self.network
        critic = getattr(self, "critic_network", None) or actor
        ignored = {
            "hidden_sizes": ":" in actor,
            "critic_hidden_sizes": ":" in critic,
            "activation": ":" in actor and ":" in critic,
            "kernel_init": ":" in actor and ":" in critic,
            "layer_norm": ":" in actor and ":" in critic,
            "attention": "attention" not in (actor, critic),
            "attention_patch": "attention" not in (actor, critic),
        }
        reason = f"with network {' and '.join(dict.fromkeys((actor, critic)))}"
        return {
            name: reason for name, is_unused in ignored.items() if is_unused and hasattr(self, name)
        }

    def require_fit(self) -> None:
        """Raise InvalidArgumentError if fields don't fit together or don't suit the environment."""

    @classmethod
    def default_total_steps(cls, num_envs: int) -> int:
        if num_envs < MANY_ENVS:
            return DEFAULT_TOTAL_STEPS
        return max(cls.least_total_steps, cls.many_steps_per_env * num_envs)

    def scheduled(self, num_updates: int) -> Self:
        """Set the length of `anneal_updates`, unless you chose it or there is no such field."""
        if getattr(self, "anneal_updates", None) != WHOLE_TRAINING:
            return self
        changes: Any = {"anneal_updates": num_updates}
        return dataclasses.replace(self, **changes)


class Learned(NamedTuple):
    """The part of a learner's state that a gradient step changes.

    Attributes:
        params: one vector, `[P]`, in the dtype that parameters are kept in.
        opt_state: the optimiser's state, float32.
        loss_scale: the scale of the loss; None if gradients need none.
    """

    params: jax.Array
    opt_state: optax.OptState
    loss_scale: DynamicScale | None


def before_learning(learner: Any, params: jax.Array) -> Learned:
    """Return the state of `learner.optimizer` for first parameters, `[P]`."""
    opt_state = learner.optimizer.init(params.astype(jnp.float32))
    loss_scale = None
    if Precision.of(learner).needs_loss_scale:
        first: Any = {"scale": jnp.float32(_FIRST_SCALE), "fin_steps": jnp.int32(0)}
        loss_scale = DynamicScale(**first, minimum_scale=1.0)
    return Learned(params, opt_state, loss_scale)


def gradient_step(
    learner: Any,
    loss: Callable[[jax.Array, Any], tuple[jax.Array, Metrics]],
    learned: Learned,
    rows: Any,
    learning_rate: jax.Array | float,
    mean: Mean,
) -> tuple[Learned, Metrics]:
    """Take one step of `learner.optimizer` on a minibatch.

    With a loss scale above 1, a step is skipped if its gradient is not finite. At scale 1 it is
    taken, since no smaller scale would help and the run has to stop.

    Args:
        learner: its `optimizer`, `gradient_accumulation` and `gradient_statistics` are used.
        loss: maps float32 parameters, `[P]`, and rows to a mean over the rows and to metrics.
        learned: the result of the steps before.
        rows: this device's part of the minibatch, leaves `[B, ...]`.
        learning_rate: the factor of the optimiser's step, a scalar or `[P]`.
        mean: averages over the devices.

    Returns:
        the result of the step, and the metrics. With `gradient_statistics` they include
            `GRADIENT_METRICS`, which are those of zeros for a skipped step.
    """
    params = learned.params.astype(jnp.float32)
    loss_scale = learned.loss_scale

    def scaled(params: jax.Array, rows: Any) -> tuple[jax.Array, Metrics]:
        value, metrics = loss(params, rows)
        return value if loss_scale is None else value * loss_scale.scale, metrics

    # Average outside the differentiated function. Every device holds all parameters, and the
    # gradient of a sum over devices would count the parameters once for each device.
    gradient_fn = functools.partial(jax.grad(scaled, has_aux=True), params)
    gradient, metrics = mean(mean_over_blocks(gradient_fn, rows, learner.gradient_accumulation))
    is_taken: Any = True
    if loss_scale is not None:
        unscaled = gradient / loss_scale.scale
        # It differentiates by itself, so give it a function with the averaged gradient.
        found = loss_scale.value_and_grad(lambda params: jnp.sum(params * unscaled))(params)
        is_taken = found.finite | (loss_scale.scale <= 1)
        gradient = jnp.where(is_taken, unscaled, 0)
        loss_scale = found.dynamic_scale
    step, opt_state = learner.optimizer.update(gradient, learned.opt_state)
    change = learning_rate * step
    if learned.loss_scale is not None:
        change = jnp.where(is_taken, change, 0)
        opt_state = jax.tree.map(
            lambda new, old: jnp.where(is_taken, new, old), opt_state, learned.opt_state
        )
    if learner.gradient_statistics:
        norms = (norm(gradient), norm(change), norm(params))
        metrics = metrics | dict(zip(GRADIENT_METRICS, norms, strict=True))
    rounded = (params - change).astype(learned.params.dtype)
    return Learned(rounded, opt_state, loss_scale), metrics


def annealed(rate: float, num_updates: Counter, anneal_updates: Any) -> jax.Array | float:
    """Return a rate that falls linearly to 0 over `anneal_updates`, or is constant without them."""
    if anneal_updates is None or isinstance(anneal_updates, str):
        return rate
    return rate * jnp.maximum(1 - num_updates.as_float() / jnp.float32(anneal_updates), 0)


def clip_by_norm(max_norm: float | jax.Array) -> optax.GradientTransformation:
    """Scale a gradient vector, `[P]`, to at most norm `max_norm`: optax's rule, vectorised."""

    def clip(updates: Any, state: optax.OptState, params: Any = None) -> tuple[Any, optax.OptState]:
        size = norm(updates)
        return updates * jnp.where(size > max_norm, max_norm / size, 1), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), clip)


def norm(vector: jax.Array) -> jax.Array:
    """Return the Euclidean norm of `[P]`, a float32 scalar."""
    # A dot product compiles to a vector loop. A sum of squares in a fixed order does not.
    return jnp.sqrt(jnp.vdot(vector, vector, precision=EXACT))
