"""PPO on CartPole in the manner of CleanRL, on any of Gymnasium's vector environments.

The loop doesn't know whose environments it gets: `--library` chooses Myriad's or Gymnasium's own.

    python examples/ppo_gymnasium_vector.py
    python examples/ppo_gymnasium_vector.py --library gymnasium

Needs `pip install 'myriad-rl[bench]'`: Gymnasium, and the flax and optax that gymnax brings.
"""

import argparse
import collections
import dataclasses
import time
from typing import Any

import flax.linen as nn
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium.vector import AutoresetMode, VectorEnv

import myriad
from myriad.adapters import to_gymnasium_vector


@dataclasses.dataclass(frozen=True)
class Flags:
    """The command line."""

    library: str = "myriad"  # whose environments: myriad or gymnasium
    seed: int = 1  # of networks, actions and environments
    num_envs: int = 32  # environments that step together
    total_timesteps: int = 150_000  # steps of all environments together
    num_steps: int = 32  # steps of each environment between two updates
    num_minibatches: int = 4  # parts of a batch
    update_epochs: int = 4  # passes over a batch
    learning_rate: float = 2.5e-3  # Adam's, at the start; it falls linearly to zero
    gamma: float = 0.99  # discount
    gae_lambda: float = 0.95  # of generalised advantage estimation
    clip_coef: float = 0.2  # PPO's clipping of the probability ratio
    ent_coef: float = 0.01  # weight of the entropy
    vf_coef: float = 0.5  # weight of the value's error
    max_grad_norm: float = 0.5  # limit of the gradient's norm


class ActorCritic(nn.Module):
    """Two networks of two tanh layers: the actions' logits `[B, n]`, and the value `[B]`."""

    num_actions: int

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        def mlp(num_outputs: int, scale: float) -> jax.Array:
            hidden = obs
            for _ in range(2):
                hidden = nn.tanh(
                    nn.Dense(64, kernel_init=nn.initializers.orthogonal(2**0.5))(hidden)
                )
            return nn.Dense(num_outputs, kernel_init=nn.initializers.orthogonal(scale))(hidden)

        return mlp(self.num_actions, 0.01), mlp(1, 1.0).squeeze(-1)


def make_envs(flags: Flags) -> VectorEnv:
    """Build CartPole-v1 from the library asked for: the one line in which the two differ."""
    if flags.library == "myriad":
        return to_gymnasium_vector(myriad.make_env("CartPole-v1"), flags.num_envs)
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    return gymnasium.make_vec(
        "CartPole-v1", flags.num_envs, vectorization_mode="sync", vector_kwargs=same_step
    )


def advantages(flags: Flags, rewards: Any, values: Any, dones: Any, next_value: Any) -> np.ndarray:
    """Estimate advantages `[T, B]` (Schulman et al. 2016); all arrays are `[T, B]`."""
    result = np.zeros_like(rewards)
    running = np.zeros_like(next_value)
    for t in reversed(range(flags.num_steps)):
        following = values[t + 1] if t + 1 < flags.num_steps else next_value
        error = rewards[t] + flags.gamma * following * ~dones[t] - values[t]
        running = error + flags.gamma * flags.gae_lambda * ~dones[t] * running
        result[t] = running
    return result


