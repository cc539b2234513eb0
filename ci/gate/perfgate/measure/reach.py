"""Which benchmarks a change can't have reached: they ran none of the functions that it alters."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from perfgate.config import SAME, Rules
from perfgate.process.protocol import FirstRun
from perfgate.source.changes import changed_code
from perfgate.source.functions import Altered, altered
from perfgate.source.sides import Sides
from perfgate.stages import Inspected


def with_reach(rows: Sequence[Inspected], sides: Sides, rules: Rules) -> list[Inspected]:
    """Return rows that know what of the change they used.

    Nothing is known where each side has an environment of its own: other code differs then too.
    """
    has_one_environment = bool(sides.head.import_from)
    if sides.same_code or not has_one_environment:
        return list(rows)
    suite: Path = sides.head.suite.relative_to(sides.head.root)
    changed = changed_code(sides.base.root, sides.head.root, suite)
    change = altered(sides.base.root, sides.head.root, changed)
    return [_with_reach(row, change, rules) for row in rows]


def _with_reach(row: Inspected, change: Altered, rules: Rules) -> Inspected:
    footprints = [
        side.ran.footprint
        for side in (row.base, row.head)
        if isinstance(side.ran, FirstRun) and side.ran.footprint and side.ran.footprint.is_whole
    ]
    if len(footprints) < len(row.sides) or not row.is_comparable:
        return row
    reached = {name for each in footprints for name in change.reach(each.executed, each.imported)}
    row = dataclasses.replace(row, reached_by=tuple(sorted(reached)))
    if not row.is_unreached:
        return row
    # What a clock says of the same functions twice is noise.
    changes = [
        dataclasses.replace(each, word=SAME) if rules.rule_of(each.metric, row.name).clock else each
        for each in row.changes
    ]
    return dataclasses.replace(row, changes=tuple(changes))
