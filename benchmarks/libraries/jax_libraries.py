"""Step a JAX library as its users do: a jitted scan over a batched step, with new keys each step.

Every library has the same loop and counting, so that none has an advantage. This module does not
import Myriad, because peers run it in their own Python.
"""

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.harness.worker import imported
from benchmarks.harness.workload import Case
from benchmarks.libraries.network_policy import NetworkPolicy
from benchmarks.libraries.server import SEED, Stepper, Totals


class JaxEnvs:
    """One library's functions over all environments at once. Each takes one key per environment.

    Attributes:
        space: its library's space of one action.
        num_actions: how many there are to choose from, None where an action is no choice among a
            few.
    """

    space: Any
    num_actions: Any

    def reset(self, keys: Any) -> tuple[Any, Any]:
        """Return the first observations and states."""
        raise NotImplementedError

    def sample(self, keys: Any) -> Any:
        """Draw the actions of the random policy."""
        import jax

        return jax.vmap(self.space.sample)(keys)

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return obs, state, reward, terminated and truncated. What ended is reset."""
        raise NotImplementedError


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
            self.policy = NetworkPolicy(workload.agent, shape, envs.num_actions)
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


class GymnaxEnvs(JaxEnvs):
    """gymnax's own step under vmap, which also resets. `env_id` may be `module:Class`, too."""

    def __init__(self, env_id: str):
        # Imported here, because importing it takes 3 s and loads seaborn.
        import gymnax

        if ":" in env_id:
            self.env = imported(env_id)()
            self.params = self.env.default_params
        else:
            self.env, self.params = gymnax.make(env_id)
        self.space = self.env.action_space(self.params)
        self.num_actions = getattr(self.space, "n", None)

    def reset(self, keys: Any) -> tuple[Any, Any]:
        import jax

        return jax.vmap(self.env.reset, in_axes=(0, None))(keys, self.params)

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        import jax

        step = jax.vmap(self.env.step, in_axes=(0, 0, 0, None))
        # The sixth value is `info`, which is not used.
        return step(keys, state, action, self.params)[:5]


class MyriadJaxEnvs(JaxEnvs):
    """myriad-jax 0.2.0, stepped like its own trainers: reset and step under vmap, then a mask."""

    def __init__(self, env_id: str):
        self.env = importlib.import_module("myriad.envs").make_env(env_id)
        self.space = self.env.get_action_space(self.env.config)
        self.num_actions = getattr(self.space, "n", None)

    def reset(self, keys: Any) -> tuple[Any, Any]:
        import jax

        return jax.vmap(self.env.reset, in_axes=(0, None, None))(
            keys, self.env.params, self.env.config
        )

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        import jax
        import jax.numpy as jnp

        step_keys, reset_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        step = jax.vmap(self.env.step, in_axes=(0, 0, 0, None, None))
        obs, state, reward, done, _ = step(
            step_keys, state, action, self.env.params, self.env.config
        )
        done = done.astype(bool)
        reset_obs, reset_state = self.reset(reset_keys)

        def choose(new: Any, old: Any) -> Any:
            return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), new, old)

        obs, state = jax.tree.map(choose, (reset_obs, reset_state), (obs, state))
        return obs, state, reward, done, jnp.zeros_like(done)


class JumanjiEnvs(JaxEnvs):
    """jumanji with its own wrappers for batches and auto-reset. Its states hold its keys."""

    def __init__(self, env_id: str):
        jumanji = importlib.import_module("jumanji")
        wrappers = importlib.import_module("jumanji.wrappers")
        self.env = wrappers.VmapWrapper(wrappers.AutoResetWrapper(jumanji.make(env_id)))
        self.num_actions = self.env.action_spec.num_values

    def reset(self, keys: Any) -> tuple[Any, Any]:
        state, timestep = self.env.reset(keys)
        return timestep.observation, state

    def sample(self, keys: Any) -> Any:
        import jax

        return jax.vmap(lambda key: jax.random.randint(key, (), 0, self.num_actions))(keys)

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        state, timestep = self.env.step(state, action)
        # dm_env's rule: at a last step, a discount of 0 means terminated, and any other means
        # truncated.
        ended = timestep.step_type == 2
        terminal = timestep.discount == 0
        return timestep.observation, state, timestep.reward, ended & terminal, ended & ~terminal


ENVS: dict[str, Callable[[str], JaxEnvs]] = {
    "gymnax": GymnaxEnvs,
    "myriad-jax": MyriadJaxEnvs,
    "jumanji": JumanjiEnvs,
}
