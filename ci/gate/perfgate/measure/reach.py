"""Find benchmarks that a change can't have reached, because they run none of its functions."""

import dataclasses

from perfgate.process.protocol import FirstRun
from perfgate.source.functions import Altered, altered
from perfgate.source.sides import Sides
from perfgate.stages import Inspected


def alteration(sides: Sides) -> Altered | None:
    """Return what head alters; None if nobody can tell which benchmarks use it.

    This is unknown if each side has an environment of its own, because other code differs then too.
    """
    if sides.same_code or not sides.head.import_from:
        return None
    return altered(sides.base.root, sides.head.root, sides.changed_code)


def with_reach(row: Inspected, change: Altered | None) -> Inspected:
    """Return the row with the part of the change that it used on either side."""
    footprints = [
        side.ran.footprint
        for side in (row.base, row.head)
        if isinstance(side.ran, FirstRun) and side.ran.footprint and side.ran.footprint.is_whole
    ]
    if change is None or len(footprints) < len(row.sides):
        return row
    reached = {name for each in footprints for name in change.reach(each.executed, each.imported)}
    return dataclasses.replace(row, reached_by=tuple(sorted(reached)))
