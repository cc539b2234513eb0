"""The documented place of keys, which `myriad.engine.random` makes."""

from myriad.engine.random import MIX2X32, is_key, make_key

__all__ = ["MIX2X32", "is_key", "make_key"]
