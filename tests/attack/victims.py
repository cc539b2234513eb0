"""What the attack kills: trainings, and writers of the cache, of exported files and of the site."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.files import write_text
from ci.site.build import publish
from myriad.autotune import ProfileCache
from myriad.rendering.video import write
from myriad.training.logging.history import History
from tests.attack import published, runs
from tests.attack.outcomes import FINDING, contents, outcome_of

_LATER = datetime(2026, 11, 22, 12, tzinfo=UTC)
_EXPORTED = ("exported.json", "rows.csv", "it.gif", "results.csv")
Action = Callable[[Path], Any]


@dataclass(frozen=True)
class Victim:
    """What is killed.

    Attributes:
        name: of the kind of kill.
        share: of all kills.
        action: what the child does in a folder.
        judge: what says what came of it, given the folder.
        prepare: what makes the folder as the child finds it.
    """

    name: str
    share: int
    action: Action
    judge: Callable[[Path], str]
    prepare: Action


def victims(folder: Path) -> Sequence[Victim]:
    """Make what the children need in an empty folder, and describe each."""
    finished = runs.trained(folder / "finished")
    interrupted = runs.interrupted(finished, folder / "interrupted")
    results = published.new_results(folder / "results")
    judge_run = partial(_judge_run, runs.resumed(finished))
    site = folder / "site"
    _publish(results, published.BUILT, site)
    old = contents(site)
    _publish(results, _LATER, site)
    sites = (old, contents(site))
    exported = folder / "exported"
    exported.mkdir()
    _export(exported)
    return [
        Victim("training", 40, _train, judge_run, Path.mkdir),
        Victim("resumed training", 20, _resume, judge_run, partial(_copy_run, interrupted)),
        Victim("autotune cache", 15, _tune, _judge_cache, _new_cache),
        Victim(
            "exported files", 10, _export, partial(_judge_files, contents(exported)), _old_files
        ),
        Victim(
            "site",
            15,
            partial(_publish_again, results),
            partial(_judge_site, results, sites),
            partial(_old_site, results),
        ),
    ]


def _train(work: Path) -> None:
    runs.trained(work / "run")


def _resume(work: Path) -> None:
    runs.resumed(work / "run")


def _copy_run(interrupted: Path, work: Path) -> None:
    shutil.copytree(interrupted, work / "run")


def _judge_run(end: tuple[Any, ...], work: Path) -> str:
    """Resume what is left, and compare its end with that of the run that nobody killed."""
    run = work / "run"
    if not (run / "config.toml").exists():
        # What so early a kill leaves must not stand in the way of the same command.
        runs.trained(run)
    return outcome_of(lambda: runs.resumed(run), end, (), run)


def _new_cache(work: Path) -> None:
    work.mkdir()
    published.new_cache(work / "autotune_profiles.json")


def _tune(work: Path) -> None:
    cache = ProfileCache(work / "autotune_profiles.json")
    for number in range(6):
        cache.update("env_profiles", "counted", lambda _, number=number: {"number": number})


def _judge_cache(work: Path) -> str:
    cache = ProfileCache(work / "autotune_profiles.json")

    def read() -> bool:
        number = (cache.get("env_profiles", "counted") or {"number": 0})["number"]
        answer = cache.get("chunk_size_configs", published.KEY)
        cache.update("env_profiles", "counted", lambda _: {"number": 7})
        return answer == published.ANSWER and number in range(6)

    return outcome_of(read, expected=True, named=(), folder=work)


def _old_files(work: Path) -> None:
    work.mkdir()
    for name in _EXPORTED:
        (work / name).write_text("old")


def _export(work: Path) -> None:
    # The name of the folder must not be in the files: their content is compared.
    published.new_cache(work / "cache.json").export(work / "exported.json")
    History([{"update": 1, "return": 0.5}]).to_csv(work / "rows.csv")
    write(work / "it.gif", iter([np.zeros((8, 8, 3), np.uint8)] * 3), 3, 10)
    write_text(work / "results.csv", "suite\nmine\n")


def _judge_files(new: dict[str, Any], work: Path) -> str:
    for name in _EXPORTED:
        if (work / name).read_bytes() not in (b"old", new[name]):
            return f"{FINDING}{name} is half written"
    return "old or new"


def _publish(results: Path, built: datetime, site: Path) -> None:
    publish(results, site, built, repository=results.parent)


def _old_site(results: Path, work: Path) -> None:
    _publish(results, published.BUILT, work / "site")


def _publish_again(results: Path, work: Path) -> None:
    _publish(results, _LATER, work / "site")


def _judge_site(results: Path, sites: Sequence[dict[str, Any]], work: Path) -> str:
    if contents(work / "site") not in sites:
        return f"{FINDING}the site is neither the old one nor the new one"
    _publish_again(results, work)
    is_new = contents(work / "site") == sites[1]
    return "old or new" if is_new else f"{FINDING}the site can't be published again"
