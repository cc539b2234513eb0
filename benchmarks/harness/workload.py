"""A declared workload, and the case of one library that steps it.

Standard library only, because peers run this in a Python of their own.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

Tier = Literal["quick", "full"]


@dataclass(frozen=True)
class Workload:
    """The environments and agent that a benchmark steps."""

    # A key that is unknown or of another kind is a mistake.
    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": True}

    suite: str
    name: str
    env: str
    agent: str
    num_envs: int
    scan_chunk_size: int
    tiers: tuple[Tier, ...]
    num_steps: int | None = None


@dataclass(frozen=True)
class Case:
    """A library, or a way to run one, and the workload that it steps.

    Attributes:
        side: its name in libraries.toml. The files of raw samples call it so.
        record: whether it writes every step to a trajectory.
        env_id: its library's name for the environment; empty for Myriad, and if the library has
            none.
        returns: whether it must keep the returns of episodes, for a check of returns.
    """

    side: str
    workload: Workload
    record: bool = False
    env_id: str = ""
    returns: bool = False

    @property
    def label(self) -> str:
        """A name that is unique among the cases of a run."""
        return f"{self.side} {self.workload.name}{' recorded' if self.record else ''}"
