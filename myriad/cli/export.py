"""`myriad export`."""

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from myriad.cli.flags import XlaFlags
from myriad.errors import InvalidArgumentError, NotInstalledError
from myriad.ranges import Seed

# The platforms that a program is compiled for.
_PLATFORMS = ("cpu", "cuda", "tpu")


@dataclasses.dataclass(frozen=True)
class Export(XlaFlags):
    """Write the trained agent of a run to a file that loads without Myriad."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    format: Annotated[
        Literal["stablehlo", "safetensors"], tyro.conf.arg(metavar="{stablehlo,safetensors}")
    ] = dataclasses.field(kw_only=True)
    """stablehlo: a program of JAX that chooses the greedy actions for a batch of observations.
    safetensors: the parameters and the moments of observations, by name."""

    output: Path | None = None
    """File to write. By default agent.FORMAT in the run's folder."""

    train_seed: Seed | None = None
    """Seed of the training, in a run of many seeds."""

    trust: bool = False
    """Import code that the run names as module:Class."""

    force: bool = False
    """Replace the file of --output if it exists."""

    def run(self) -> None:
        """Write the file, and print its name and what it holds."""
        from myriad.agents.controller import TrainedPolicy
        from myriad.api import load_training
        from myriad.files import replacing, require_free

        output = self.output or self.run_folder / f"agent.{self.format}"
        require_free(output, force=self.force)
        config, env, agent = load_training(self.run_folder, self.train_seed, trust=self.trust)
        if not isinstance(agent, TrainedPolicy):
            raise InvalidArgumentError(
                f"{self.run_folder} holds {config.agent}, which learns nothing or has a memory: "
                "name a run of an agent that learns, without a memory."
            )
        write = {"stablehlo": _program, "safetensors": _parameters}[self.format]
        data, said = write(config, env, agent)
        with replacing(output) as new:
            new.write_bytes(data)
        print(f"{output}: {said}")


def _program(config: Any, env: Any, agent: Any) -> tuple[bytes, str]:
    """Return the greedy policy as JAX serialises a program, for batches of any size."""
    import jax
    from jax import export

    space = env.observation_space(env.default_params)
    key = jax.random.key(0)  # Greedy actions need none.
    policy = jax.jit(jax.vmap(lambda obs: agent.act(key, obs)))
    (batch,) = export.symbolic_shape("batch")
    obs = jax.ShapeDtypeStruct((batch, *space.shape), space.dtype)
    exported = export.export(policy, platforms=_PLATFORMS)(obs)
    try:
        data = exported.serialize()
    except ImportError as error:
        raise _missing("stablehlo", "flatbuffers") from error
    (of_obs,), (of_action,) = exported.in_avals, exported.out_avals
    said = f"from observations {of_obs.str_short()} to actions {of_action.str_short()}"
    return bytes(data), said


def _parameters(config: Any, env: Any, agent: Any) -> tuple[bytes, str]:
    """Return the parameters and the moments of observations as safetensors."""
    import jax
    import numpy as np

    try:
        library = importlib.import_module("safetensors.numpy")
    except ImportError as error:
        raise _missing("safetensors", "safetensors") from error

    learner, state = agent.learner, agent.state
    named = getattr(learner, "named_params", lambda state: state.params)(state)
    tree = {"params": named, "obs_stats": getattr(state, "obs_stats", None)}
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    arrays = {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in leaves
        if leaf.size
    }
    about = {"env": config.env, "agent": config.agent, "options": json.dumps(config.agent_options)}
    return library.save(arrays, about), ", ".join(sorted(arrays))


def _missing(form: str, package: str) -> NotInstalledError:
    return NotInstalledError(f"--format {form} needs {package}: pip install {package}")
