"""Damage to every kind of file: a reader gets the same result, or a sentence that names the file.

Nothing else is touched: a refusal leaves every file as it was.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.attack import published, runs
from tests.attack.damage import damage
from tests.attack.outcomes import (
    FINDING,
    HANG_S,
    Row,
    contents,
    judged_refusal,
    outcome_of,
    restored,
)

ROOT = Path(__file__).parents[2]
# Of the damages to a kind of file, one in so many is read by this reader. They cost unlike much.
_PROGRAMS = 100  # one of so many damages is to all compiled programs that are kept
_EVERY = {"load_agent": 1, "resume": 12, "evaluate": 40, "command line": 60}


@dataclass(frozen=True)
class Runs:
    """A finished run, an interrupted copy of it, and what their readers return undamaged."""

    finished: Path
    interrupted: Path
    resumed: tuple[Any, ...]
    loaded: tuple[Any, ...]
    evaluated: list[float]

    @classmethod
    def made(cls, folder: Path) -> "Runs":
        """Train, and read everything once."""
        finished = runs.trained(folder / "finished")
        interrupted = runs.interrupted(finished, folder / "interrupted")
        with restored(interrupted, folder / "copy"):
            resumed = runs.resumed(interrupted)
        return cls(finished, interrupted, resumed, runs.loaded(finished), runs.evaluated(finished))


def flips(folder: Path, number: int, seed: int) -> Iterator[Row]:
    """Damage files of every kind, and read them.

    Args:
        folder: an empty folder to work in.
        number: of damages, over all kinds.
        seed: of which bits, and of the other damages.
    """
    made = Runs.made(folder)
    rng = random.Random(seed)
    shares = {"checkpoint": 30, "configuration": 15, "metrics": 6, "other files of a run": 3}
    total = sum(shares.values()) + sum(published.SHARES.values())
    for kind, share in shares.items():
        for place in range(max(3, number * share // total)):
            yield _of_run(made, kind, place, rng, folder / "spare")
    yield from published.flips(folder / "published", number, total, rng)
    for _ in range(number // _PROGRAMS):
        yield _of_programs(made, rng, folder)


def _of_run(made: Runs, kind: str, place: int, rng: random.Random, spare: Path) -> Row:
    readers = [name for name, every in _EVERY.items() if place % every == every - 1]
    reader = readers[-1]
    if kind in ("metrics", "other files of a run") and reader == "load_agent":
        reader = "resume"  # load_agent reads neither
    run = made.interrupted if reader in ("resume", "command line") else made.finished
    file = rng.choice(_files(run, kind))
    name = str(file.relative_to(run))
    with restored(run, spare):
        how = damage(file, rng)
        # Of a checkpoint, the sentence may name the whole.
        outcome = _read(
            made, reader, run, (file.name, f"{file.parents[1].name}/{file.parent.name} is")
        )
    return Row(f"{kind}, {reader}", f"{name}: {how}", outcome)


def _files(run: Path, kind: str) -> Sequence[Path]:
    if kind == "checkpoint":
        return [path for path in sorted(run.glob("checkpoints/**/*")) if path.is_file()]
    names = {
        "configuration": ["config.toml"],
        "metrics": ["metrics.jsonl"],
        "other files of a run": ["environment.json", ".lock"],
    }
    return [run / name for name in names[kind]]


def _read(made: Runs, reader: str, run: Path, named: tuple[str, ...]) -> str:
    if reader == "load_agent":
        return outcome_of(lambda: runs.loaded(run), made.loaded, named, run)
    if reader == "evaluate":
        return outcome_of(lambda: runs.evaluated(run), made.evaluated, named, run)
    if reader == "resume":
        return outcome_of(lambda: runs.resumed(run), made.resumed, named, run)
    return _typed(made, run, named)


def _of_programs(made: Runs, rng: random.Random, folder: Path) -> Row:
    """Damage the compilation cache. A program that can't be read is compiled anew."""
    programs = folder / "programs"
    run = made.interrupted
    if not programs.exists():
        with restored(run, folder / "spare"):
            _typed(made, run, (), programs)
    files = [path for path in sorted(programs.iterdir()) if path.is_file()]
    # JAX itself would wait for somebody to write to a pipe.
    how = [damage(file, rng, pipes=False) for file in files]
    with restored(run, folder / "spare"):
        outcome = _typed(made, run, (), programs)
    shutil.rmtree(programs)
    return Row("compiled programs, command line", f"{len(how)} files: {how[0]}, ...", outcome)


def _typed(made: Runs, run: Path, named: tuple[str, ...], programs: Path | None = None) -> str:
    """Resume by the real command line."""
    before = contents(run)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    limit_s = HANG_S
    if programs is not None:
        env["MYRIAD_COMPILATION_CACHE"] = str(programs)
        limit_s *= 5  # everything compiles anew
    command = [sys.executable, "-m", "myriad.cli", "train", "--resume", str(run), "--quiet"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit_s, cwd=ROOT, env=env
        )
    except subprocess.TimeoutExpired:
        return f"{FINDING}hung for {limit_s} s"
    if done.returncode == 2:
        return judged_refusal(done.stderr, named, before, run)
    if done.returncode:
        return f"{FINDING}exit code {done.returncode}: {done.stderr[-300:]}"
    rows = (run / "metrics.jsonl").read_text(encoding="utf-8")
    return "same" if rows == made.resumed[-1] else f"{FINDING}other rows"
