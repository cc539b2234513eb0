"""The processes of one training: they exchange messages, and none outlives the others."""

from myriad.distributed.group import Processes, processes

__all__ = ["Processes", "processes"]
