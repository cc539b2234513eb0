"""What the cache says of a machine, an environment and an agent, and what an answer depends on."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax

from myriad import settings
from myriad.autotune.cache import Entry, ProfileCache, digest
from myriad.engine.machine import Hardware, is_configured, package_versions
from myriad.training.compiled import state_size
from myriad.training.config import SHARED_WITH_AGENT, TrainingConfig, make_config
from myriad.xla import default_dtype, matmul_precision

Say = Callable[[str], None]

# Fields on which neither timings nor memory depend. The length of a schedule is a constant in the
# program, but costs nothing. How often a training evaluates only decides which timings it can use.
_IRRELEVANT = {
    "seed", "steps_per_env", "scan_chunk_size", "target_return", "checkpoint_every_s", "log_to",
    "eval_max_steps", "eval_frequency", "monitor_every", "film_every",
    "compile_mode", "wandb_project", "wandb_name", "wandb_tags", "seeds", "grid", "mapping",
}  # fmt: skip
_IRRELEVANT_OPTIONS = {"exploration_steps"}


def details(config: TrainingConfig, hardware: Hardware) -> dict[str, Any]:
    """Return everything that an answer depends on. Its hash is part of the key.

    Args:
        config: the training.
        hardware: the machine.
    """
    fields = {k: v for k, v in config.values().items() if k not in _IRRELEVANT}
    fields["agent_options"] = {
        name: v for name, v in fields["agent_options"].items() if name not in _IRRELEVANT_OPTIONS
    }
    versions = package_versions()
    return {
        "config": fields,
        "device": {
            "kind": hardware.device_kind,
            "name": hardware.device_name,
            "count": jax.local_device_count(),
            "processes": jax.process_count(),
            "cores": hardware.cores,
            "memory_total_bytes": hardware.memory_total_bytes,
        },
        "versions": {name: versions.get(name) for name in ("myriad", "jax", "jaxlib")},
        # The dtype of the networks. Other arrays have the same dtype in every training.
        "dtype": config.agent_options.get("compute_dtype", default_dtype()),
        "default_dtype": default_dtype(),
        "matmul_precision": matmul_precision(),
        "configured": is_configured(),
        "xla_flags": settings.xla_flags(),
    }


def key_of(config: TrainingConfig, hardware: Hardware, spelled_out: dict[str, Any]) -> str:
    """Return the key of an answer.

    An example is `cartpole-control:dqn:100000:AMD-EPYC_24GB:configured:5a3c90ff`.
    """
    configured = "configured" if spelled_out["configured"] else "unconfigured"
    parts = (config.env, config.agent, config.num_envs, hardware.slug, configured)
    return ":".join(map(str, (*parts, digest(spelled_out))))


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
        cache.update(section, key, describe())
        say(f"{kind} {name}: profiled in {time.perf_counter() - start:.2f} s")

    def env_profile() -> Entry:
        env = config.environment
        # Random actions need no state, so the whole state is the environment's.
        alone = make_config(env, "random")
        return of_env | {
            "observation": str(env.observation_space(env.default_params)),
            "action": str(env.action_space(env.default_params)),
            "bytes_per_env": state_size(alone)[1],
        }

    def agent_profile() -> Entry:
        fixed, per_env = state_size(config)
        return of_agent | {"fixed_bytes": fixed, "bytes_per_env": per_env}

    machine = {"devices": jax.local_device_count(), "platform": jax.default_backend()}
    machine |= dataclasses.asdict(hardware)
    record("hardware", hardware.slug, hardware.slug, lambda: machine)
    record("env_profiles", config.env, f"{config.env}:{digest(of_env)}", env_profile)
    key = f"{config.agent}:{digest(of_agent)}"
    record("agent_profiles", config.agent, key, agent_profile)
