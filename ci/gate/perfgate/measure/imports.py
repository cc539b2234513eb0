"""Records of the files that benchmarks imported, to skip those that a change can't have reached.

A benchmark need not run if every file that it imported or opened is unchanged. Other things may
also decide what it imports: the suite, files that are not Python, the names of Python files, the
versions of Python and of all packages, the machine and the environment variables. They make up a
key, and a record only counts under its own key.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from perfgate import machine
from perfgate.config import Rules, find_rules
from perfgate.files import replace_text
from perfgate.process import protocol
from perfgate.process.reaper import MARK
from perfgate.source.changes import changed_files, digest, framework
from perfgate.source.installed import describe_python
from perfgate.source.sides import Side, Sides
from perfgate.stages import MODULE, Inspected, Listed, NotRun

FILE = "imports.json"  # saved in the folder of the reports
_VERSION = 1
_MOST_KEYS = 8  # this many branches keep their records if you compare them in turn
# Variables that differ between shells or jobs, and that no code uses to choose its imports.
_UNIMPORTANT = {"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "TERM", "TMPDIR", MARK}
_UNIMPORTANT |= {"PYTEST_CURRENT_TEST", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER"}
_UNIMPORTANT |= {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "XDG_RUNTIME_DIR"}
_UNIMPORTANT_KINDS = ("GITHUB_", "RUNNER_", "SSH_", "XDG_SESSION_")

Files = dict[str, str]  # the digest of each file that was imported or opened


@dataclass
class Imports:
    """The recorded imports of both sides' benchmarks.

    Attributes:
        keys: the key of each side; empty if the side has an environment of its own, whose records
            can't be used.
        known: the files that each row used, by key. The most recently used key comes last.
    """

    keys: Mapping[str, str]
    known: dict[str, dict[str, Files]] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, sides: Sides) -> Self:
        """Return the records of earlier runs in a folder. There are none if they can't be read."""
        both = (sides.base, sides.head)
        # A side's own environment is built anew each time, so its records can't be used.
        is_shared = all(side.import_from for side in both)
        keys = {side.name: _key(side, sides) if is_shared else "" for side in both}
        try:
            table = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return cls(keys)
        return cls(keys, _known_in(table))

    def reached(self, rows: Iterable[Listed], sides: Sides) -> set[str]:
        """Return the rows that use a changed file according to the records."""
        return {name for name, files in self._records(rows) if not self._is_unchanged(files, sides)}

    def unreached(self, rows: Iterable[Listed], sides: Sides) -> set[str]:
        """Return the rows that only use unchanged files according to the records."""
        return {name for name, files in self._records(rows) if self._is_unchanged(files, sides)}

    def add(self, rows: Iterable[Inspected], sides: Sides) -> None:
        """Record the files that rows have used in this run."""
        for side in (sides.base, sides.head):
            key = self.keys[side.name]
            if not key:
                continue
            records = self.known.pop(key, {})
            self.known[key] = records  # it becomes the most recently used key
            # If both sides have one key, the base's record stays, because later runs compare with
            # it too.
            is_base_known = side is sides.head and key == self.keys["base"]
            for row in rows:
                if not (is_base_known and row.name in records):
                    self._remember(row, side, records)

    def files_of(self, rows: Iterable[str]) -> set[str]:
        """Return what these rows used on head in earlier runs."""
        records = self.known.get(self.keys["head"], {})
        return {file for name in rows for file in records.get(name, {})}

    def write(self, folder: Path) -> None:
        """Save all records for later runs, atomically."""
        kept = dict(list(self.known.items())[-_MOST_KEYS:])
        replace_text(folder / FILE, json.dumps({"version": _VERSION, "known": kept}))

    def _records(self, rows: Iterable[Listed]) -> Iterator[tuple[str, Files]]:
        """Yield the records of rows that hold for both sides."""
        key = self.keys["head"]
        if not key or key != self.keys["base"]:
            return
        records = self.known.get(key, {})
        for row in rows:
            files = records.get(row.name)
            if files:  # an empty record is damaged: a benchmark uses at least its suite's file
                yield row.name, files

    def _is_unchanged(self, files: Files, sides: Sides) -> bool:
        """Tell whether files are the same on both sides as when they were recorded."""
        return all(
            self._digest(side.root / file) == known
            for file, known in files.items()
            for side in (sides.base, sides.head)
        )

    def _remember(self, row: Inspected, side: Side, records: dict[str, Files]) -> None:
        footprint = footprint_of(row.sides[side.name].ran)
        if footprint is None and not row.problems:
            return  # it was not run there
        records.pop(row.name, None)
        if footprint is not None and footprint.has_all_imports and not row.problems:
            digests = {file: self._digest(side.root / file) for file in footprint.imported}
            records[row.name] = digests

    def _digest(self, file: Path) -> str:
        if file not in self._digests:
            self._digests[file] = digest(file)
        return self._digests[file]


