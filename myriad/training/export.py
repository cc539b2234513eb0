"""A trained agent as a file that loads without Myriad. `myriad export` writes it."""

import importlib
import json
from pathlib import Path
from typing import Literal

import jax
import numpy as np
from jax import export

from myriad.agents.controller import TrainedPolicy
from myriad.engine.devices import named_leaves
from myriad.envs import Environment
from myriad.errors import InvalidArgumentError, NotInstalledError
from myriad.files import replacing, require_free, user_path
from myriad.training.config import TrainingConfig

__all__ = ["export_agent"]

# The platforms that a program is compiled for.
_PLATFORMS = ("cpu", "cuda", "tpu")


def export_agent(
    config: TrainingConfig,
    env: Environment,
    agent: object,
    output: str | Path,
    *,
    format: Literal["stablehlo", "safetensors"] = "stablehlo",  # noqa: A002 (the flag's name)
    force: bool = False,
) -> str:
    """Write the agent of a run to a file, and return a sentence on what it holds.

    Args:
        config: the configuration, environment and agent, as `load_agent` returns them.
        env: see `config`.
        agent: see `config`.
        output: the file.
        format: stablehlo for the compiled policy, safetensors for the parameters.
        force: replace the file if it exists.

    Raises:
        InvalidArgumentError: the file exists, or the agent has no policy to write.
        NotInstalledError: a library that the format needs can't be imported.
    """
    require_free(user_path(output), force=force)
    if not isinstance(agent, TrainedPolicy):
        raise InvalidArgumentError(f"{config.agent} has a memory or no weights to export.")
    write = {"stablehlo": _program, "safetensors": _parameters}[format]
    data, said = write(config, env, agent)
    with replacing(user_path(output)) as new:
        new.write_bytes(data)
    return said


def _program(config: TrainingConfig, env: Environment, agent: TrainedPolicy) -> tuple[bytes, str]:
    """Return the greedy policy as JAX serialises a program, for batches of any size."""
    space = env.observation_space(env.default_params)
    key = jax.random.key(0)  # Greedy actions need none.
    policy = jax.jit(jax.vmap(lambda obs: agent.act(key, obs)))
    (batch,) = export.symbolic_shape("batch")
    obs = jax.ShapeDtypeStruct((batch, *space.shape), space.dtype)
    exported = export.export(policy, platforms=_PLATFORMS)(obs)
    try:
        data = exported.serialize()
    except ImportError as error:
        raise NotInstalledError("--format stablehlo", "flatbuffers", "export") from error
    (of_obs,), (of_action,) = exported.in_avals, exported.out_avals
    said = f"from observations {of_obs.str_short()} to actions {of_action.str_short()}"
    return bytes(data), said


def _parameters(
    config: TrainingConfig, env: Environment, agent: TrainedPolicy
) -> tuple[bytes, str]:
    """Return the parameters and the moments of observations as safetensors."""
    try:
        library = importlib.import_module("safetensors.numpy")
    except ImportError as error:
        raise NotInstalledError("--format safetensors", "safetensors", "export") from error

    learner, state = agent.learner, agent.state
    named = getattr(learner, "named_params", lambda state: state.params)(state)
    tree = {"params": named, "obs_stats": getattr(state, "obs_stats", None)}
    arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(tree).items() if leaf.size}
    about = {"env": config.env, "agent": config.agent, "options": json.dumps(config.agent_options)}
    return library.save(arrays, about), ", ".join(sorted(arrays))
