"""List the benchmarks of both suites, and check that each side runs its own code."""

import dataclasses
import itertools
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from perfgate.errors import PreparationError
from perfgate.measure.run import Run, say
from perfgate.measure.workers import Worker, WorkerError
from perfgate.process import protocol
from perfgate.rows import MODULE, Benchmark, Row, SideRun
from perfgate.source.sides import Side


def discover(run: Run, pattern: str) -> list[Row]:
    """Return each benchmark of either suite whose name `pattern` matches, head's first.

    Raises:
        PreparationError: a side's suite can't be listed.
    """
    sides = run.sides
    say("listing the benchmarks of head")  # some suites import for a minute
    head = _list_suite(run, sides.head, sides.head.suite)
    base = head
    kept: dict[str, str] = {}
    if sides.changed_suite or sides.changed_code:
        say("listing the benchmarks of the base")
        suite = sides.base_suite if sides.changed_suite else sides.base.suite
        base = _list_suite(run, sides.base, suite)
    if sides.changed_suite:
        kept = _keep_own_modules(run, head, base)
    timeout_s = run.rules.timing.timeout_s if sides.is_pytest else sides.config.timeout_s
    before = {each.row: each for each in _benchmarks(base.benchmarks, timeout_s)}
    found = _benchmarks(head.benchmarks, timeout_s, is_unchanged=not sides.edited_suite)
    after = {each.row: each for each in found}
    codes = {each.name: each.code for each in base.benchmarks}
    changed = {each.name for each in head.benchmarks if codes.get(each.name) != each.code}
    # Nobody knows which benchmarks a broken module of the base holds, so head's must not count as
    # new.
    lost = _prefixes(base.broken)
    broken_now = _prefixes(head.broken)
    rows = []
    for name, each in after.items():
        apart = ""
        for module, reason in kept.items() if name in before and each.name in changed else ():
            if name.startswith(_prefixes([module])):
                apart = f"its code changed, and the base can't import its module: {reason}"
        state = "both" if name in before or name.startswith(lost) else "new"
        benchmark = dataclasses.replace(each, own_index=before.get(name, each).index)
        rows.append(Row(benchmark, state, head=SideRun(problem=apart)))
    rows += [
        Row(each, "gone")
        for name, each in before.items()
        if name not in after and not name.startswith(broken_now)
    ]
    rows = [row for row in rows if re.search(pattern, row.name)]
    for module, reason in head.broken.items():
        was_broken = module in base.broken
        benchmark = Benchmark(
            f"{module} (module)", module, None, MODULE, 0.0, is_unchanged=was_broken
        )
        problem = f"the module can't be imported: {reason}"
        rows.append(Row(benchmark, head=SideRun(problem=problem)))
    return rows


def _keep_own_modules(run: Run, head: protocol.Suite, base: protocol.Suite) -> dict[str, str]:
    """Let the base keep its own file of each module if it can't import head's.

    Otherwise a new benchmark of a new feature would break the old ones in its module. Return, by
    module, why head's file can't be imported on the base.
    """
    sides = run.sides
    exchanged = _list_suite(run, sides.base, sides.base.suite)
    kept = {}
    for module, reason in exchanged.broken.items():
        place = sides.base_suite.joinpath(*module.split(".")[1:])
        files = (place / "__init__.py", place.with_suffix(".py"))
        file = next((file for file in files if file.is_file()), None)
        if file is not None and module not in head.broken and module not in base.broken:
            shutil.copy2(file, sides.base.suite / file.relative_to(sides.base_suite))
            kept[module] = reason
    return kept


def _prefixes(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes of the benchmark names in these modules.

    Benchmarks in the suite's root may have any name.
    """
    names = [module.partition(".")[2] for module in modules]
    return tuple(f"{name}." if name else "" for name in names)


def _list_suite(run: Run, side: Side, suite: Path) -> protocol.Suite:
    timeout_s = min(run.rules.timing.timeout_s, run.deadline - time.monotonic())
    try:
        with Worker(run.sides, side, suite=suite) as worker:
            worker.send(request := protocol.Discover())
            found = worker.receive(request, timeout_s)
    except WorkerError as error:
        raise PreparationError(f"the suite of {side.name} can't be listed: {error}") from None
    check_origin(side, found.modules)
    return found


def _benchmarks(
    found: Sequence[protocol.Listing], timeout_s: float, *, is_unchanged: bool = False
) -> Iterator[Benchmark]:
    """Yield one benchmark for each set of parameters."""
    for each in found:
        limit_s = (each.timeout_s or timeout_s) + (each.cache_timeout_s or 0.0)
        whole = Benchmark(each.name, each.name, None, each.kind, limit_s, each.unit, is_unchanged)
        if not each.params:
            yield whole
        for index, values in enumerate(itertools.product(*each.params) if each.params else ()):
            row = f"{each.name}({', '.join(values)})"
            yield dataclasses.replace(whole, row=row, index=index)


def check_origin(side: Side, modules: dict[str, str]) -> None:
    """Check that a side imports its own package.

    A gate that compares a package with itself can't fail.

    Raises:
        PreparationError: a module of the checkout was imported from elsewhere.
    """
    root = side.root.resolve()
    for name, file in modules.items():
        has_it = name == side.module or any(
            (folder / name / "__init__.py").is_file() or (folder / f"{name}.py").is_file()
            for folder in side.import_from
        )
        is_elsewhere = has_it and not Path(file).resolve().is_relative_to(root)
        if is_elsewhere and name != side.suite.stem:  # a file of tests has a suffix
            raise PreparationError(
                f"on {side.name}, {name} was imported from {file}, which is not in its checkout; "
                "if the package lies in a subfolder, name that with repo_subdir in asv.conf.json."
            )
