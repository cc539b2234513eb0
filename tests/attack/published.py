"""Damage to what is measured: the autotuner's cache, tables of results, samples, asv's results."""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plots.draw import draw
from ci.gate.tests.made_up_results import write_asv
from ci.site.build import PublishError, publish
from ci.site.measurements import read_measurements
from myriad.autotune import ProfileCache
from myriad.autotune.search import Candidate
from myriad.citation import cite
from myriad.errors import MyriadError
from perfgate.errors import UsageError
from perfgate.history.asv_results import read_archive
from perfgate.history.levels import histories
from tests.attack.damage import damage
from tests.attack.outcomes import FINDING, Row, outcome_of

ROOT = Path(__file__).parents[2]
SHARES = {"cache": 15, "rows": 12, "samples": 10, "asv": 15}
BUILT = datetime(2026, 11, 21, 12, tzinfo=UTC)
ROWS = ROOT / "results" / "published" / "throughput_snake_cpu.csv"
_SITES = 8  # one in so many damages is published as a site, too
_PLOTS = 20  # and one in so many drawn
REFUSALS = (MyriadError, UsageError, PublishError)
KEY = "cartpole-control:pid:2:here_1GB:0123abcd"
ANSWER = {
    "optimal_chunk_size": 256,
    "throughput_steps_per_s": 1e6,
    "throughput_low": 9e5,
    "throughput_high": 1.1e6,
    "memory_bytes": 1_000_000,
    "validated_at": "2026-11-23T00:00:00Z",
    "candidates": {"256": {field.name: field.type(1) for field in fields(Candidate)}},
    "stretch_steps": 1_024,
    "rounds_s": {"16": "0.2 0.3", "256": "0.1 0.1"},
}


def flips(folder: Path, number: int, total: int, rng: random.Random) -> Iterator[Row]:
    """Damage what the shares say of `number` files, and read each."""
    folder.mkdir()
    for kind, share in SHARES.items():
        attack = _of_cache if kind == "cache" else _of_results
        for place in range(max(3, number * share // total)):
            yield attack(folder, kind, place, rng)


def new_cache(path: Path) -> ProfileCache:
    """Write a cache of three answers and a profile."""
    cache = ProfileCache(path)
    for key in (KEY, f"{KEY}1", f"{KEY}2"):
        cache.update("chunk_size_configs", key, lambda _: ANSWER)
    cache.update("env_profiles", "cartpole-control:4567", lambda _: {"bytes_per_env": 40})
    return cache


def new_results(folder: Path) -> Path:
    """Make a folder of results: a table, its samples, and what asv writes."""
    shutil.rmtree(folder, ignore_errors=True)
    write_asv(folder / "asv", {"suite.Class.time_it": np.ones((3, 1))}, workloads=("one",))
    (folder / "csv").mkdir()
    for path in (ROWS, ROWS.with_name(f"{ROWS.stem}_samples.json")):
        shutil.copyfile(path, folder / "csv" / path.name)
    return folder


def _of_cache(folder: Path, kind: str, place: int, rng: random.Random) -> Row:
    path = folder / "autotune_profiles.json"
    cache = new_cache(path)
    answer = cache.get("chunk_size_configs", KEY)
    how = damage(path, rng)

    def read() -> Any:
        # What is damaged is measured again, as what was never known.
        found = cache.get("chunk_size_configs", KEY) or answer
        assert cache.table()
        cache.update("env_profiles", "another", lambda _: {})
        assert cache.get("env_profiles", "another") == {}
        return found

    outcome = outcome_of(read, answer, (path.name,), folder)
    shutil.rmtree(folder)
    folder.mkdir()
    return Row(kind, f"{path.name}: {how}", outcome)


def _called(read: Callable[[], Any]) -> None:
    read()


def _of_results(folder: Path, kind: str, place: int, rng: random.Random) -> Row:
    results = new_results(folder / "results")
    patterns = {"rows": "csv/*.csv", "samples": "csv/*_samples.json", "asv": "asv/**/*.json"}
    file = rng.choice(sorted(results.glob(patterns[kind])))
    how = damage(file, rng)
    readers: dict[str, Callable[[], Any]] = {
        "site's rows": lambda: read_measurements([results / "csv"]),
        "history": lambda: histories(read_archive(results / "asv")),
    }
    if kind != "asv":
        readers["cite"] = lambda: cite(results / "csv" / ROWS.name)
    if place % _SITES == 0:
        readers["site"] = lambda: publish(results, folder / "site", BUILT, repository=folder)
    if place % _PLOTS == 0 and kind == "rows":
        readers["plots"] = lambda: draw(results / "csv", folder / "plots", ["throughput"])
    outcome = "read or left out"
    for name, read in readers.items():
        # No format of results has checksums, so a figure may be another one.
        # A table that lost its columns is one of another kind, which the plots leave out.
        named = (file.name, f"{results / 'csv'} holds no")
        got = outcome_of(partial(_called, read), None, named, results, REFUSALS)
        if got.startswith(FINDING):
            outcome = f"{got} ({name})"
            break
        if got == "refused":
            outcome = f"refused by {name}"
    return Row(kind, f"{file.name}: {how}", outcome)