class Learner:
    """Networks, their optimiser, and the compiled functions of both."""

    def __init__(self, flags: Flags, envs: VectorEnv):
        self.flags = flags
        self.num_updates = flags.total_timesteps // (flags.num_envs * flags.num_steps)
        self.network = ActorCritic(int(envs.single_action_space.n))
        rate = optax.linear_schedule(
            flags.learning_rate,
            0.0,
            max(1, self.num_updates * flags.update_epochs * flags.num_minibatches),
        )
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(flags.max_grad_norm), optax.adam(rate, eps=1e-5)
        )
        self.key, init_key = jax.random.split(jax.random.key(flags.seed))
        self.params = self.network.init(
            init_key, jnp.zeros((1, *envs.single_observation_space.shape))
        )
        self.optimiser_state = self.optimiser.init(self.params)
        self._act = jax.jit(self._sample)
        self._value = jax.jit(self._estimate)
        self._improve = jax.jit(self._descend)

    def act(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw actions for `obs`; return them with their log-probabilities and the values."""
        self.key, key = jax.random.split(self.key)
        return jax.device_get(self._act(self.params, key, obs))

    def value(self, obs: np.ndarray) -> np.ndarray:
        return np.asarray(self._value(self.params, obs))

    def improve(self, batch: dict[str, np.ndarray], rng: np.random.Generator) -> None:
        """Descend over minibatches of `batch`, `[T * B, ...]`, shuffled anew each epoch."""
        size = len(batch["actions"])
        for _ in range(self.flags.update_epochs):
            for rows in np.array_split(rng.permutation(size), self.flags.num_minibatches):
                minibatch = {name: values[rows] for name, values in batch.items()}
                self.params, self.optimiser_state = self._improve(
                    self.params, self.optimiser_state, minibatch
                )

    def _sample(
        self, params: Any, key: jax.Array, obs: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits, values = self.network.apply(params, obs)
        actions = jax.random.categorical(key, logits)
        return actions, _log_probability(logits, actions), values

    def _estimate(self, params: Any, obs: jax.Array) -> jax.Array:
        return self.network.apply(params, obs)[1]

    def _descend(
        self, params: Any, optimiser_state: Any, batch: dict[str, jax.Array]
    ) -> tuple[Any, Any]:
        gradient = jax.grad(self._loss)(params, batch)
        updates, optimiser_state = self.optimiser.update(gradient, optimiser_state, params)
        return optax.apply_updates(params, updates), optimiser_state

    def _loss(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        logits, values = self.network.apply(params, batch["obs"])
        ratio = jnp.exp(_log_probability(logits, batch["actions"]) - batch["log_probabilities"])
        gain = (batch["advantages"] - batch["advantages"].mean()) / (
            batch["advantages"].std() + 1e-8
        )
        clipped = jnp.clip(ratio, 1 - self.flags.clip_coef, 1 + self.flags.clip_coef)
        policy_loss = -jnp.minimum(gain * ratio, gain * clipped).mean()
        value_loss = 0.5 * jnp.square(values - batch["returns"]).mean()
        entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1).mean()
        return policy_loss + self.flags.vf_coef * value_loss - self.flags.ent_coef * entropy


def train(flags: Flags, envs: VectorEnv) -> list[float]:
    """Train on `envs`, which reset in the same step; return the episodes' returns in order."""
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    learner = Learner(flags, envs)
    rng = np.random.default_rng(flags.seed)
    episode_returns = []
    running = np.zeros(flags.num_envs)
    obs, _ = envs.reset(seed=flags.seed)
    for _ in range(learner.num_updates):
        rows = collections.defaultdict(list)
        for _ in range(flags.num_steps):
            actions, log_probabilities, values = learner.act(obs)
            next_obs, rewards, terminated, truncated, infos = envs.step(actions)
            done = terminated | truncated
            running = running + rewards
            episode_returns.extend(running[done])
            running[done] = 0
            if truncated.any():
                # The time was up, the pole had not fallen: what would have come is worth the final
                # state's value.
                last = np.stack(
                    [
                        infos["final_obs"][i] if truncated[i] else obs[i]
                        for i in range(flags.num_envs)
                    ]
                )
                rewards = rewards + flags.gamma * learner.value(last) * truncated
            step = {
                "obs": obs,
                "actions": actions,
                "log_probabilities": log_probabilities,
                "values": values,
            }
            for name, value in (
                step | {"rewards": rewards.astype(np.float32), "dones": done}
            ).items():
                rows[name].append(value)
            obs = next_obs
        batch = {name: np.stack(values) for name, values in rows.items()}
        gains = advantages(
            flags, batch.pop("rewards"), batch["values"], batch.pop("dones"), learner.value(obs)
        )
        batch |= {"advantages": gains, "returns": gains + batch.pop("values")}
        learner.improve(
            {name: values.reshape(-1, *values.shape[2:]) for name, values in batch.items()}, rng
        )
    return episode_returns


def parse_flags() -> Flags:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for field in dataclasses.fields(Flags):
        choices = ["myriad", "gymnasium"] if field.name == "library" else None
        option = "--" + field.name.replace("_", "-")
        parser.add_argument(
            option, type=type(field.default), default=field.default, choices=choices
        )
    return Flags(**vars(parser.parse_args()))


def _log_probability(logits: jax.Array, actions: jax.Array) -> jax.Array:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], axis=-1).squeeze(-1)


if __name__ == "__main__":
    flags = parse_flags()
    myriad.configure()
    start = time.perf_counter()
    envs = make_envs(flags)
    returns = train(flags, envs)
    envs.close()
    num_steps, seconds = flags.total_timesteps, time.perf_counter() - start
    print(
        f"{num_steps} steps of {flags.library}'s CartPole-v1 in {seconds:.1f} s, "
        "compilation included"
    )
    print(f"mean return of the first 100 episodes: {np.mean(returns[:100]):.1f}")
    print(f"mean return of the last 100 episodes: {np.mean(returns[-100:]):.1f}")
