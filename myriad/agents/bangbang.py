"""Bang-bang control: full force towards the setpoint, whichever side the quantity is on."""

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from myriad.agents.controller import Actuator
from myriad.envs import Environment
from myriad.ranges import Number, require_ranges


@dataclasses.dataclass(frozen=True)
class BangBang:
    """Full on below the setpoint and full off above it, as a thermostat is.

    Attributes:
        actuator: what makes actions of outputs.
        env: the environment, whose `control_error` is what the setpoint lacks.
        offset: added to the error: on already (or only) so far above (or below) the setpoint, in
            the error's unit.
        hysteresis: the error must leave this band, either way, before the output changes.
    """

    actuator: Actuator
    env: Any
    offset: Annotated[float, Number()] = 0.0
    hysteresis: Annotated[float, Number(0)] = 0.0

    @classmethod
    def create(cls, env: Environment, **overrides: Any) -> "BangBang":
        """Build the controller.

        Raises:
            InvalidArgumentError: `env` has no setpoint, or a value can't be used.
        """
        controller = cls(Actuator.of("bangbang", env), env, **overrides)
        require_ranges(controller)
        return controller

    def first_memory(self) -> jax.Array:
        """Return the output, -1: off."""
        return jnp.full((), -1.0, jnp.float32)

    def control(
        self, memory: jax.Array, key: jax.Array, obs: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Switch where the error has left the band."""
        error = self.env.control_error(obs) + self.offset
        output = jnp.where(jnp.abs(error) > self.hysteresis, jnp.sign(error), memory).astype(
            jnp.float32
        )
        return self.actuator.action(output), output
