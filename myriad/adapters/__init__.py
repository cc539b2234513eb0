"""Myriad's environments for other libraries, and environments of other libraries for Myriad.

You only call the functions here. The subclasses of the other libraries' classes are in
`gymnasium.py`, `gymnax.py` and `as_sb3.py`. These are imported on first use, so that you need no
library before.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from myriad.envs import build_env
from myriad.envs.environment import AnyEnvironment, Environment
from myriad.envs.vector import require_32_bits
from myriad.envs.wrappers import ResetPool, Uniform, randomised
from myriad.errors import NotInstalledError
from myriad.ranges import Integer, Like, checked, require
from myriad.spaces import Box

if TYPE_CHECKING:
    import gymnasium
    from gymnax.environments.environment import Environment as GymnaxEnvironment

    from myriad.adapters.gymnax import FromGymnax

_GYMNAX_ENVIRONMENT = Annotated[
    Any, Like("a gymnax environment", "default_params", "reset_env", "step_env")
]
# gymnax has no infinite bounds, and uses float32's largest number for no bound.
NO_BOUND = np.finfo(np.float32).max


class Library(NamedTuple):
    """The class that adapts a library's environments, and how to import and install the library.

    Its `adapt(name, **overrides)` returns an environment. `docs/adapters.md` has a row for each.
    """

    module: str
    adapter: str
    package: str
    extra: str


# Environments of other libraries, by prefix. Such a name never stands for a module of yours.
ADAPTERS = {
    "brax:": Library("myriad.adapters.brax", "FromBrax", "brax", "brax"),
    "craftax:": Library("myriad.adapters.craftax", "FromCraftax", "craftax", "craftax"),
    "gymnax:": Library("myriad.adapters.gymnax", "FromGymnax", "gymnax", "bench"),
    "jumanji:": Library("myriad.adapters.jumanji", "FromJumanji", "jumanji", "jumanji"),
    "navix:": Library("myriad.adapters.navix", "FromNavix", "navix", "navix"),
    "pgx:": Library("myriad.adapters.pgx", "FromPgx", "pgx", "pgx"),
    "playground:": Library(
        "myriad.adapters.playground", "FromPlayground", "mujoco_playground", "playground"
    ),
    "xland:": Library("myriad.adapters.xland", "FromXLand", "xminigrid", "xland"),
}


@checked
def make_env(env: str | AnyEnvironment, /, **overrides: Any) -> Environment:
    """Build an environment by its name, or change fields of one that you built yourself.

    Args:
        env: one of `list_envs()`, an alias such as `CartPole-v1`, `package.module:Name` for a
            class of your own, or a library and its name for an environment, such as `brax:ant` or
            `gymnax:CartPole-v1`. Or an environment.
        **overrides: fields of the environment or of its parameters that differ from the defaults,
            or from those of the environment that you give. A float parameter may be
            `"uniform(5, 15)"` or `Uniform(5, 15)` of `myriad.envs.wrappers`: each reset draws it.

    Raises:
        UnknownNameError: there is no such environment or field.
        InvalidArgumentError: `package.module:Name` can't be imported or is not an environment, the
            environment can't be hashed, or `jax_enable_x64` is on.

    Example:
        >>> make_env("cartpole", gravity=3.7).default_params.gravity
        3.7
        >>> make_env(make_env("cartpole"), gravity=1.6).default_params.gravity
        1.6
    """
    require_32_bits()
    ranges = {name: Uniform.of(name, value) for name, value in overrides.items()}
    if ranges := {name: each for name, each in ranges.items() if each is not None}:
        rest = {name: value for name, value in overrides.items() if name not in ranges}
        return randomised(make_env(env, **rest), ranges)
    if isinstance(env, str):
        prefix, colon, name = env.partition(":")
        if library := ADAPTERS.get(prefix + colon):
            size = overrides.pop("reset_pool", 0)
            module = import_adapter(library.module, library.package, library.extra)
            adapted = getattr(module, library.adapter).adapt(name, **overrides)
            return adapted if size == 0 else ResetPool(adapted, size)
    return build_env(env, **overrides)


@checked
def to_gymnax(env: AnyEnvironment, *, version: str = "1.0.1") -> "GymnaxEnvironment":
    """Return `env` as a gymnax environment with auto-reset.

    Args:
        env: the environment, as `make_env` builds it.
        version: "1.0.1" for a `step` that returns six values, with the last observation of an
            episode in `info["final_observation"]`. "0.0.9" for the five values that rejax and
            purejaxrl expect, with any gymnax. Its parameters are `max_steps_in_episode` and
            `env_params`.

    Raises:
        UnknownNameError: there is no such version.
        InvalidArgumentError: the installed gymnax is older than the version.
        NotInstalledError: gymnax can't be imported.

    Example:
        >>> import jax
        >>> from myriad import make_env
        >>> env = to_gymnax(make_env("cartpole-control"))
        >>> obs, state = env.reset(jax.random.key(0), env.default_params)
        >>> len(env.step(jax.random.key(1), state, 1, env.default_params))
        6
    """
    return import_adapter("myriad.adapters.gymnax", "gymnax").as_gymnax(env, version)


def from_gymnax(name_or_env: "str | GymnaxEnvironment", /, **overrides: Any) -> "FromGymnax":
    """Return a gymnax environment as a Myriad environment, for rollouts and trainings.

    Args:
        name_or_env: a name in `gymnax.registered_envs`, or a gymnax environment.
        **overrides: fields of its parameters, or arguments of its class, that differ from the
            defaults.

    Raises:
        UnknownNameError: there is no such environment, parameter or argument.
        InvalidArgumentError: its actions or observations are not one array each, or XLA can't
            compile it as configured.
        NotInstalledError: gymnax can't be imported.

    Example:
        >>> from_gymnax("CartPole-v1", max_steps_in_episode=200).default_params.max_steps_in_episode
        200
    """
    require("name_or_env", name_or_env, str | _GYMNAX_ENVIRONMENT)
    module = import_adapter("myriad.adapters.gymnax", "gymnax")
    return module.FromGymnax.adapt(name_or_env, **overrides)


@checked
def to_gymnasium(
    env: AnyEnvironment, *, render_mode: str | None = None, normalize_actions: bool = True
) -> "gymnasium.Env[Any, Any]":
    """Return `env` as a `gymnasium.Env` that steps on JAX's default device and returns NumPy.

    Args:
        env: the environment, as `make_env` builds it.
        render_mode: None, or "rgb_array" if the environment can render.
        normalize_actions: let bounded continuous actions run from -1 to 1, as Gymnasium's checker
            asks for, and scale them to the environment's own units. False leaves them in those
            units.

    Raises:
        UnknownNameError: the environment has no such render mode.
        InvalidArgumentError: a space has no counterpart in Gymnasium.
        NotInstalledError: Gymnasium can't be imported.

    Example:
        >>> from myriad import make_env
        >>> env = to_gymnasium(make_env("cartpole-control"))
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        >>> reward
        1.0
    """
    module = import_adapter("myriad.adapters.gymnasium", "gymnasium")
    return module.AsGymnasium(env, render_mode=render_mode, normalize_actions=normalize_actions)


@checked
def to_gymnasium_vector(
    env: AnyEnvironment,
    num_envs: Annotated[int, Integer(1)],
    *,
    autoreset_mode: str = "SameStep",
    render_mode: str | None = None,
    normalize_actions: bool = True,
) -> "gymnasium.vector.VectorEnv[Any, Any, Any]":
    """Return a `gymnasium.vector.VectorEnv` of `num_envs` copies with one compiled call per step.

    Each sub-environment has the same results as in a `SyncVectorEnv` over `to_gymnasium(env)`.

    Args:
        env: the environment, as `make_env` builds it.
        num_envs: number of copies that step together.
        autoreset_mode: with "SameStep", the step that ends an episode returns the first observation
            of the next one, and the last observation in `infos["final_obs"]`. "NextStep"
            (Gymnasium's default) and "Disabled" are as in Gymnasium.
        render_mode: None, or "rgb_array" if the environment can render.
        normalize_actions: as for `to_gymnasium`.

    Raises:
        ValueError: there is no such autoreset or render mode.
        InvalidArgumentError: `num_envs` is not an integer of at least 1, or a space has no
            counterpart in Gymnasium.
        NotInstalledError: Gymnasium can't be imported.

    Example:
        >>> from myriad import make_env
        >>> envs = to_gymnasium_vector(make_env("cartpole-control"), num_envs=3)
        >>> obs, infos = envs.reset(seed=0)
        >>> obs.shape
        (3, 4)
    """
    module = import_adapter("myriad.adapters.gymnasium", "gymnasium")
    return module.AsGymnasiumVector(
        env,
        num_envs,
        autoreset_mode=autoreset_mode,
        render_mode=render_mode,
        normalize_actions=normalize_actions,
    )


@checked
def to_sb3(
    env: AnyEnvironment,
    num_envs: Annotated[int, Integer(1)],
    *,
    render_mode: str | None = None,
    normalize_actions: bool = True,
) -> Any:
    """Return `num_envs` copies of `env` as a `VecEnv` of Stable-Baselines3.

    The step that ends an episode returns the first observation of the next one. The `infos` hold
    `terminal_observation` and `TimeLimit.truncated`.

    Args:
        env: the environment, as `make_env` builds it.
        num_envs: number of copies that step together, in one compiled call.
        render_mode: as for `to_gymnasium`.
        normalize_actions: as for `to_gymnasium`.

    Raises:
        UnknownNameError: there is no such render mode.
        InvalidArgumentError: `num_envs` is not an integer of at least 1, or a space has no
            counterpart in Gymnasium.
        NotInstalledError: Stable-Baselines3 can't be imported.
    """
    module = import_adapter("myriad.adapters.as_sb3", "stable_baselines3", "sb3")
    return module.AsSB3(env, num_envs, render_mode=render_mode, normalize_actions=normalize_actions)


def finite_bounds(box: Box) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of `box`, float32 of its shape, `NO_BOUND` in place of infinities."""
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float32), box.shape) for bound in (box.low, box.high)
    )
    return np.maximum(low, -NO_BOUND), np.minimum(high, NO_BOUND)


def import_adapter(module: str, library: str, extra: str = "bench") -> ModuleType:
    """Return a module of `myriad.adapters`, which needs a library that an extra installs.

    Raises:
        NotInstalledError: the library can't be imported.
    """
    try:
        importlib.import_module(library)
    except ImportError as error:
        raise NotInstalledError("this adapter", library, extra) from error
    return importlib.import_module(module)
