"""Read people's explanations of changes: a sentence for a commit and the benchmarks it shifted.

The sentences are in the file `annotations.toml` beside the published results. `ci.site.model` reads
it. A measured history may skip the commit that a sentence names. The sentence then stands at the
first measured commit after it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict
from pydantic.dataclasses import dataclass

from perfgate.config import Regex, validated
from perfgate.files import read_toml
from perfgate.history.asv_results import Archive
from perfgate.history.benchmark_history import BenchmarkHistory

NAME = "annotations.toml"
_MODEL = ConfigDict(extra="forbid")


def _commit(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{7,64}", text):
        raise ValueError(f"must be a commit's first 7 or more digits, but got {text!r}")
    return text


def _sentence(text: str) -> str:
    if not text.strip():
        raise ValueError(f"must be a sentence that says why, but got {text!r}")
    return " ".join(text.split())


@dataclass(frozen=True, config=_MODEL)
class Annotation:
    """Why benchmarks shifted at a commit.

    Attributes:
        commit: the first digits of the commit that made the shift.
        benchmark: a regular expression, searched for in the names of benchmarks.
        cause: a person's sentence.
    """

    commit: Annotated[str, AfterValidator(_commit)]
    benchmark: Regex
    cause: Annotated[str, AfterValidator(_sentence)]


@dataclass(frozen=True, config=_MODEL)
class _File:
    annotation: tuple[Annotation, ...] = ()


def read_annotations(file: Path) -> tuple[Annotation, ...]:
    """Read the sentences. There are none if there is no file.

    Raises:
        UsageError: the file has a mistake.
    """
    if not file.is_file():
        return ()
    return validated(_File, read_toml(file), file.name).annotation


def causes_by_commit(
    annotations: Sequence[Annotation], history: BenchmarkHistory, archive: Archive
) -> dict[str, list[str]]:
    """Return the causes that a benchmark's history shows, by the measured commit."""
    order = archive.main or [commit.hash for commit in archive.commits]
    places = {commit: place for place, commit in enumerate(order)}
    found: dict[str, list[str]] = {}
    for each in annotations:
        if not re.search(each.benchmark, history.benchmark.name):
            continue
        named = next(
            (at for at, commit in enumerate(order) if commit.startswith(each.commit)), None
        )
        if named is None:
            continue
        # The points are in main's order.
        later = (point for point in history.points if places[point.commit] >= named)
        if point := next(later, None):
            found.setdefault(point.commit, []).append(each.cause)
    return found


def without_place(
    annotations: Sequence[Annotation], histories: Sequence[BenchmarkHistory], archive: Archive
) -> list[Annotation]:
    """Return the sentences that no history shows, so that a page can list them separately."""
    return [
        each
        for each in annotations
        if not any(causes_by_commit([each], history, archive) for history in histories)
    ]
