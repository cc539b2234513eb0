"""A JAX library as its users run it: a jitted scan over a batched step, with keys split anew at every step.

The loop and the counting are the same for every peer, so that none has a better or a worse one. No Myriad in here:
peers run it in a Python of their own.
"""

from typing import Any, Protocol

from benchmarks.session import Totals
from benchmarks.workloads import Workload


class Batch(Protocol):
    """One library's functions over all environments at once: each takes one key per environment."""

    def reset(self, keys: Any) -> Any:
        """Return the first states."""

    def sample(self, keys: Any) -> Any:
        """Draw the actions of the random policy."""

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return obs, state, reward, terminated and truncated, with the environments that ended reset."""
        ...


class ScannedSide:
    """Step a batch under the random policy in chunks of one compiled scan each."""

    num_devices = 1

    def __init__(self, batch: Batch, workload: Workload, *, record: bool, seed: int, returns: bool):
        import jax
        import jax.numpy as jnp

        if workload.agent != "random":
            raise NotImplementedError(f"beside a peer only the random agent is measured, not {workload.agent!r}")
        self.batch, self.record = batch, record
        self.num_envs, self.chunk = workload.num_envs, workload.scan_chunk_size
        key, reset_key = jax.random.split(jax.random.key(seed))
        state = jax.jit(batch.reset)(jax.random.split(reset_key, self.num_envs))
        # The returns of the running episodes and the sums of those that ended.
        returned = (jnp.zeros(self.num_envs), jnp.zeros(self.num_envs)) if returns else None
        self.carry = key, state, jnp.zeros(self.num_envs, jnp.int32), returned
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
        return_sum = None if returned is None else float(np.asarray(returned[1]).sum(dtype=np.float64))
        return Totals(int(np.asarray(num_episodes).sum(dtype=np.int64)), return_sum)

    def _scan(self, carry: Any, num_steps: int) -> Any:
        import jax

        return jax.lax.scan(self._step, carry, length=num_steps)

    def _step(self, carry: Any, _: None) -> Any:
        import jax

        key, state, num_episodes, returned = carry
        key, action_key, step_key = jax.random.split(key, 3)
        action = self.batch.sample(jax.random.split(action_key, self.num_envs))
        keys = jax.random.split(step_key, self.num_envs)
        next_obs, state, reward, terminated, truncated = self.batch.step(keys, state, action)
        done = terminated | truncated
        transition = (next_obs, action, reward, terminated, truncated) if self.record else None
        if returned is not None:
            returned = _add_returns(returned, reward, done)
        return (key, state, num_episodes + done, returned), transition


def _add_returns(returned: tuple[Any, Any], reward: Any, done: Any) -> tuple[Any, Any]:
    import jax.numpy as jnp

    running, ended = returned
    running = running + reward
    return jnp.where(done, 0.0, running), ended + jnp.where(done, running, 0.0)
