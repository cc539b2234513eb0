"""The first meeting with every benchmark: discover the suite, run each once on both sides, read programs and values.

Each benchmark runs in a worker that others share until it hangs or dies; then the worker is
replaced, and that benchmark alone has lost its row.
"""

import contextlib
import dataclasses
import itertools
import re
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perfgate import machine
from perfgate.config import Rules
from perfgate.errors import PreparationError
from perfgate.hlo import read_program
from perfgate.process.channel import Worker, WorkerError
from perfgate.source.sides import Side, Sides
from perfgate.verdict import Benchmark, Change, Row, compare_metrics

Say = Callable[[str], None]
Reply = dict[str, Any] | WorkerError
_MEETINGS = 3


class Crew:
    """Workers of both sides, started when first asked and replaced when they die; use it in a `with` block.

    Both are pinned to `core`, or head's to `head_core`.
    """

    def __init__(
        self, sides: Sides, core: int | None, *, head_core: int | None = None, hash_seed: int = 0
    ):
        self.sides, self.hash_seed = sides, hash_seed
        self.cores = {"base": core, "head": core if head_core is None else head_core}
        self.strays: dict[str, set[str]] = {"base": set(), "head": set()}
        self._workers: dict[str, Worker] = {}

    def ask(self, side: Side, do: str, timeout_s: float, **request: Any) -> dict[str, Any]:
        """Ask the worker of `side`; one that is lost is closed, and the next request starts another."""
        self.send(side, do, **request)
        return self.receive(side, timeout_s)

    def send(self, side: Side, do: str, **request: Any) -> None:
        """Send a request to the worker of `side`; `receive` waits for its reply."""
        if side.name not in self._workers:
            launch = self.sides.launch(side, core=self.cores[side.name], hash_seed=self.hash_seed)
            self._workers[side.name] = Worker(launch)
        self._workers[side.name].send(do, **request)

    def receive(self, side: Side, timeout_s: float) -> dict[str, Any]:
        """Return the reply to the last request that was sent to `side`."""
        try:
            return self._workers[side.name].receive(timeout_s)
        except WorkerError as error:
            if not error.alive:
                self.close(side.name)
            raise

    @property
    def live(self) -> list[str]:
        """Names of the sides that have a worker."""
        return list(self._workers)

    def close(self, name: str) -> None:
        """End the worker of a side."""
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.close()
            self.strays[name] |= worker.strays

    def close_all(self) -> None:
        """End every worker."""
        for name in list(self._workers):
            self.close(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_all()


def ask_together(
    benchmark: Benchmark, crews: Mapping[Side, Crew], do: str, **request: Any
) -> dict[str, Reply]:
    """Ask these sides the same of a benchmark, all at once; return what each replied, or how its worker failed.

    Pinned to one core they are asked one after the other: each would be in the other's way.
    """
    places = [crew.cores[side.name] for side, crew in crews.items()]
    apart = None in places or len(set(places)) == len(places)
    replies: dict[str, Reply] = {}
    for together in [tuple(crews)] if apart else [(side,) for side in crews]:
        for side in together:
            core = crews[side].cores[side.name]
            asked = {
                "row": benchmark.row,
                "name": benchmark.name,
                "index": benchmark.index,
                "core": core,
            } | request
            crews[side].send(side, do, **asked)
        for side in together:
            try:
                replies[side.name] = crews[side].receive(side, benchmark.timeout_s)
            except WorkerError as error:
                replies[side.name] = error
    return replies


def discover(sides: Sides, rules: Rules, pattern: str) -> list[Row]:
    """Return a row for each benchmark of either suite that `pattern` is found in.

    Raises:
        PreparationError: head's suite can't even be listed.
    """
    head = _list_suite(sides, sides.head, sides.head.suite, rules)
    base = _list_suite(sides, sides.base, sides.base_suite, rules)
    after = {each.row: each for each in _benchmarks(head["benchmarks"], sides.config.timeout_s)}
    before = {each.row: each for each in _benchmarks(base["benchmarks"], sides.config.timeout_s)}
    # What a broken module of the base holds is unknown, and must not pass as new.
    lost, broken_now = _prefixes(base["broken"]), _prefixes(head["broken"])
    rows = [
        Row(each, "both" if name in before or name.startswith(lost) else "new")
        for name, each in after.items()
    ]
    rows += [
        Row(each, "gone")
        for name, each in before.items()
        if name not in after and not name.startswith(broken_now)
    ]
    for module, reason in head["broken"].items():
        row = Row(Benchmark(f"{module} (module)", module, None, "module", 0.0))
        row.problems["head"] = f"the module can't be imported: {reason}"
        rows.append(row)
    return [row for row in rows if re.search(pattern, row.name) or row.benchmark.kind == "module"]


def _prefixes(modules: Iterable[str]) -> tuple[str, ...]:
    """Return how the names of these modules' benchmarks begin; those of the suite's root begin anyhow."""
    names = [module.partition(".")[2] for module in modules]
    return tuple(f"{name}." if name else "" for name in names)


def _list_suite(sides: Sides, side: Side, suite: Path, rules: Rules) -> dict[str, Any]:
    launch = sides.launch(side, suite=suite)
    try:
        with Worker(launch) as worker:
            reply = worker.ask("discover", rules.timing.timeout_s)
    except WorkerError as error:
        raise PreparationError(f"the suite of {side.name} can't be listed: {error}") from None
    check_origin(side, reply["modules"])
    return reply


def check_origin(side: Side, modules: dict[str, str]) -> None:
    """Hold the package under test to its own side: a gate that compares something with itself can't fail.

    Raises:
        PreparationError: a module that the checkout has was imported from elsewhere.
    """
    for folder in side.import_from:
        for name, file in modules.items():
            has_it = (folder / name / "__init__.py").is_file() or (folder / f"{name}.py").is_file()
            if (
                has_it
                and not Path(file).resolve().is_relative_to(side.root.resolve())
                and name != side.suite.name
            ):
                raise PreparationError(
                    f"on {side.name}, {name} was imported from another place than its checkout."
                )


def _benchmarks(found: Sequence[dict[str, Any]], timeout_s: float) -> Iterator[Benchmark]:
    for each in found:
        limit = float(each["timeout"] or timeout_s) + float(each["cache_timeout"] or 0.0)
        combinations = list(itertools.product(*each["params"])) if each["params"] else [None]
        for index, values in enumerate(combinations):
            row = each["name"] if values is None else f"{each['name']}({', '.join(values)})"
            number = None if values is None else index
            yield Benchmark(row, each["name"], number, each["type"], limit, each["unit"])


def inspect(
    rows: Sequence[Row],
    sides: Sides,
    rules: Rules,
    core: int | None,
    say: Say,
    *,
    clocks: bool = True,
) -> None:
    """Run every benchmark once on each side that has it, and compare what needs no clock.

    Both sides work at once, each on a core of its own: what is counted does not mind. Seconds that
    a suite tracks by itself are measured one side after the other; where both hold the same code on
    head alone, to see that it runs; and without `clocks` not at all.
    """
    other = machine.other_core(core)
    with contextlib.ExitStack() as stack:
        apart = stack.enter_context(
            Crew(sides, other, head_core=core)
        )  # head has the idler one: budgets look at it
        pinned, free = (stack.enter_context(Crew(sides, place)) for place in (core, None))
        for row in rows:
            asked = _sides_of(row, sides)
            tracks_seconds = _tracks_seconds(row, rules)
            row.put_off = tracks_seconds and (not clocks or sides.same_code)
            if row.put_off:
                asked = tuple(side for side in asked if clocks and side.name == "head")
            if asked:
                say(f"running {row.name}")
            crew = free if rules.cores_of(row.name) > 1 else pinned if tracks_seconds else apart
            for together in [asked] if crew is apart else ((side,) for side in asked):
                _inspect(row, together, crew)
            _meet_again(row, sides, crew, say)
        crews = (apart, pinned, free)
        for crew in crews:
            _check_origins(crew, rules)
    for row, crew in itertools.product(rows, crews):
        note_strays(row, crew)
    for row in rows:
        row.changes = _changes(row, sides, rules)


def _changes(row: Row, sides: Sides, rules: Rules) -> list[Change]:
    """Compare both sides of a row; what a clock or the system says of the same code twice is noise."""
    changes = compare_metrics(row, rules) if row.is_comparable else []
    if not sides.same_code:
        return changes
    is_clock = {each.metric: rules.rule_of(each.metric, row.name).clock for each in changes}
    return [
        dataclasses.replace(each, word="same") if is_clock[each.metric] else each
        for each in changes
    ]


def _tracks_seconds(row: Row, rules: Rules) -> bool:
    rule = rules.rule_of(row.benchmark.metric, row.name)
    return row.benchmark.metric == "track" and rule.clock and rule.unit == "s"


def note_strays(row: Row, crew: Crew) -> None:
    """Take a row from the benchmark whose forked child came back after the answer was given."""
    for name, strays in crew.strays.items():
        if row.name in strays:
            row.problems.setdefault(name, "it forked, and its child came back out of the benchmark")


def _sides_of(row: Row, sides: Sides) -> tuple[Side, ...]:
    if row.benchmark.kind == "module" or row.state == "gone":
        return ()
    return (sides.head,) if row.state == "new" else (sides.base, sides.head)


def _inspect(row: Row, together: Sequence[Side], crew: Crew) -> None:
    """Have these sides run a benchmark for the first time, all at once."""
    if row.benchmark.kind == "peakmemory":
        inspect_afresh(row, {side: crew.cores[side.name] for side in together}, crew.sides)
    else:
        _take_replies(row, dict.fromkeys(together, crew))


def _meet_again(row: Row, sides: Sides, crew: Crew, say: Say) -> None:
    """Time the first calls of one program again where they differ: in turn and on one core, with its neighbours.

    What goes wrong here only costs the row its exoneration: its pairs tell whether anything is the
    matter.
    """
    if sides.same_code or row.problems or row.is_same_program() or not row.has_one_program():
        return
    say(f"timing the first calls of {row.name} again")
    taken: dict[str, list[float]] = {"base": [], "head": []}
    for _ in range(_MEETINGS):
        for side in (sides.base, sides.head):
            reply = ask_together(row.benchmark, {side: crew}, "meet", core=crew.cores["head"])[
                side.name
            ]
            if isinstance(reply, WorkerError) or "seconds" not in reply:
                return
            taken[side.name].append(reply["seconds"])
    for name, seconds in taken.items():
        row.replies[name]["seconds"] = statistics.median(seconds)


def inspect_afresh(row: Row, cores: Mapping[Side, int | None], sides: Sides) -> None:
    """Have sides do so in new processes that find nothing compiled, each on its core.

    A peak is the whole process's, and the compiler's is part of it: a side that loads what the
    other one has just compiled would look slim.
    """
    with contextlib.ExitStack() as stack:
        crews = {}
        for side, core in cores.items():
            empty = Path(tempfile.mkdtemp(prefix="programs-", dir=sides.folder)).name
            crews[side] = stack.enter_context(
                Crew(dataclasses.replace(sides, programs=empty), core)
            )
        _take_replies(row, crews)
    for crew in crews.values():
        note_strays(row, crew)


def _take_replies(row: Row, crews: Mapping[Side, Crew]) -> None:
    for side, reply in zip(
        crews, ask_together(row.benchmark, crews, "inspect").values(), strict=True
    ):
        if isinstance(reply, WorkerError):
            row.problems[side.name] = str(reply)
        elif reply.get("skipped"):
            row.skipped.add(side.name)
        else:
            row.replies[side.name] = reply
            program = read_program(reply, side.root)
            if program is not None:
                row.programs[side.name] = program
    if (
        row.programs.keys() == {"base"} and "head" in row.replies
    ):  # else all that is said of it would be lost unseen
        row.problems["head"] = "it offers a program on the base, and none here"


def _check_origins(crew: Crew, rules: Rules) -> None:
    """Check again what the benchmarks imported while they ran."""
    for side in (crew.sides.base, crew.sides.head):
        if side.name in crew.live:
            with contextlib.suppress(WorkerError):  # what broke a worker has cost a row already
                check_origin(side, crew.ask(side, "origins", rules.timing.timeout_s)["modules"])
