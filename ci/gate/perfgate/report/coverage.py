"""What a run can't judge: changed files that no benchmark imported, and changes to the suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfgate.config import find_rules
from perfgate.measure.inspection import footprint_of
from perfgate.rows import Row
from perfgate.source.changes import changed_lines
from perfgate.source.sides import Sides


@dataclass(frozen=True)
class Coverage:
    """The limits of what a run has measured.

    Attributes:
        not_imported: changed Python files that none of the benchmarks with known imports imported.
        num_known: how many benchmarks have known imports, since they started no other process.
        measures: by file, the lines that this change adds to or removes from the suite and its
            rules. A reviewer should look at a change that alters its own measurement.
    """

    not_imported: Sequence[str] = ()
    num_known: int = 0
    measures: Mapping[str, Sequence[str]] = field(default_factory=dict)


def cover(rows: Sequence[Row], sides: Sides) -> Coverage:
    """Compare the changed files with those that benchmarks imported on head."""
    footprints = [found for row in rows if (found := footprint_of(row.head)) is not None]
    imported = {file for each in footprints for file in each.imported}
    num_known = sum(each.has_all_imports for each in footprints)
    not_imported = [
        str(path)
        for path in sides.changed_code
        if path.suffix == ".py" and str(path) not in imported and (sides.head.root / path).is_file()
    ]
    measures = dict(sides.changed_suite)
    for file in find_rules(sides.head.root / sides.config.folder):
        if file.is_relative_to(sides.head.root):
            name = file.relative_to(sides.head.root)
            lines = changed_lines(sides.base.root / name, file)
            measures |= {name.as_posix(): each for each in lines.values()}
    return Coverage(not_imported if num_known else (), num_known, measures)
