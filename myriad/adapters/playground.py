"""Environments of MuJoCo Playground, such as `playground:CartpoleBalance`."""

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from myriad.adapters.adapter import Built
from myriad.adapters.brax import WithBraxState


@dataclasses.dataclass(frozen=True)
class FromPlayground(WithBraxState):
    """An environment of MuJoCo Playground.

    The values of its configuration are fields, as `episode_length` is. A nested one has a dotted
    name. The field `impl` is "jax" by default without a GPU, since "warp" needs one.
    """

    library: ClassVar[str] = "playground"

    @classmethod
    def names(cls) -> Iterable[str]:
        return _registry().ALL_ENVS

    @classmethod
    def arguments(cls, name: str) -> Mapping[str, Any]:
        config = _flat(_registry().get_default_config(name))
        if "impl" in config and jax.default_backend() != "gpu":
            config["impl"] = "jax"
        return config

    def build(self) -> Built:
        config = {**self.arguments(self.name), **dict(self.options)}
        chosen = {**dict(self.options), **({"impl": config["impl"]} if "impl" in config else {})}
        env = _registry().load(self.name, config_overrides=chosen)
        return self.wrapped(env, config["episode_length"], config["action_repeat"])

    def render(self, state: Any) -> np.ndarray:
        """Draw the bodies with MuJoCo: uint8 `[240, 320, 3]`, on the host."""
        return np.asarray(self.env.render(state))


def _registry() -> Any:
    return importlib.import_module("mujoco_playground").registry


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return the values of a configuration, those of its parts by dotted name."""
    flat = {}
    for name, value in config.items():
        is_part = hasattr(value, "items")
        flat |= _flat(value, f"{prefix}{name}.") if is_part else {f"{prefix}{name}": value}
    return flat
