"""The processes of one training: what they tell each other, and that none outlives the others."""

from myriad.distributed.processes import Processes, processes
from myriad.distributed.watch import how_to_go_on

__all__ = ["Processes", "how_to_go_on", "processes"]
