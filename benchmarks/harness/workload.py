"""One declared workload. Standard library only, because peers run this in a Python of their own."""

from dataclasses import dataclass
from typing import ClassVar, Literal

Tier = Literal["quick", "full"]
Device = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Workload:
    """The environments and agent that a benchmark steps, and the devices on which it is measured.

    With `num_seeds`, that many trainings run in parallel, each in `num_envs` environments.
    """

    # A key that is unknown or of another kind is a mistake.
    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": True}

    suite: str
    name: str
    env: str
    agent: str
    num_envs: int
    scan_chunk_size: int
    tiers: tuple[Tier, ...]
    devices: tuple[Device, ...]
    num_steps: int | None = None
    num_seeds: int | None = None
