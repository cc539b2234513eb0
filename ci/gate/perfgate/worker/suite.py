"""The suite of one checkout, in a worker, and its benchmarks that are ready to run."""

import contextlib
import dataclasses
import functools
import gc
import hashlib
import json
import os

# as in asv, the result of setup_cache reaches each benchmark as a pickle
import pickle  # noqa: TID251
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..process import protocol
from . import listing, used_files

# beside the result of setup_cache: the part of the checkout that made it
_USED = "perfgate_used.json"
_NOTHING = protocol.Footprint((), has_all_imports=True)


class SkippedError(Exception):
    """A benchmark is skipped. The message is the exception that its setup raised, if any."""


class LoadedSuite:
    """The suite of one checkout and its benchmarks that are ready to run.

    Attributes:
        folder: the folder of benchmarks, or the file of tests.
        pytest_args: the arguments for pytest if the suite consists of tests that use
            pytest-benchmark's fixture; None for a suite of asv.
        root: the root of the checkout.
        exchange: the folder in which the worker writes files for the gate.
        scratch: the folder in which benchmarks run.
        ready: asv's benchmark for each row that is set up.
    """

    def __init__(
        self,
        folder: Path,
        caches: Path,
        exchange: Path,
        root: Path,
        *,
        pytest_args: Sequence[str] | None = None,
    ):
        self.folder = folder
        self.pytest_args = pytest_args
        self.root = root
        self.exchange = exchange
        self.scratch = Path(tempfile.mkdtemp(dir=exchange))
        self._places: dict[str, Path] = {}  # the current folder of each benchmark that is ready
        self.ready: dict[str, Any] = {}
        self._caches = caches
        # what the setup_cache of the benchmark prepared last has used, maybe in another worker
        self._used_by_cache = _NOTHING

    def footprint(self) -> protocol.Footprint:
        """Return what this process has used so far, and `setup_cache` for the latest benchmark.

        It includes what earlier benchmarks used: a benchmark may use results that an earlier one
        had another process compute.
        """
        cache = self._used_by_cache
        imported = used_files.used_below(self.root) | {*cache.imported}
        is_complete = cache.has_all_imports and not used_files.has_any_process_run()
        return protocol.Footprint(tuple(sorted(imported)), is_complete)

    def listed(self) -> protocol.Suite:
        """Return the suite's contents."""
        if self.pytest_args is not None:
            from . import pytest_suite

            return pytest_suite.list_tests(self.folder, self.root, self.pytest_args)
        return listing.list_suite(self.folder)

    def prepare(self, target: protocol.Target[Any]) -> Any:
        """Set up a fresh instance of the benchmark.

        Raises:
            SkippedError: it is skipped.
        """
        if not self.ready:
            # Modules stay alive anyway. Without them, a collection between two benchmarks takes no
            # time.
            gc.freeze()
        if self.pytest_args is not None:
            from . import pytest_case

            place = (self.folder, self.root)
            benchmark: Any = pytest_case.TestBenchmark(target.name, *place, self.pytest_args)
        else:
            from asv_runner.discovery import get_benchmark_from_name

            name = target.name if target.index is None else f"{target.name}-{target.index}"
            benchmark = get_benchmark_from_name(str(self.folder), name)
            listing.check_runs(benchmark.func)
        self._used_by_cache = _NOTHING
        benchmark.set_cache(self._cached(benchmark))
        reasons: list[str] = []
        # asv's `do_setup` only prints the exception that skips a benchmark.
        benchmark._setups = [_noting(each, reasons) for each in benchmark._setups]  # noqa: SLF001
        if benchmark.do_setup():
            raise SkippedError(*reasons)
        self.ready[target.row] = benchmark
        return benchmark

    def release(self, row: str) -> protocol.Footprint:
        """Tear down a benchmark and forget it. Its teardown may import something, too."""
        benchmark = self.ready.pop(row, None)
        if benchmark is not None:
            benchmark.do_teardown()
        # Its garbage must not be collected during the next benchmark's samples.
        gc.collect()
        return self.footprint()

    def enter(self, row: str) -> None:
        """Change to the folder that a benchmark that is ready was in, as a test may choose its own.

        Others begin in a folder that they may fill, break or delete.
        """
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.chdir(self.scratch)
        if row in self.ready:
            with contextlib.suppress(OSError, LookupError):  # it may have deleted that
                os.chdir(self._places[row])

    def leave(self, row: str) -> None:
        """Note the folder that a benchmark is in."""
        with contextlib.suppress(OSError):
            self._places[row] = Path.cwd()

    def _cached(self, benchmark: Any) -> Any:
        """Return setup_cache's result, and enter a copy of the folder in which it ran, like asv."""
        if benchmark.setup_cache_key is None:
            return None
        folder = self._caches / hashlib.sha256(benchmark.setup_cache_key.encode()).hexdigest()[:20]
        file = folder / "cache.pickle"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            os.chdir(folder)
            made = benchmark.do_setup_cache()
            (folder / _USED).write_text(json.dumps(dataclasses.asdict(self.footprint())))
            # The run may end here, and a part of a file would break every other benchmark of it.
            part = file.with_suffix(".part")
            part.write_bytes(pickle.dumps(made))
            part.replace(file)
        self._used_by_cache = protocol.Footprint(**json.loads((folder / _USED).read_text()))
        shutil.copytree(folder, self.scratch, dirs_exist_ok=True)
        os.chdir(self.scratch)
        # this run's own benchmark wrote the file above
        return pickle.loads(file.read_bytes())  # noqa: S301


def _noting(setup: Callable[..., Any], reasons: list[str]) -> Callable[..., Any]:
    """Return a setup that also notes the exception with which it skips its benchmark."""

    @functools.wraps(setup)
    def noting(*params: Any) -> Any:
        try:
            return setup(*params)
        except NotImplementedError as error:
            reasons.append(listing.sentence(error))
            raise

    return noting
