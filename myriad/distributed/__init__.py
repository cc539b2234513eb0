"""The processes of one training: what they tell each other, and that none outlives the others."""

from myriad.distributed.group import Processes, processes

__all__ = ["Processes", "processes"]
