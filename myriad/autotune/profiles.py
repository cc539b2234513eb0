"""Describe a machine, an environment and an agent in the cache, for people who read the file."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax

from myriad.autotune.cache import Entry, ProfileCache
from myriad.autotune.keys import digest
from myriad.hardware import Hardware
from myriad.training.config import SHARED_WITH_AGENT, TrainingConfig, make_config
from myriad.training.memory import state_size

Say = Callable[[str], None]


def record_profiles(
    cache: ProfileCache, config: TrainingConfig, hardware: Hardware, say: Say
) -> None:
    """Describe the machine, the environment and the agent, unless the cache already has them."""
    of_env = {"env": config.env, "env_options": config.env_options}
    sizes = {name: getattr(config, name) for name in SHARED_WITH_AGENT}
    of_agent = {"agent": config.agent, "agent_options": config.agent_options} | sizes | of_env

    def record(section: str, name: str, key: str, describe: Callable[[], Entry]) -> None:
        kind = section.removesuffix("_profiles")
        if cache.get(section, key) is not None:
            say(f"{kind} {name}: cached")
            return
        start = time.perf_counter()
        entry = describe()
        cache.update(section, key, lambda _: entry)
        say(f"{kind} {name}: profiled in {time.perf_counter() - start:.2f} s")

    record("hardware", hardware.slug, hardware.slug, lambda: hardware_profile(hardware))
    record(
        "env_profiles",
        config.env,
        f"{config.env}:{digest(of_env)}",
        lambda: of_env | _env_profile(config),
    )
    record(
        "agent_profiles",
        config.agent,
        f"{config.agent}:{digest(of_agent)}",
        lambda: of_agent | _agent_profile(config),
    )


def hardware_profile(hardware: Hardware) -> Entry:
    """Return the cache's description of a machine."""
    return dataclasses.asdict(hardware) | {
        "devices": jax.local_device_count(),
        "platform": jax.default_backend(),
    }


def _env_profile(config: TrainingConfig) -> dict[str, Any]:
    env = config.environment
    # Random actions need no state, so the whole state is the environment's.
    alone = make_config(config.env, "random", env_options=config.env_options)
    return {
        "observation": str(env.observation_space(env.default_params)),
        "action": str(env.action_space(env.default_params)),
        "bytes_per_env": state_size(alone).per_env,
    }


def _agent_profile(config: TrainingConfig) -> dict[str, Any]:
    size = state_size(config)
    return {
        "env": config.env,
        "fixed_bytes": size.fixed,
        "bytes_per_env": size.per_env,
    }
