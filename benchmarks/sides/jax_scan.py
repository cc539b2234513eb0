"""Step a JAX library as its users do: a jitted scan over a batched step, with new keys each step.

Every peer has the same loop and counting, so that none has an advantage. This module does not
import Myriad, because peers run it in their own Python.
"""

from typing import Any, Protocol

from benchmarks.harness.workload import Case
from benchmarks.sides.network_policy import NetworkPolicy, network_for
from benchmarks.sides.server import SEED, Stepper, Totals


class JaxEnvs(Protocol):
    """One library's functions over all environments at once. Each takes one key per environment."""

    num_actions: int | None
    """How many there are to choose from, None where an action is no choice among a few."""

    def reset(self, keys: Any) -> tuple[Any, Any]:
        """Return the first observations and states."""
        ...

    def sample(self, keys: Any) -> Any:
        """Draw the actions of the random policy."""

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return obs, state, reward, terminated and truncated.

        Environments that ended are reset.
        """
        ...


class ScanStepper(Stepper):
    """Step environments with a random policy or a network's, in one compiled scan per chunk.

    Raises:
        NotImplementedError: the agent is neither, or no network fits the environment.
    """

    compiles = True

    def __init__(self, envs: JaxEnvs, case: Case):
        import jax
        import jax.numpy as jnp

        workload = case.workload
        self.envs = envs
        self.record = case.record
        self.num_envs = workload.num_envs
        self.chunk = workload.scan_chunk_size
        key, reset_key = jax.random.split(jax.random.key(SEED))
        obs, state = jax.jit(envs.reset)(jax.random.split(reset_key, self.num_envs))
        obs = _vectors(obs)
        self.policy: NetworkPolicy | None = None
        if workload.agent != "random":
            shape = getattr(obs, "shape", ())[1:]
            self.policy = network_for(workload.agent, shape, envs.num_actions)
        # The returns of running episodes, and the sums of ended ones.
        returned = (jnp.zeros(self.num_envs), jnp.zeros(self.num_envs)) if case.returns else None
        # Observations are only carried if the policy reads them, as in Myriad.
        obs = None if self.policy is None else obs
        self.carry = key, (obs, state), jnp.zeros(self.num_envs, jnp.int32), returned
        self._chunk_of = jax.jit(self._scan, static_argnums=1, donate_argnums=0)

    def program(self) -> Any:
        return self._chunk_of.lower(self.carry, self.chunk).compile()

    def run(self, num_steps: int) -> None:
        import jax

        trajectory = None
        for start in range(0, num_steps, self.chunk):
            self.carry, trajectory = self._chunk_of(self.carry, min(self.chunk, num_steps - start))
        jax.block_until_ready((self.carry, trajectory))

    def totals(self) -> Totals:
        import numpy as np

        *_, num_episodes, returned = self.carry
        return_sum = returned and float(np.asarray(returned[1]).sum(dtype=np.float64))
        return Totals(int(np.asarray(num_episodes).sum(dtype=np.int64)), return_sum)

    def _scan(self, carry: Any, num_steps: int) -> Any:
        import jax

        return jax.lax.scan(self._step, carry, length=num_steps)

    def _step(self, carry: Any, _: None) -> Any:
        import jax
        import jax.numpy as jnp

        key, (obs, state), num_episodes, returned = carry
        key, action_key, step_key = jax.random.split(key, 3)
        action_keys = jax.random.split(action_key, self.num_envs)
        if self.policy is None:
            action = self.envs.sample(action_keys)
        else:
            action = jax.vmap(self.policy.act)(action_keys, obs)
        keys = jax.random.split(step_key, self.num_envs)
        next_obs, state, reward, terminated, truncated = self.envs.step(keys, state, action)
        done = terminated | truncated
        transition = (next_obs, action, reward, terminated, truncated) if self.record else None
        if returned is not None:
            running, ended = returned
            running = running + reward
            returned = jnp.where(done, 0.0, running), ended + jnp.where(done, running, 0.0)
        obs = None if self.policy is None else _vectors(next_obs)
        return (key, (obs, state), num_episodes + done, returned), transition


def _vectors(obs: Any) -> Any:
    """Return observations `[N, O]` for a library with `O` arrays `[N]`, others as they are."""
    import jax
    import jax.numpy as jnp

    leaves = jax.tree.leaves(obs)
    return jnp.stack(leaves, axis=-1) if all(leaf.ndim == 1 for leaf in leaves) else obs
