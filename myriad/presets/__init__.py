"""Presets by name: fields of a training that you set together. There is a TOML file per agent.

Each table of the file is a preset. `[tuned.snake]` is one for a single environment.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from myriad.errors import InvalidArgumentError, UnknownNameError
from myriad.files import read_text
from myriad.ranges import require

FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named set of values. Values that you give yourself override it.

    Attributes:
        name: the preset's name.
        agent: the agent that it is for.
        env: the environment that it is for; None for all.
        fields: values of `TrainingConfig`'s fields and of options by dotted name.
        auto_tune: whether the autotuner chooses the chunk size.
    """

    name: str
    agent: str
    env: str | None
    fields: Mapping[str, Any]
    auto_tune: bool


def load_preset(name: str, agent: str, env: str | None) -> Preset:
    """Return the preset called `name` of an agent in an environment.

    Raises:
        UnknownNameError: the agent has no preset of this name for this environment.
        InvalidArgumentError: its file is damaged.
    """
    known = [preset for preset in list_presets(agent) if preset.env in (None, env)]
    named = [preset for preset in known if preset.name == name]
    if not named:
        owner = f"{agent} on {env}"
        raise UnknownNameError("preset", name, {preset.name for preset in known}, owner=owner)
    # A preset for this environment precedes one for all environments.
    return max(named, key=lambda preset: preset.env is not None)


def list_presets(agent: str | None = None) -> list[Preset]:
    """Return all presets, or those of one agent, in the order of their files.

    Raises:
        InvalidArgumentError: a file is damaged.
    """
    files = [FOLDER / f"{agent}.toml"] if agent else sorted(FOLDER.glob("*.toml"))
    return [preset for file in files if file.exists() for preset in _read(file)]


def _read(file: Path) -> list[Preset]:
    try:
        tables = tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(f"{file} is not TOML: {error}.") from None
    presets = []
    for name, table in tables.items():
        require(f"{file}: {name}", table, dict)
        of_envs = {env: fields for env, fields in table.items() if isinstance(fields, dict)}
        if unquoted := of_envs.keys() & {"agent", "env", "agent_options", "env_options"}:
            owner = min(unquoted).partition("_")[0]
            says = f'{file}: write options of {name} in quotes, such as "{owner}.name" = 1.'
            raise InvalidArgumentError(says)
        for_all = {field: value for field, value in table.items() if field not in of_envs}
        if for_all or not of_envs:
            of_envs = {None: for_all, **of_envs}
        for env, fields in of_envs.items():
            auto_tune = fields.pop("auto_tune", False)
            require(f"{file}: auto_tune of {name}", auto_tune, bool)
            presets.append(Preset(name, file.stem, env, fields, auto_tune))
    return presets
