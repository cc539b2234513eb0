"""Bang-bang control: full force towards the setpoint, from either side."""

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from myriad.agents.controller import Actuator
from myriad.envs import Environment
from myriad.ranges import Number, require_ranges


@dataclasses.dataclass(frozen=True)
class BangBang:
    """Full on below the setpoint and full off above it, like a thermostat.

    Attributes:
        actuator: turns outputs into actions.
        env: the environment. Its `control_error` is the distance up to the setpoint.
        offset: added to the error, in its unit. A positive offset switches that far above the
            setpoint, and a negative one that far below it.
        hysteresis: the error must leave a band of this size, on either side, before the output
            changes.
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
        return self.actuator.action(output), output
