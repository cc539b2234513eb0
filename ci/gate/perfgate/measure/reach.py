"""Which benchmarks a change can't have reached: they ran none of the functions that it alters."""

import dataclasses

from perfgate.process.protocol import FirstRun
from perfgate.source.functions import Altered, altered
from perfgate.source.sides import Sides
from perfgate.stages import Inspected


def alteration(sides: Sides) -> Altered | None:
    """Return what head alters; None where it can't be told who uses it.

    That is so where each side has an environment of its own: other code differs then too.
    """
    if sides.same_code or not sides.head.import_from:
        return None
    return altered(sides.base.root, sides.head.root, sides.changed_code)


def with_reach(row: Inspected, change: Altered | None) -> Inspected:
    """Return a row that knows what of the change it used on either side."""
    footprints = [
        side.ran.footprint
        for side in (row.base, row.head)
        if isinstance(side.ran, FirstRun) and side.ran.footprint and side.ran.footprint.is_whole
    ]
    if change is None or len(footprints) < len(row.sides):
        return row
    reached = {name for each in footprints for name in change.reach(each.executed, each.imported)}
    return dataclasses.replace(row, reached_by=tuple(sorted(reached)))
