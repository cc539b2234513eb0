"""The suite of one checkout, in a worker, and its benchmarks that are ready to run."""

import gc
import hashlib
import json
import os

# as in asv, the result of setup_cache reaches each benchmark as a pickle
import pickle  # noqa: TID251
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..process import protocol
from . import listing, used_files

# beside the result of setup_cache: the part of the checkout that made it
_USED = "perfgate_used.json"


class LoadedSuite:
    """The suite of one checkout and its benchmarks that are ready to run.

    Attributes:
        folder: the folder of benchmarks.
        is_pytest: whether the suite consists of tests that use pytest-benchmark's fixture.
        root: the root of the checkout.
        exchange: the folder in which the worker writes files for the gate.
        scratch: the folder in which benchmarks run.
        ready: asv's benchmark for each row that is set up.
    """

    def __init__(
        self, folder: Path, caches: Path, exchange: Path, root: Path, *, is_pytest: bool = False
    ):
        self.folder = folder
        self.is_pytest = is_pytest
        self.root = root
        self.exchange = exchange
        self.scratch = Path(tempfile.mkdtemp(dir=exchange))
        self.ready: dict[str, Any] = {}
        self._caches = caches
        # These describe the setup_cache of the benchmark that was prepared last. It may have run in
        # another worker.
        self._cache_imported: set[str] = set()
        self._cache_has_all_imports = True

    def imported(self) -> tuple[str, ...]:
        """Return the files that have been imported or opened so far, as `used_files` names them.

        They include those of earlier benchmarks, and those that `setup_cache` used for the
        benchmark prepared last.
        """
        return tuple(sorted(used_files.used_below(self.root) | self._cache_imported))

    def has_all_imports(self) -> bool:
        """Tell whether no other process has run so far, neither here nor in `setup_cache`.

        A benchmark may use results that an earlier one had another process compute.
        """
        return self._cache_has_all_imports and not used_files.has_any_process_run()

    def listed(self) -> protocol.Suite:
        """Return the suite's contents."""
        if self.is_pytest:
            from . import pytest_suite

            return pytest_suite.list_tests(self.folder, self.root)
        return listing.list_suite(self.folder)

    def prepare(self, target: protocol.Target[Any]) -> Any:
        """Set up a fresh instance of the benchmark. Return None if it is skipped."""
        if not self.ready:
            # Modules stay alive anyway. Without them, a collection between two benchmarks takes no
            # time.
            gc.freeze()
        benchmark = self._found(target)
        self._cache_imported = set()
        self._cache_has_all_imports = True
        benchmark.set_cache(self._cached(benchmark))
        if benchmark.do_setup():
            return None
        self.ready[target.row] = benchmark
        return benchmark

    def release(self, row: str) -> None:
        """Tear down a benchmark and forget it."""
        benchmark = self.ready.pop(row, None)
        if benchmark is not None:
            benchmark.do_teardown()
        # Its garbage must not be collected during the next benchmark's samples.
        gc.collect()

    def enter_scratch(self) -> None:
        """Change to a folder that a benchmark may fill, break or delete."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.chdir(self.scratch)

    def _found(self, target: protocol.Target[Any]) -> Any:
        if self.is_pytest:
            from . import pytest_case

            return pytest_case.TestBenchmark(target.name, self.folder, self.root)
        return listing.find_benchmark(self.folder, target.name, target.index)

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
            file.write_bytes(pickle.dumps(made))
            used = {"imported": self.imported(), "has_all_imports": self.has_all_imports()}
            (folder / _USED).write_text(json.dumps(used))
        used = json.loads((folder / _USED).read_text())
        self._cache_imported = set(used["imported"])
        self._cache_has_all_imports = used["has_all_imports"]
        shutil.copytree(folder, self.scratch, dirs_exist_ok=True)
        os.chdir(self.scratch)
        # this run's own benchmark wrote the file above
        return pickle.loads(file.read_bytes())  # noqa: S301
