"""What a suite holds and where its modules came from, for a worker."""

import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def suite(folder: Path) -> dict[str, Any]:
    """List the suite's benchmarks and the modules of it that can't be imported."""
    from asv_runner import discovery

    found = list(discovery.disc_benchmarks(str(folder), ignore_import_errors=True))
    names = [folder.name, *_modules_below(folder, folder.name)]
    broken = {name: _import_error(name) for name in names if name not in sys.modules}
    if importlib.util.find_spec("pympler") is None and any(
        "def mem_" in f.read_text() for f in folder.rglob("*.py")
    ):
        broken[f"{folder.name}.mem_*"] = "asv finds mem_ benchmarks only where pympler is installed"
    return {
        "benchmarks": [_described(each) for each in found],
        "broken": broken,
        "modules": loaded_from(),
    }


def owner_of(benchmark: Any) -> Any:
    """Return the instance behind a benchmark, or the function that it is."""
    return getattr(benchmark.func, "__self__", benchmark.func)


def _described(benchmark: Any) -> dict[str, Any]:
    owner = owner_of(benchmark)
    return {
        "name": benchmark.name,
        "type": "timeraw" if type(benchmark).__name__ == "TimerawBenchmark" else benchmark.type,
        "unit": str(benchmark.unit),
        "params": benchmark.params,
        "timeout": benchmark.timeout,
        "cache_timeout": benchmark.setup_cache_timeout,
        "offers_program": hasattr(owner, "program"),
    }


def _modules_below(folder: Path, package: str) -> Iterator[str]:
    for module in pkgutil.iter_modules([str(folder)], f"{package}."):
        yield module.name
        if module.ispkg:
            yield from _modules_below(folder / module.name.rpartition(".")[2], module.name)


def _import_error(name: str) -> str:
    try:
        importlib.import_module(name)
    # a suite's module may raise anything, SystemExit included
    except BaseException as error:  # noqa: BLE001
        return sentence(error)
    return "it could be imported only at the second attempt"


def loaded_from() -> dict[str, str]:
    """Where every top-level module came from: the driver checks that it compares what it claims to compare."""
    return {
        name: str(file)
        for name, m in list(sys.modules.items())
        if "." not in name and (file := _file_of(m))
    }


def _file_of(module: Any) -> str | None:
    file = getattr(module, "__file__", None)
    return file or next(iter(getattr(module, "__path__", [])), None)


def sentence(error: BaseException) -> str:
    """Return an error in one line."""
    return (
        f"{type(error).__name__}: {error}".splitlines()[0][:300]
        if str(error)
        else type(error).__name__
    )
