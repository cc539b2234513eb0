"""List a suite's benchmarks and where its modules came from, in a worker."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..process import protocol


class RunnerError(Exception):
    """What runs the benchmarks has failed itself, so nothing is known of them."""


def list_suite(folder: Path) -> protocol.Suite:
    """List the suite's benchmarks, and the modules that asv can't read benchmarks from."""
    found: list[Any] = []
    broken: dict[str, str] = {}
    for name in [folder.name, *_modules_below(folder, folder.name)]:
        try:
            found += _benchmarks_in(name)
        # a suite's module may raise anything, SystemExit included
        except BaseException as error:  # noqa: BLE001
            broken[name] = sentence(error)
    listed = tuple(_described(each) for each in found)
    return protocol.Suite(listed, broken, loaded_from())


def check_runs(function: Any) -> None:
    """Check that calling a function runs it.

    Raises:
        TypeError: the call only makes an object, and somebody else would have to run that.
    """
    kinds = {
        "a coroutine": inspect.iscoroutinefunction,
        "a generator": inspect.isgeneratorfunction,
        "an asynchronous generator": inspect.isasyncgenfunction,
    }
    for kind, is_that in kinds.items():
        if is_that(function):
            raise TypeError(
                f"it is {kind} function, so calling it runs nothing of it; "
                "benchmark a function that runs it to its end"
            )


def _benchmarks_in(module: str) -> list[Any]:
    """Import one module of the suite and return asv's benchmarks of it."""
    from asv_runner import discovery

    imported = importlib.import_module(module)
    # asv has no function that returns the benchmarks of one module.
    every = discovery.disc_modules
    discovery.disc_modules = lambda *_, **__: iter([imported])
    try:
        return list(discovery.disc_benchmarks(module))
    finally:
        discovery.disc_modules = every


def _described(benchmark: Any) -> protocol.Listing:
    is_raw = type(benchmark).__name__ == "TimerawBenchmark"
    cache_timeout_s = benchmark.setup_cache_timeout
    return protocol.Listing(
        name=benchmark.name,
        kind="timeraw" if is_raw else benchmark.type,
        unit=str(benchmark.unit),
        params=tuple(tuple(map(str, values)) for values in benchmark.params),
        timeout_s=None if benchmark.timeout is None else float(benchmark.timeout),
        cache_timeout_s=None if cache_timeout_s is None else float(cache_timeout_s),
        code=benchmark.code,
    )


def _modules_below(folder: Path, package: str) -> Iterator[str]:
    for module in pkgutil.iter_modules([str(folder)], f"{package}."):
        yield module.name
        if module.ispkg:
            yield from _modules_below(folder / module.name.rpartition(".")[2], module.name)


def loaded_from() -> dict[str, str]:
    """Return where every top-level module came from, so that the gate can check each side's."""
    modules = {name: module for name, module in list(sys.modules.items()) if "." not in name}
    files = {name: file_of(module) for name, module in modules.items()}
    return {name: str(file) for name, file in files.items() if file}


def file_of(module: Any) -> str | None:
    """Return the file or the folder that a module came from."""
    file = getattr(module, "__file__", None)
    return file or next(iter(getattr(module, "__path__", [])), None)


def sentence(error: BaseException) -> str:
    """Return an error as one line. Those of the gate's own need no name."""
    if isinstance(error, RunnerError):
        return str(error)
    name = type(error).__name__
    return f"{name}: {error}".splitlines()[0][:300] if str(error) else name
