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
        not_imported: changed Python files that none of the benchmarks with known imports imported.
        num_known: how many benchmarks have known imports.
        measures: by file, the lines that this change adds to or removes from the suite and its
            rules. A reviewer should look at a change that alters its own measurement.
    """

    random_inputs: Sequence[str] = ()
    not_imported: Sequence[str] = ()
    num_known: int = 0
    measures: Mapping[str, Sequence[str]] = field(default_factory=dict)


def cover(rows: Sequence[Inspected], sides: Sides, imported_before: AbstractSet[str]) -> Coverage:
    """Compare the changed files with those that benchmarks imported on head, in any run so far."""
    imported = {file for row in rows for file in _imported(row)} | imported_before
    modules = [path.as_posix() for path in sides.changed_code if path.suffix == ".py"]
    not_imported = [
        file for file in modules if file not in imported and (sides.head.root / file).is_file()
    ]
    num_known = sum(_are_imports_known(row) for row in rows)
    random = [row.name for row in rows if _has_random_inputs(row)]
    return Coverage(random, not_imported if num_known else (), num_known, _changed_measures(sides))


def _are_imports_known(row: Inspected) -> bool:
    """Tell whether a row ran to its end in one process, now or in an earlier run."""
    footprint = footprint_of(row.head.ran)
    is_whole = footprint is not None and footprint.has_all_imports
    return row.not_run is NotRun.SAME_FILES or is_whole


def _has_random_inputs(row: Inspected) -> bool:
    return isinstance(row.head.ran, FirstRun) and row.head.ran.inputs_differ


def _imported(row: Inspected) -> Sequence[str]:
    footprint = footprint_of(row.head.ran)
    return footprint.imported if footprint else ()


def _changed_measures(sides: Sides) -> dict[str, list[str]]:
    suite = sides.head.suite.relative_to(sides.head.root)
    found = changed_lines(sides.base_suite, sides.head.suite)
    changes = {(suite / path).as_posix(): lines for path, lines in found.items()}
    for file in find_rules(sides.head.root / sides.config.folder):
        if file.is_relative_to(sides.head.root):
            name = file.relative_to(sides.head.root)
            lines = changed_lines(sides.base.root / name, file)
            changes |= {name.as_posix(): each for each in lines.values()}
    return changes
