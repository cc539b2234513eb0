"""The documented place of `myriad.canvas`."""

from myriad.canvas import *  # noqa: F403
