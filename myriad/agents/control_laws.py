"""Fixed control laws that steer one quantity to its setpoint: bang-bang and PID."""

import dataclasses
from typing import Annotated, Any, Self

import jax
import jax.numpy as jnp

from myriad.envs import Environment
from myriad.errors import InvalidArgumentError
from myriad.ranges import Number, require_ranges
from myriad.spaces import Box, Discrete


@dataclasses.dataclass(frozen=True)
class ControlLaw:
    """A controller whose output, -1 to 1, becomes an action: a subclass has the law.

    Attributes:
        action_space: the space of the actions.
        env: the environment. Its `control_error` is the distance up to the setpoint.
    """

    action_space: Discrete | Box
    env: Any

    @classmethod
    def create(cls, env: Environment, **overrides: Any) -> Self:
        """Build the controller.

        Raises:
            InvalidArgumentError: the environment has no setpoint, its actions are not one bounded
                quantity, or a value can't be used.
        """
        space = env.action_space(env.default_params)
        name, kind = cls.__name__.lower(), type(env).__name__
        if not hasattr(env, "control_error"):
            raise InvalidArgumentError(f"{name} needs a setpoint; {kind} has no control_error.")
        if not isinstance(space, Discrete | Box) or space.shape not in ((), (1,)):
            raise InvalidArgumentError(f"{name} needs one bounded action, but {kind} has {space}.")
        controller = cls(space, env, **overrides)
        require_ranges(controller)
        return controller

    def action(self, output: jax.Array) -> jax.Array:
        """Turn an output, a float32 scalar, into an action. Of two actions, it takes on or off."""
        space = self.action_space
        if isinstance(space, Discrete) and space.n == 2:
            return (output > 0).astype(jnp.int32)
        raised = jnp.clip(output, -1.0, 1.0) + 1.0
        if isinstance(space, Discrete):
            return jnp.round(0.5 * raised * (space.n - 1)).astype(jnp.int32)
        low, high = (jnp.asarray(bound, jnp.float32) for bound in (space.low, space.high))
        return space.cast(jnp.reshape(low + (high - low) * 0.5 * raised, space.shape))


@dataclasses.dataclass(frozen=True)
class BangBang(ControlLaw):
    """Full on below the setpoint and full off above it, like a thermostat.

    Attributes:
        offset: added to the error, in its unit. A positive offset switches that far above the
            setpoint, and a negative one that far below it.
        hysteresis: the error must leave a band of this size, on either side, before the output
            changes.
    """

    offset: Annotated[float, Number()] = 0.0
    hysteresis: Annotated[float, Number(0)] = 0.0

    def first_memory(self) -> jax.Array:
        """Return the first output, -1, which is off."""
        return jnp.full((), -1.0, jnp.float32)

    def control(
        self, memory: jax.Array, key: jax.Array, obs: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Switch if the error has left the band."""
        error = self.env.control_error(obs) + self.offset
        output = jnp.where(jnp.abs(error) > self.hysteresis, jnp.sign(error), memory).astype(
            jnp.float32
        )
        return self.action(output), output


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PIDMemory:
    """The sum of the errors, the last error, and whether there was one: float32 scalars."""

    total: jax.Array
    error: jax.Array
    started: jax.Array


@dataclasses.dataclass(frozen=True)
class PID(ControlLaw):
    """The discrete PID law in position form, whose sum is limited against windup.

    Outputs from -1 to 1 span the range of actions. If there are only two actions, an output above 0
    takes the upper one. Source: Astrom and Hagglund (1995), "PID Controllers: Theory, Design, and
    Tuning", sections 3.2 and 3.5.

    Attributes:
        proportional: output per unit of error.
        integral: output per unit of error and step.
        derivative: output per change of the error in a step.
        limit: the largest absolute value of the integral term in the output.
    """

    proportional: Annotated[float, Number()] = 1.0
    integral: Annotated[float, Number()] = 0.0
    derivative: Annotated[float, Number()] = 10.0
    limit: Annotated[float, Number(0, infinity=True)] = 1.0

    @property
    def unused(self) -> dict[str, str]:
        """What the integral term needs, without it."""
        return {} if self.integral else {"limit": "with integral = 0"}

    def first_memory(self) -> PIDMemory:
        """Return the memory before the first error."""
        zero = jnp.zeros((), jnp.float32)
        return PIDMemory(zero, zero, zero)

    def control(
        self, memory: PIDMemory, key: jax.Array, obs: jax.Array
    ) -> tuple[jax.Array, PIDMemory]:
        """Sum the three terms. The first step of an episode has no change of the error yet."""
        error = self.env.control_error(obs)
        total = jnp.clip(memory.total + self.integral * error, -self.limit, self.limit)
        change = (error - memory.error) * memory.started
        output = self.proportional * error + total + self.derivative * change
        return self.action(output), PIDMemory(total, error, jnp.ones((), jnp.float32))
