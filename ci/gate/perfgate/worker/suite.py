"""The suite of one checkout, for a worker: the benchmarks of it that are ready to run."""

import contextlib
import gc
import hashlib
import json
import os

# asv's own protocol: what setup_cache returns reaches each benchmark as a pickle
import pickle  # noqa: TID251
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..process import protocol
from . import listing, used_files
from .executed import Executed

_USED = "perfgate_used.json"  # beside what setup_cache made: what of the checkout made it


class LoadedSuite:
    """The suite of one checkout and the benchmarks of it that are ready to run.

    Attributes:
        folder: of the benchmarks.
        is_pytest: whether these are tests with pytest-benchmark's fixture, and not asv's.
        root: of the checkout that they belong to.
        exchange: where the worker leaves files for the gate.
        scratch: where benchmarks run.
        ready: asv's benchmark of each row that is set up.
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
        self._executed = Executed(root)
        self._at_import: set[str] = set()
        self._records_functions = False
        self._has_missed_functions = False
        # Of the setup_cache of what was prepared last, which may have run in another worker:
        self._is_cache_whole = True
        self._cache_imported: set[str] = set()
        self._cache_has_all_imports = True

    @contextlib.contextmanager
    def recorded(self, *, functions: bool) -> Iterator[None]:
        """Record which of the checkout's functions run while the block prepares a benchmark.

        What an import or `setup_cache` has run before belongs to every benchmark. Without
        `functions` none is recorded.
        """
        self._executed = Executed(self.root)
        # Once what an import ran was not recorded, no later record is whole.
        self._has_missed_functions |= not functions
        self._records_functions = not self._has_missed_functions
        with self._executed.recorded(functions=self._records_functions):
            yield
        self._executed.names |= self._at_import

    def executed(self) -> tuple[str, ...]:
        """Return the functions that were recorded last, as `file:qualified name`."""
        return tuple(sorted(self._executed.names))

    def has_seen_all_functions(self) -> bool:
        """Tell whether nothing has run unseen for what was prepared last."""
        return self._executed.is_whole and self._is_cache_whole

    def imported(self) -> tuple[str, ...]:
        """Return the files that have been imported or opened up to now, as `used_files` names them.

        Those of earlier benchmarks are among them, and those of `setup_cache` of what was prepared
        last.
        """
        return tuple(sorted(used_files.used_below(self.root) | self._cache_imported))

    def has_all_imports(self) -> bool:
        """Tell whether no other process has run for what was prepared last, or before it.

        A benchmark may rest on what an earlier one had a process compute.
        """
        return self._cache_has_all_imports and not used_files.has_any_process_run()

    def listed(self) -> protocol.Suite:
        """Return what the suite holds."""
        if self.is_pytest:
            from . import pytest_suite

            return pytest_suite.list_tests(self.folder, self.root)
        return listing.list_suite(self.folder)

    def prepare(self, target: protocol.Target[Any]) -> Any:
        """Set a fresh instance of the benchmark up; None where it asks to be skipped."""
        if not self.ready:
            # modules stay: without them a collection between two benchmarks takes no time
            gc.freeze()
        benchmark = self._found(target)
        self._executed.collect()
        self._at_import |= self._executed.names
        self._is_cache_whole = True
        self._cache_imported = set()
        self._cache_has_all_imports = True
        benchmark.set_cache(self._cached(benchmark))
        if benchmark.do_setup():
            return None
        self.ready[target.row] = benchmark
        return benchmark

    def release(self, row: str) -> None:
        """Tear a benchmark down and forget it."""
        benchmark = self.ready.pop(row, None)
        if benchmark is not None:
            benchmark.do_teardown()
        # Its garbage shall not be collected within the next benchmark's samples.
        gc.collect()

    def enter_scratch(self) -> None:
        """Stand in a folder that a benchmark may fill, break or delete."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.chdir(self.scratch)

    def _found(self, target: protocol.Target[Any]) -> Any:
        if self.is_pytest:
            from . import pytest_case

            return pytest_case.TestBenchmark(target.name, self.folder, self.root)
        return listing.find_benchmark(self.folder, target.name, target.index)

    def _cached(self, benchmark: Any) -> Any:
        """Return what setup_cache made, in a copy of the folder that it ran in, as under asv."""
        if benchmark.setup_cache_key is None:
            return None
        folder = self._caches / hashlib.sha256(benchmark.setup_cache_key.encode()).hexdigest()[:20]
        file = folder / "cache.pickle"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            os.chdir(folder)
            made = benchmark.do_setup_cache()
            file.write_bytes(pickle.dumps(made))
            self._executed.collect()
            used = {
                "executed": self.executed(),
                "is_whole": self._executed.is_whole_so_far(functions=self._records_functions),
                "imported": self.imported(),
                "has_all_imports": self.has_all_imports(),
            }
            (folder / _USED).write_text(json.dumps(used))
        used = json.loads((folder / _USED).read_text())
        self._executed.names.update(used["executed"])
        self._is_cache_whole = used["is_whole"]
        self._cache_imported = set(used["imported"])
        self._cache_has_all_imports = used["has_all_imports"]
        shutil.copytree(folder, self.scratch, dirs_exist_ok=True)
        os.chdir(self.scratch)
        # written above, by this run's own benchmark
        return pickle.loads(file.read_bytes())  # noqa: S301
