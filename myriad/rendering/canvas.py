"""The documented place of `myriad.canvas`."""

from myriad.canvas import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, Canvas

__all__ = ["BLUE", "GREEN", "ORANGE", "PURPLE", "SKY", "VERMILLION", "Canvas"]
