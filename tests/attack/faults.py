"""Attack what is saved: with damaged files, kills, full disks and several processes at once.

python -m tests.attack.faults [--flips 3000] [--kills 700] [--disks 200] [--seed 0]

Everything is made below a temporary folder. The table that is printed counts what came of the
faults. Findings are listed while it runs, and then the exit code is 1.
"""

import argparse
import collections
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from myriad import configure
from tests.attack.disks import disks
from tests.attack.flips import flips
from tests.attack.kills import kills
from tests.attack.outcomes import Row
from tests.attack.together import together


class Size(NamedTuple):
    """How many faults: damages to files, kills, commands on bad disks, processes on one cache."""

    flips: int
    kills: int
    disks: int
    processes: int


LONG = Size(3_000, 700, 200, 50)


def faults(folder: Path, size: Size, seed: int) -> Iterator[Row]:
    """Yield a row for each fault.

    Args:
        folder: an empty folder to work in.
        size: how many; none of a kind leaves that kind out.
        seed: of what is damaged, and when something is killed.
    """
    work = {name: folder / name for name in Size._fields}
    for each in work.values():
        each.mkdir()
    if size.flips:
        yield from flips(work["flips"], size.flips, seed)
    if size.kills:
        yield from kills(work["kills"], size.kills, seed)
    if size.disks:
        yield from disks(work["disks"], size.disks, seed)
    if size.processes:
        yield from together(work["processes"], size.processes)


def table(rows: Iterable[Row]) -> str:
    """Count the outcomes of each kind, as a table of Markdown."""
    counted: dict[str, collections.Counter[str]] = {}
    for row in rows:
        outcome = "finding" if row.is_finding else row.outcome
        counted.setdefault(row.kind, collections.Counter())[outcome] += 1
    lines = [("fault", "number", "what came of it"), ("---", "--:", "---")]
    for kind, outcomes in counted.items():
        came = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.most_common())
        lines.append((kind, f"{outcomes.total():,}", came))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack.faults", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    for name, number in LONG._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=number, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    options = parser.parse_args(argv)
    size = Size(*(getattr(options, name) for name in Size._fields))
    configure(cpu_devices=2)  # as in a child that is killed: the bits must be the same
    rows = []
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        os.environ["MYRIAD_HOME"] = f"{folder}/home"
        try:
            for row in faults(Path(folder), size, options.seed):
                rows.append(row)
                if row.is_finding:
                    print(*row, sep=" | ", file=sys.stderr, flush=True)
        finally:  # an interrupted attack shows what it did
            print(table(rows))
    return int(any(row.is_finding for row in rows))


if __name__ == "__main__":
    sys.exit(main())
