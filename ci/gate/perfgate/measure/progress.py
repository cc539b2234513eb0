"""What a run has measured so far and when it ends.

Each row has a file, which is replaced whenever the row gets on. So the next run can continue an
unfinished one. The files only count for the same two commits, settings, packages and machine. A run
that has nothing left to do removes them.
"""

import argparse
import dataclasses
import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter

from perfgate import machine
from perfgate.config import Rules
from perfgate.files import replace_text
from perfgate.rows import Row
from perfgate.source.changes import changed_files
from perfgate.source.installed import describe_python
from perfgate.source.sides import Sides

_FREE = ("budget", "json", "output", "seed")  # options that may differ when a run is continued
_VARIABLES = ("JAX_", "XLA_", "OMP_", "PYTHON")  # those whose change makes old measurements void
FOLDER = "unfinished"  # in the folder of the reports
# A row without its evidence, and the log ratios of its pairs. Evidence is made from them again.
_RECORD = TypeAdapter(
    tuple[Row, tuple[float, ...]],
    config=ConfigDict(ser_json_inf_nan="constants", arbitrary_types_allowed=True),
)


def say(text: str) -> None:
    """Print progress to stderr, because only the report goes to stdout."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Progress:
    """The rows of a run so far. Without a folder they are only kept in memory.

    Attributes:
        deadline: when the current stage ends, on the clock of `time.monotonic`.
        folder: the folder of the rows' files.
        rows: the rows that have got further than discovery.
        pairs: the log ratios of each row's pairs.
        kept: what is called whenever rows were kept, such as a report on the run so far.
    """

    deadline: float = math.inf
    folder: Path | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    pairs: dict[str, tuple[float, ...]] = field(default_factory=dict)
    kept: Callable[[], object] = lambda: None

    def read(self, output: Path, key: str) -> None:
        """Continue the run with this key, and remove the files of all others."""
        self.folder = output / FOLDER / key
        for other in (output / FOLDER).glob("*"):
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        for file in self.folder.glob("*.json"):
            try:
                row, pairs = _RECORD.validate_json(file.read_bytes())
            except (OSError, ValueError):
                continue  # a damaged file counts as none
            self.rows[row.name] = row
            self.pairs[row.name] = pairs

    def keep(self, rows: Iterable[Row]) -> None:
        """Keep rows as they are now."""
        for row in rows:
            self.rows[row.name] = row
            if row.evidence is not None:
                self.pairs[row.name] = (*row.evidence.first, *row.evidence.fresh)
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                record = dataclasses.replace(row, evidence=None), self.pairs.get(row.name, ())
                name = hashlib.sha256(row.name.encode()).hexdigest()[:32]
                text = _RECORD.dump_json(record).decode()
                replace_text(self.folder / f"{name}.json", text)
        self.kept()

    def remove(self) -> None:
        """Forget the run, because it has nothing left to do."""
        if self.folder is not None:
            shutil.rmtree(self.folder.parent, ignore_errors=True)


@dataclass(frozen=True)
class Run:
    """What all stages of a run share.

    Attributes:
        sides: the two commits.
        rules: they say what is worse, how long to time, and how much error is allowed.
        core: the core that single-core benchmarks are pinned to; None if pinning isn't possible.
        progress: the rows so far, and when the current stage ends.
    """

    sides: Sides
    rules: Rules
    core: int | None
    progress: Progress


def run_key(sides: Sides, rules: Rules, options: argparse.Namespace) -> str:
    """Return a hash of everything that decides what a run measures."""
    changed = {}
    for path in changed_files(sides.base.root, sides.head.root):
        file = sides.head.root / path
        changed[str(path)] = hashlib.sha256(
            file.read_bytes() if file.is_file() else b""
        ).hexdigest()
    parts = [
        sides.base.commit,
        sides.head.commit,
        changed,
        dataclasses.asdict(rules),
        {name: value for name, value in vars(options).items() if name not in _FREE},
        describe_python(sides.config.python),
        machine.describe(),
        {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)},
        sides.config.environment,
    ]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
