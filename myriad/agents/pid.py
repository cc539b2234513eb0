"""PID control: an output proportional to the error, to its sum and to its change."""

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from myriad.agents.controller import Actuator
from myriad.envs import Environment
from myriad.ranges import Number, require_ranges


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PIDMemory:
    """The sum of the errors, the last error, and whether there was one: float32 scalars."""

    total: jax.Array
    error: jax.Array
    started: jax.Array


@dataclasses.dataclass(frozen=True)
class PID:
    """The discrete PID law in position form, whose sum is limited against windup.

    Outputs from -1 to 1 span the range of actions. If there are only two actions, an output above 0
    takes the upper one. Source: Astrom and Hagglund (1995), "PID Controllers: Theory, Design, and
    Tuning", sections 3.2 and 3.5.

    Attributes:
        actuator: turns outputs into actions.
        env: the environment. Its `control_error` is the distance up to the setpoint.
        proportional: output per unit of error.
        integral: output per unit of error and step.
        derivative: output per change of the error in a step.
        limit: the largest absolute value of the integral term in the output.
    """

    actuator: Actuator
    env: Any
    proportional: Annotated[float, Number()] = 1.0
    integral: Annotated[float, Number()] = 0.0
    derivative: Annotated[float, Number()] = 10.0
    limit: Annotated[float, Number(0, infinity=True)] = 1.0

    @classmethod
    def create(cls, env: Environment, **overrides: Any) -> "PID":
        """Build the controller.

        Raises:
            InvalidArgumentError: `env` has no setpoint, or a value can't be used.
        """
        controller = cls(Actuator.of("pid", env), env, **overrides)
        require_ranges(controller)
        return controller

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
        return self.actuator.action(output), PIDMemory(total, error, jnp.ones((), jnp.float32))
