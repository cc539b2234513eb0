"""Two and more processes at once: in one run folder, on one cache, on one site, beside a training.

Each process is forked from a server that has imported everything. Who comes second hears so in a
sentence, and nobody ever sees half of what another one writes.
"""

import itertools
import multiprocessing
import shutil
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.harness.files import write_text
from ci.site.build import PublishError, publish
from myriad import configure
from myriad.autotune import ProfileCache
from myriad.errors import MyriadError
from tests.attack import published, runs
from tests.attack.outcomes import FINDING, Row, outcome_of

_UPDATES = 10  # of the cache, by each process
_PAGES = ("index.html", "feed.xml", "site.json")


def together(folder: Path, processes: int) -> Iterator[Row]:
    """Let processes work at the same time, and judge what they say and leave.

    Args:
        folder: an empty folder to work in.
        processes: how many use the cache at once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["orbax.checkpoint", "tests.attack.kills"])
    finished = runs.trained(folder / "finished")
    end = runs.resumed(finished)

    run = folder / "run"
    said = _at_once(context, [partial(_trained, run)] * 3)
    yield Row("at once", "three trainings in one folder", _one_won(said, run, end))

    run = runs.interrupted(finished, folder / "interrupted")
    said = _at_once(context, [partial(_resumed, run)] * 3)
    yield Row("at once", "three resumes of one run", _one_won(said, run, end))

    cache = folder / "autotune_profiles.json"
    said = _at_once(context, [partial(_updated, cache, number) for number in range(processes)])
    missing = [
        f"{number}:{update}"
        for number, update in itertools.product(range(processes), range(_UPDATES))
        if ProfileCache(cache).get("env_profiles", f"{number}:{update}") is None
    ]
    lost = f"{FINDING}lost {missing}, said {set(said)}"
    yield Row("at once", f"{processes} processes on one cache", lost if missing else "same")

    yield Row("at once", "a reader beside a training", _read_beside(context, folder / "read", end))
    yield from _published_beside(context, folder)


def _at_once(context: Any, actions: list[Callable[[], Any]]) -> list[str]:
    """Run each action in a process of its own, all at the same time; return what each said."""
    pipes = [_started(context, action) for action in actions]
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    return [pipe.recv() for pipe in pipes]


def _started(context: Any, action: Callable[[], Any]) -> Connection:
    ours, childs = context.Pipe()
    context.Process(target=_run, args=(action, childs)).start()
    childs.close()
    return ours


def _run(action: Callable[[], Any], parent: Connection) -> None:
    configure(cpu_devices=2)
    parent.send("ready")
    parent.recv()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            action()
        parent.send("; ".join(str(each.message) for each in said))
    except (MyriadError, PublishError) as error:
        parent.send(f"refused: {error}")


def _trained(run: Path) -> None:
    runs.trained(run)


def _resumed(run: Path) -> None:
    runs.resumed(run)


def _updated(path: Path, number: int) -> None:
    cache = ProfileCache(path)
    for update in range(_UPDATES):
        cache.update("env_profiles", f"{number}:{update}", lambda _: {"bytes_per_env": number})


def _one_won(said: list[str], run: Path, end: tuple[Any, ...]) -> str:
    """Judge processes of which one may write to a folder."""
    refused = [sentence for sentence in said if sentence.startswith("refused")]
    known = ("in use", "already holds a run")
    if len(refused) == len(said) or not all(any(w in each for w in known) for each in refused):
        return f"{FINDING}said {said}"
    return outcome_of(lambda: runs.resumed(run), end, (), run)


def _read_beside(context: Any, run: Path, end: tuple[Any, ...]) -> str:
    """Load the agent again and again while it is trained."""
    pipe = _started(context, partial(_trained, run))
    pipe.recv()
    pipe.send("go")
    loads = 0
    while not pipe.poll():
        try:
            runs.loaded(run)
            loads += 1
        except MyriadError as error:
            if not any(
                words in str(error) for words in ("no checkpoint yet", "is not a run folder")
            ):
                return f"{FINDING}the reader heard {error}"
    return outcome_of(lambda: runs.resumed(run), end, (), run)


def _published_beside(context: Any, folder: Path) -> Iterator[Row]:
    """Publish while results are written, by two processes, beside a reader."""
    results = published.new_results(folder / "results")
    site = folder / "site"
    publish(results, site, published.BUILT, repository=results.parent)
    actions = [partial(_published, results, site)] * 2 + [partial(_written, results)]
    pipes = [_started(context, action) for action in actions]
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    missing: set[str] = set()
    while not all(pipe.poll() for pipe in pipes):
        missing |= {name for name in _PAGES if not (site / name).is_file()}
    said = [pipe.recv() for pipe in pipes]
    outcome = "same" if not missing else f"{FINDING}a reader missed {sorted(missing)}"
    if any(said):
        outcome = f"{FINDING}said {said}"
    yield Row("at once", "two publish beside a reader, and results are written", outcome)


def _published(results: Path, site: Path) -> None:
    for _ in range(5):
        publish(results, site, published.BUILT, repository=results.parent)


def _written(results: Path) -> None:
    table = results / "csv" / published.ROWS.name
    text = table.read_text(encoding="utf-8")
    for number in range(200):
        write_text(table.with_name(f"more_{number % 5}.csv"), text)
        shutil.copytree(
            results / "asv" / "runner",
            results / "asv" / f"another_{number % 5}",
            dirs_exist_ok=True,
        )
