"""The commands that list what there is: `myriad envs`, `agents` and `presets`."""

import dataclasses

from myriad.cli.flags import XlaFlags, config_flags, table
from myriad.errors import InvalidArgumentError, UnknownNameError


@dataclasses.dataclass(frozen=True)
class Envs(XlaFlags):
    """List the environments, one name per line."""

    def run(self) -> None:
        """Print the names."""
        from myriad.envs import list_envs

        print("\n".join(list_envs()))


@dataclasses.dataclass(frozen=True)
class Agents(XlaFlags):
    """List the agents, one name per line."""

    def run(self) -> None:
        """Print the names."""
        from myriad.agents import list_agents

        print("\n".join(list_agents()))


@dataclasses.dataclass(frozen=True)
class Presets(XlaFlags, config_flags("env", "agent")):
    """List the presets and the values that each sets, next to those of the baseline."""

    def run(self) -> None:
        """Print a table for each agent."""
        from myriad.presets import list_presets

        presets = list_presets(self.agent)
        agents = sorted({preset.agent for preset in presets})
        if not agents:
            known = sorted({preset.agent for preset in list_presets()})
            raise UnknownNameError("agent with presets", self.agent, known)
        env = self.env or _SHOWN_ENV
        for i, agent in enumerate(agents):
            try:
                said = _table_of_presets(agent, env)
            except InvalidArgumentError as error:  # It can't act in the environment.
                said = f"{agent} on {env}: {error}"
            print(f"\n{said}" if i else said)


# Effective values depend on the environment as well, and every agent can act in this one.
_SHOWN_ENV = "cartpole-control"


def _table_of_presets(agent: str, env: str) -> str:
    """Return a line for each field that a preset of the agent sets, a column for each preset."""
    from myriad.presets import list_presets
    from myriad.training.config import make_config

    every = list_presets(agent)
    here = [preset for preset in every if preset.env in (None, env)]
    names = list(dict.fromkeys(preset.name for preset in here))
    fields = list(dict.fromkeys(field for preset in here for field in preset.fields))
    columns = [["field", *fields, "auto_tune"]]
    for name in names:
        config = make_config(env, agent, preset=name)
        values = [str(config.value_of(field)) for field in fields]
        columns.append([name, *values, str(config.tunes()).lower()])
    elsewhere = [
        f"{preset.name} has values of its own for {preset.env}: `--env {preset.env}` shows them"
        for preset in every
        if preset not in here
    ]
    return "\n".join([f"{agent} on {env}", table([*zip(*columns, strict=True)]), *elsewhere])
