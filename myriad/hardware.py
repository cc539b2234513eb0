"""The documented place of what `myriad.engine.machine` says of the machine."""

from myriad.engine.machine import *  # noqa: F403
from myriad.engine.memory import available_bytes  # noqa: F401
from myriad.host import host_memory  # noqa: F401
