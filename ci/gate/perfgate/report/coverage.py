"""What a run can't judge: changed files that no benchmark imported, and changes to the suite."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from perfgate.config import find_rules
from perfgate.measure.imports import footprint_of
from perfgate.process.protocol import FirstRun
from perfgate.source.changes import changed_lines
from perfgate.source.sides import Sides
from perfgate.stages import Inspected, NotRun


@dataclass(frozen=True)
class Coverage:
    """The limits of what a run has measured.

    Attributes:
        random_inputs: benchmarks whose setup makes different inputs each time.
        not_imported: changed Python files that no benchmark's own process imported.
        measures: by file, the lines that this change adds to or removes from the suite and its
            rules. A reviewer should look at a change that alters its own measurement.
    """

    random_inputs: Sequence[str] = ()
    not_imported: Sequence[str] = ()
    measures: Mapping[str, Sequence[str]] = field(default_factory=dict)


def cover(rows: Sequence[Inspected], sides: Sides, imported_before: AbstractSet[str]) -> Coverage:
    """Compare the changed files with those that benchmarks imported on head, in any run so far."""
    imported = {file for row in rows for file in _imported(row)} | imported_before
    modules = [path.as_posix() for path in sides.changed_code if path.suffix == ".py"]
    not_imported = [
        file for file in modules if file not in imported and (sides.head.root / file).is_file()
    ]
    if any(row.not_run is NotRun.TIME for row in rows):
        not_imported = []  # the benchmarks that were not reached may import them
    random = [row.name for row in rows if _has_random_inputs(row)]
    return Coverage(random, not_imported, _changed_measures(sides))


def _has_random_inputs(row: Inspected) -> bool:
    return isinstance(row.head.ran, FirstRun) and row.head.ran.inputs_differ


def _imported(row: Inspected) -> Sequence[str]:
    footprint = footprint_of(row.head.ran)
    return footprint.imported if footprint else ()


def _changed_measures(sides: Sides) -> dict[str, Sequence[str]]:
    changes = dict(sides.changed_suite)
    for file in find_rules(sides.head.root / sides.config.folder):
        if file.is_relative_to(sides.head.root):
            name = file.relative_to(sides.head.root)
            lines = changed_lines(sides.base.root / name, file)
            changes |= {name.as_posix(): each for each in lines.values()}
    return changes
