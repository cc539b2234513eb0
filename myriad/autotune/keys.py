"""The key of an answer in the autotuner's cache, and all that the answer depends on."""

import dataclasses
import hashlib
import json
from typing import Any

import jax

from myriad import __version__, settings
from myriad.hardware import Hardware, is_configured, package_versions
from myriad.training.config import TrainingConfig
from myriad.xla import default_dtype, matmul_precision

# Fields on which neither timings nor memory depend. The length of a schedule is a constant in the
# program, but costs nothing. How often a training evaluates only decides which timings it can use.
_IRRELEVANT = {
    "seed", "steps_per_env", "scan_chunk_size", "target_return", "checkpoint_every_s", "log_to",
    "eval_max_steps", "eval_frequency", "monitor_every", "film_every",
    "compile_mode", "wandb_project", "wandb_name", "wandb_tags", "seeds", "mapping",
}  # fmt: skip
_IRRELEVANT_OPTIONS = {"exploration_steps"}


def details(config: TrainingConfig, hardware: Hardware) -> dict[str, Any]:
    """Return everything that an answer depends on. Its hash is part of the key.

    Args:
        config: the training.
        hardware: the machine.
    """
    fields = {k: v for k, v in dataclasses.asdict(config).items() if k not in _IRRELEVANT}
    fields["agent_options"] = {
        name: v for name, v in fields["agent_options"].items() if name not in _IRRELEVANT_OPTIONS
    }
    versions = {"myriad": __version__} | package_versions()  # A checkout may not be installed.
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


def key(config: TrainingConfig, hardware: Hardware, spelled_out: dict[str, Any]) -> str:
    """Return the key of an answer.

    An example is `cartpole-control:dqn:100000:AMD-EPYC_24GB:configured:5a3c90ff`.
    """
    configured = "configured" if spelled_out["configured"] else "unconfigured"
    parts = (config.env, config.agent, config.num_envs, hardware.slug, configured)
    return ":".join(map(str, (*parts, digest(spelled_out))))


def digest(value: Any) -> str:
    """Return eight hexadecimal digits that stand for a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
