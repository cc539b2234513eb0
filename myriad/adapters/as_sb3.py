"""Copies of a Myriad environment as a `VecEnv` of Stable-Baselines3, imported on first use."""

import importlib
from typing import Any

import numpy as np

from myriad.adapters import to_gymnasium_vector
from myriad.envs.environment import Environment

# Type checkers need not find Stable-Baselines3.
_base: Any = importlib.import_module("stable_baselines3.common.vec_env")


class AsSB3(_base.VecEnv):
    """The Gymnasium vector environment with Stable-Baselines3's names."""

    def __init__(self, env: Environment, num_envs: int, **options: Any):
        self.env = env
        self.envs = to_gymnasium_vector(env, num_envs, **options)
        super().__init__(
            num_envs, self.envs.single_observation_space, self.envs.single_action_space
        )

    def reset(self) -> np.ndarray:
        obs, _ = self.envs.reset(seed=self._seeds)
        self._reset_seeds()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, rewards, terminated, truncated, info = self.envs.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for part in (info, info.get("final_info", {})):
            for name in part.keys() - {"final_info", "final_obs"}:
                for row in np.flatnonzero(part.get(f"_{name}", ())):
                    infos[row][name] = part[name][row]
        done = terminated | truncated
        for row in np.flatnonzero(done):
            infos[row]["terminal_observation"] = info["final_obs"][row]
            infos[row]["TimeLimit.truncated"] = bool(truncated[row] and not terminated[row])
        return obs, rewards.astype(np.float32), done, infos

    def get_images(self) -> Any:
        return self.envs.render()

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        owner = self.envs if attr_name == "render_mode" else self.env
        return [getattr(owner, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(
            "A Myriad environment never changes. Pass other fields to make_env instead."
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        return [
            method(*method_args, **method_kwargs) for method in self.get_attr(method_name, indices)
        ]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]
