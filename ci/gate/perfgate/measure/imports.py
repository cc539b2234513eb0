"""What each benchmark imported in earlier runs: which of them a change can't have reached.

A benchmark need not run if every file that it imported or opened is unchanged. Whatever else could
decide what it imports is part of a key: the suite, files that are not Python, the names of Python
files, the versions of Python and of all packages, the machine and the environment's variables.
Records with another key count for nothing.
"""

import hashlib
import importlib.metadata
import json
import os
import re
import sys
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
from perfgate.source.sides import Side, Sides
from perfgate.stages import MODULE, Inspected, Listed, NotRun

FILE = "imports.json"  # in the folder of the reports
_VERSION = 1
_MOST_KEYS = 8  # as many branches may be compared in turn
# Variables that differ from shell to shell, or from job to job, and by which nobody chooses what to
# import.
_UNIMPORTANT = {"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "TERM", "TMPDIR", MARK}
_UNIMPORTANT |= {"PYTEST_CURRENT_TEST", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER"}
_UNIMPORTANT |= {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "XDG_RUNTIME_DIR"}
_UNIMPORTANT_KINDS = ("GITHUB_", "RUNNER_", "SSH_", "XDG_SESSION_")

Files = dict[str, str]  # the digest of each file that was imported or opened


@dataclass
class Imports:
    """What is known of the imports of both sides' benchmarks.

    Attributes:
        keys: of each side; empty where nothing may be concluded from its records.
        known: the files that each row used, by key; the key that was used last comes last.
    """

    keys: Mapping[str, str]
    known: dict[str, dict[str, Files]] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, sides: Sides) -> Self:
        """Return what earlier runs have left in a folder; nothing where it can't be read."""
        both = (sides.base, sides.head)
        # What an environment of its own holds is built anew each time.
        is_shared = all(side.import_from for side in both)
        keys = {side.name: _key(side, sides) if is_shared else "" for side in both}
        try:
            table = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return cls(keys)
        return cls(keys, _known_in(table))

    def reached(self, rows: Iterable[Listed], sides: Sides) -> set[str]:
        """Return the rows that are known to use a file which has changed."""
        return {name for name, files in self._records(rows) if not self._is_unchanged(files, sides)}

    def unreached(self, rows: Iterable[Listed], sides: Sides) -> set[str]:
        """Return the rows that are known to use only files which have not changed."""
        return {name for name, files in self._records(rows) if self._is_unchanged(files, sides)}

    def add(self, rows: Iterable[Inspected], sides: Sides) -> None:
        """Remember what rows have used in this run."""
        for side in (sides.base, sides.head):
            key = self.keys[side.name]
            if not key:
                continue
            records = self.known.pop(key, {})
            self.known[key] = records  # the last that was used
            # Where both have one key the base's record stays: later runs compare with it too.
            is_base_known = side is sides.head and key == self.keys["base"]
            for row in rows:
                if not (is_base_known and row.name in records):
                    self._remember(row, side, records)

    def files_of(self, rows: Iterable[str]) -> set[str]:
        """Return what these rows used on head in earlier runs."""
        records = self.known.get(self.keys["head"], {})
        return {file for name in rows for file in records.get(name, {})}

    def write(self, folder: Path) -> None:
        """Save everything for later runs, whole or not at all."""
        kept = dict(list(self.known.items())[-_MOST_KEYS:])
        replace_text(folder / FILE, json.dumps({"version": _VERSION, "known": kept}))

    def _records(self, rows: Iterable[Listed]) -> Iterator[tuple[str, Files]]:
        """Yield what is known of rows, where it holds for both sides."""
        key = self.keys["head"]
        if not key or key != self.keys["base"]:
            return
        records = self.known.get(key, {})
        for row in rows:
            files = records.get(row.name)
            if files:  # a benchmark uses the suite's own file at least
                yield row.name, files

    def _is_unchanged(self, files: Files, sides: Sides) -> bool:
        """Tell whether files are on both sides what they were when they were recorded."""
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
    """Return the records of a file; none where it is another version's, or damaged."""
    if not isinstance(table, dict) or table.get("version") != _VERSION:
        return {}
    known = table.get("known")
    if not isinstance(known, dict) or not all(isinstance(rows, dict) for rows in known.values()):
        return {}
    every = [files for rows in known.values() for files in rows.values()]
    return known if all(isinstance(files, dict) for files in every) else {}


def footprint_of(ran: Any) -> protocol.Footprint | None:
    """Return what of its checkout a benchmark's first run has used; None where nobody knows."""
    return ran.footprint if isinstance(ran, (protocol.FirstRun, protocol.Value)) else None


def rows_not_to_run(
    rows: Sequence[Listed], sides: Sides, rules: Rules, imports: Imports
) -> dict[str, NotRun]:
    """Return the rows that need not run, each with the reason.

    If the rules differ then all run, since a new budget may fit any of them. All run too if nothing
    differs, or only what lies in `.github` or is the suite: somebody wants to see that they do.
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
        # Both sides hold head's suite by now.
        changed = changed_files(sides.base.root, sides.head.root)
        is_to_be_seen = all(path.parts[0] == ".github" for path in changed)
        left_out = set() if is_to_be_seen else imports.unreached(able, sides)
        reason = NotRun.SAME_FILES
    names = {row.name for row in rows}
    return dict.fromkeys(_left_out_by_ratios(left_out, names, rules), reason)


def _left_out_by_ratios(left_out: set[str], names: set[str], rules: Rules) -> set[str]:
    """Return those that a budget lets leave out: both benchmarks of a ratio run if one does."""
    groups = [
        {budget.over, *(name for name in names if re.search(budget.benchmark, name))}
        for budget in rules.budget
        if budget.over
    ]
    left = set(left_out)
    for _ in groups:  # a row that runs for one budget may be part of another
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
    """Return what all records of a checkout rest on."""
    variables = {name: value for name, value in os.environ.items() if _is_important(name)}
    parts = {
        "files": framework(side.root, side.suite.relative_to(side.root)),
        "protocol": protocol.VERSION,
        "python": [sys.version, side.python],
        "packages": sorted(_described_packages()),
        "machine": machine.describe(),
        "variables": variables | {str(name): value for name, value in side.variables.items()},
        "is_pytest": sides.is_pytest,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _is_important(variable: str) -> bool:
    # Code often asks whether it runs on GitHub, and seldom in which of its jobs.
    is_any_job = variable.startswith(_UNIMPORTANT_KINDS) and variable != "GITHUB_ACTIONS"
    return variable not in _UNIMPORTANT and not is_any_job


def _described_packages() -> Iterator[str]:
    """Yield each installed package with its version, and the commit where it comes from git."""
    for each in importlib.metadata.distributions():
        yield f"{each.name} {each.version} {each.read_text('direct_url.json') or ''}"