def _known_in(table: Any) -> dict[str, dict[str, Files]]:
    """Return the records of a file, or none if it has another version or is damaged."""
    if not isinstance(table, dict) or table.get("version") != _VERSION:
        return {}
    known = table.get("known")
    if not isinstance(known, dict) or not all(isinstance(rows, dict) for rows in known.values()):
        return {}
    every = [files for rows in known.values() for files in rows.values()]
    return known if all(isinstance(files, dict) for files in every) else {}


def footprint_of(ran: Any) -> protocol.Footprint | None:
    """Return the part of its checkout that a benchmark's first run used; None if unknown."""
    return ran.footprint if isinstance(ran, (protocol.FirstRun, protocol.Value)) else None


def rows_not_to_run(
    rows: Sequence[Listed], sides: Sides, rules: Rules, imports: Imports
) -> dict[str, NotRun]:
    """Return the rows that need not run, each with its reason.

    All rows run if the rules differ, since a new budget may concern any of them. All rows also run
    if nothing differs outside of `.github` and the suite, since somebody then wants to see them
    run.
    """
    if _has_other_rules(sides):
        return {}
    able = [
        row
        for row in rows
        if row.state == "both" and row.benchmark.kind != MODULE and not row.problem
    ]
    if sides.only_documentation:
        reached = imports.reached(able, sides)
        left_out = {row.name for row in able} - reached
        reason = NotRun.DOCUMENTATION
    else:
        # Both sides hold head's suite by now, so a changed suite does not show here.
        changed = changed_files(sides.base.root, sides.head.root)
        is_to_be_seen = all(path.parts[0] == ".github" for path in changed)
        left_out = set() if is_to_be_seen else imports.unreached(able, sides)
        reason = NotRun.SAME_FILES
    names = {row.name for row in rows}
    return dict.fromkeys(_left_out_by_ratios(left_out, names, rules), reason)


def _left_out_by_ratios(left_out: set[str], names: set[str], rules: Rules) -> set[str]:
    """Return the rows that budgets allow to skip. Both benchmarks of a ratio run if one does."""
    groups = [
        {budget.over, *(name for name in names if re.search(budget.benchmark, name))}
        for budget in rules.budget
        if budget.over
    ]
    left = set(left_out)
    for _ in groups:  # a row that one budget keeps may belong to another budget's ratio
        for group in groups:
            if (group & names) - left:
                left -= group
    return left


def _has_other_rules(sides: Sides) -> bool:
    folders = [side.root / sides.config.folder for side in (sides.base, sides.head)]
    pairs = zip(*map(find_rules, folders), strict=True)
    return any(
        before.name != after.name or digest(before) != digest(after) for before, after in pairs
    )


def _key(side: Side, sides: Sides) -> str:
    """Return the key of a checkout's records."""
    variables = {name: value for name, value in os.environ.items() if _is_important(name)}
    parts = {
        "files": framework(side.root, side.suite.relative_to(side.root)),
        "protocol": protocol.VERSION,
        "python": [describe_python(sides.config.python), side.python],
        "machine": machine.describe(),
        "variables": variables | {str(name): value for name, value in side.variables.items()},
        "is_pytest": sides.is_pytest,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _is_important(variable: str) -> bool:
    # Code often asks whether it runs on GitHub (GITHUB_ACTIONS), but seldom in which job.
    is_any_job = variable.startswith(_UNIMPORTANT_KINDS) and variable != "GITHUB_ACTIONS"
    return variable not in _UNIMPORTANT and not is_any_job
