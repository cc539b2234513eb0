"""The documented place of what `myriad.engine.machine` says of the machine."""

from myriad.engine.machine import *  # noqa: F403
