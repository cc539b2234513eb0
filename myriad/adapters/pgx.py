"""Games of Pgx for one player, such as `pgx:2048`."""

import dataclasses
import importlib
import io
from collections.abc import Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from myriad.adapters.adapter import Adapter, Built, Stepped, results, strongly_typed
from myriad.errors import InvalidArgumentError, NotInstalledError
from myriad.spaces import Box, Discrete


@dataclasses.dataclass(frozen=True)
class FromPgx(Adapter):
    """A game of Pgx for one player. An illegal move ends it with a reward of -1, as in Pgx.

    Observations of booleans are uint8.
    """

    library: ClassVar[str] = "pgx"

    @classmethod
    def names(cls) -> Iterable[str]:
        return importlib.import_module("pgx").available_envs()

    def build(self) -> Built:
        env = importlib.import_module("pgx").make(self.name)
        if env.num_players != 1:
            raise InvalidArgumentError("env", "must be a game for one player", f"pgx:{self.name}")
        obs = jax.eval_shape(env.init, jax.random.key(0)).observation
        space = Box(-np.inf, np.inf, obs.shape, obs.dtype)
        if obs.dtype == bool:
            space = Box(0, 1, obs.shape, np.uint8)
        return Built(env, space, Discrete(env.num_actions))

    def reset(self, key: jax.Array, params: Any) -> tuple[Any, Any]:
        state = strongly_typed(self.env.init(key))
        return self._observed(state), state

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Stepped:
        state = self.env.step(state, action, key)
        return results(
            self._observed(state), state, state.rewards, state.terminated, state.truncated, {}
        )

    def action_mask(self, state: Any) -> jax.Array:
        """Return which moves are legal: boolean `[n]`."""
        return state.legal_action_mask

    def render(self, state: Any) -> np.ndarray:
        """Draw Pgx's picture of the state: uint8 `[H, W, 3]`, on the host."""
        try:
            # It raises OSError if it doesn't find the system's cairo.
            cairosvg = importlib.import_module("cairosvg")
        except (ImportError, OSError) as error:
            raise NotInstalledError("render", "cairosvg with libcairo2", "pgx") from error
        png = cairosvg.svg2png(bytestring=state.to_svg().encode(), background_color="white")
        return np.array(Image.open(io.BytesIO(png)).convert("RGB"))

    def _observed(self, state: Any) -> jax.Array:
        return jnp.asarray(state.observation, self.observation_space(None).dtype)
