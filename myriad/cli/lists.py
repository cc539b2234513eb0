"""`myriad envs` and `myriad agents`."""

import dataclasses

from myriad.cli.flags import XlaFlags


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
