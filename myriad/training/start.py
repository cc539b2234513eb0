"""What a new run begins with in place of a drawn agent: what another run's agent has learned.

`train_and_evaluate(config, start_from=run)` reads it before the new run's folder is made.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from myriad.agents import AGENTS
from myriad.agents.controller import ControllerLearner
from myriad.engine.devices import arrays_by_name, put_everywhere
from myriad.engine.random import holds_keys, make_key
from myriad.errors import InvalidArgumentError, shown
from myriad.training.config import NETWORK_FIELDS, TrainingConfig, read_fields
from myriad.training.loop import TrainState
from myriad.training.run_folder import RunFolder, require_kinds

# Fields of a learner's state that begin afresh, as those in `Learner.per_device` do. Updates count
# from 0, so that rates fall over the new run. The scale of a loss is soon found again.
_AFRESH = frozenset({"num_updates", "loss_scale"})


@dataclasses.dataclass(frozen=True)
class Start:
    """What an agent had learned by a checkpoint of another run.

    Attributes:
        record: what `environment.json` holds of it, the arguments with which `read` reads it again.
        arrays: the leaves of the agent's state that the new run takes over, by name.
    """

    record: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @classmethod
    def read(
        cls,
        run_folder: str | Path,
        config: TrainingConfig,
        update: int | None = None,
        *,
        best: bool = False,
    ) -> "Start":
        """Read what a new training begins with.

        Args:
            run_folder: the folder of the other run.
            config: the new training.
            update: the update of the checkpoint, by default of the newest.
            best: take the best agent by then, and not the newest.

        Raises:
            InvalidArgumentError: the folder holds no run of one such agent, no such checkpoint or
                no best agent, or the new training needs other shapes. The message names the first
                that differs.
        """
        folder = RunFolder(Path(run_folder).absolute())
        _require_same_agent(folder, config)
        learner = config.learner
        first = jax.eval_shape(lambda: learner.init(make_key(0), config.num_envs))
        afresh = _AFRESH | (learner.per_device or frozenset())
        checkpoints = folder.checkpoints

        def taken(leaves: Mapping[str, Any]) -> dict[str, Any]:
            names = [name for name in leaves if name.startswith("agent.")]
            # Behind "agent." comes the field of the agent's state to which a leaf belongs.
            return {name: leaves[name] for name in names if name.split(".")[1] not in afresh}

        def read(number: int) -> "Start":
            path = checkpoints.folder / str(number)
            needed = taken(jax.eval_shape(arrays_by_name, {"agent": first}))
            held = taken(checkpoints.kinds(number))
            if best:
                held = taken(checkpoints.best(number))
            require_kinds(path, held, needed)
            arrays = held if best else checkpoints.arrays(number, needed)
            record = {"run_folder": str(folder.path), "update": number, "best": best}
            return cls(record, arrays)

        start = checkpoints.read_newest(read) if update is None else read(update)
        if start is None:
            raise InvalidArgumentError("start_from", "must hold a checkpoint", folder.path)
        return start

    def into(self, state: TrainState) -> TrainState:
        """Return a first state, of one seed or many, with what was learned in its agent."""

        def leaf(path: Any, drawn: jax.Array) -> jax.Array:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            learned = self.arrays.get(f"agent.{name}")
            if learned is None or holds_keys(drawn):  # A key is the new run's own.
                return drawn
            # All seeds of a run begin with the same.
            whole: Any = np.broadcast_to(learned, drawn.shape)
            sharding: Any = drawn.sharding
            return put_everywhere(whole, sharding)

        agent = jax.tree_util.tree_map_with_path(leaf, state.agent)
        return dataclasses.replace(state, agent=agent)


def _require_same_agent(folder: RunFolder, config: TrainingConfig) -> None:
    """Raise InvalidArgumentError unless a run trained one agent of the kind that `config` has."""
    if isinstance(config.learner, ControllerLearner):
        rule = f"must be left out for {config.agent}, which learns nothing"
        raise InvalidArgumentError("start_from", rule, folder.path)
    # Nothing that the file names is imported.
    theirs = read_fields(folder.config_toml(), trust=True, known=("env",))
    if "seeds" in theirs:
        raise InvalidArgumentError("start_from", "must be a run of one seed", folder.path)
    ours = config.fields()
    # Equal shapes don't make equal networks, since an agent may keep its parameters as one vector.
    for name in ("agent", *NETWORK_FIELDS, "agent.hidden_sizes", "agent.critic_hidden_sizes"):
        has, needs = (fields.get(name) for fields in (theirs, ours))
        if name == "agent":
            has, needs = (AGENTS.resolve(str(each)) for each in (has, needs))
        if has != needs:
            rule = f"must have {name} = {shown(needs)}, not {shown(has)}"
            raise InvalidArgumentError("start_from", rule, folder.path)
