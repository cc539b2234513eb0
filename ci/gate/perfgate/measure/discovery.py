"""What both suites hold, and whether each side runs its own code."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.config import Rules
from perfgate.errors import PreparationError
from perfgate.process import protocol
from perfgate.process.channel import Worker, WorkerError
from perfgate.source.sides import Side, Sides
from perfgate.stages import MODULE, Benchmark, Listed


@dataclass(frozen=True)
class Discovered:
    """What discovery found.

    Attributes:
        rows: a benchmark each, head's first.
        counts_instructions: whether workers can count the processor's instructions.
    """

    rows: tuple[Listed, ...]
    counts_instructions: bool


def discover(sides: Sides, rules: Rules, pattern: str) -> Discovered:
    """Return each benchmark of either suite that `pattern` is found in.

    Raises:
        PreparationError: a side's suite can't even be listed.
    """
    head, hello = _list_suite(sides, sides.head, sides.head.suite, rules)
    base, _ = _list_suite(sides, sides.base, sides.base_suite, rules)
    after = {each.row: each for each in _benchmarks(head.benchmarks, sides.config.timeout_s)}
    before = {each.row: each for each in _benchmarks(base.benchmarks, sides.config.timeout_s)}
    # What a broken module of the base holds is unknown, and must not pass as new.
    lost = _prefixes(base.broken)
    broken_now = _prefixes(head.broken)
    rows = [
        Listed(each, "both" if name in before or name.startswith(lost) else "new")
        for name, each in after.items()
    ]
    rows += [
        Listed(each, "gone")
        for name, each in before.items()
        if name not in after and not name.startswith(broken_now)
    ]
    rows = [row for row in rows if re.search(pattern, row.name)]
    rows += [_broken_module(module, reason) for module, reason in head.broken.items()]
    return Discovered(tuple(rows), hello)


def _broken_module(module: str, reason: str) -> Listed:
    benchmark = Benchmark(f"{module} (module)", module, None, MODULE, 0.0)
    return Listed(benchmark, problem=f"the module can't be imported: {reason}")


def _prefixes(modules: Iterable[str]) -> tuple[str, ...]:
    """Return how the names of these modules' benchmarks begin.

    Those of the suite's root begin anyhow.
    """
    names = [module.partition(".")[2] for module in modules]
    return tuple(f"{name}." if name else "" for name in names)


def _list_suite(sides: Sides, side: Side, suite: Path, rules: Rules) -> tuple[protocol.Suite, bool]:
    """Return what a suite holds, and whether its worker can count instructions."""
    try:
        with Worker(sides.launch(side, suite=suite)) as worker:
            found = worker.ask(protocol.Discover(), rules.timing.timeout_s)
            hello = worker.hello
    except WorkerError as error:
        raise PreparationError(f"the suite of {side.name} can't be listed: {error}") from None
    check_origin(side, found.modules)
    return found, hello is not None and hello.counts_instructions


def _benchmarks(found: Sequence[protocol.Listing], timeout_s: float) -> Iterator[Benchmark]:
    for each in found:
        limit_s = (each.timeout_s or timeout_s) + (each.cache_timeout_s or 0.0)
        if not each.params:
            yield Benchmark(each.name, each.name, None, each.kind, limit_s, each.unit)
        for index, values in enumerate(itertools.product(*each.params) if each.params else ()):
            row = f"{each.name}({', '.join(values)})"
            yield Benchmark(row, each.name, index, each.kind, limit_s, each.unit)


def check_origin(side: Side, modules: dict[str, str]) -> None:
    """Hold the package under test to its own side: a gate that compares it with itself can't fail.

    Raises:
        PreparationError: a module that the checkout has was imported from elsewhere.
    """
    root = side.root.resolve()
    for folder in side.import_from:
        for name, file in modules.items():
            has_it = (folder / name / "__init__.py").is_file() or (folder / f"{name}.py").is_file()
            is_elsewhere = has_it and not Path(file).resolve().is_relative_to(root)
            if is_elsewhere and name != side.suite.name:
                raise PreparationError(
                    f"on {side.name}, {name} was imported from another place than its checkout."
                )
