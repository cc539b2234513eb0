"""Why a row takes longer: functions that are called, packages imported, instructions executed."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from perfgate.config import Verdicts
from perfgate.hlo import Program
from perfgate.measure.explanation import _added_calls, _slower_lines, explain
from perfgate.measure.progress import Progress
from perfgate.process.protocol import Calls, Line
from perfgate.stages import Benchmark, Change, Inspected, SideRun, Timed
from perfgate.stats.evidence import SLOWER, Evidence, Plan
from perfgate.worker import counters
from perfgate.worker.calls import CalledFunctions
from perfgate.worker.counters import Counter, can_count
from perfgate.worker.lines import LineSeconds

ROOT = Path(__file__).resolve().parents[4]


def counted(run, root):
    """Return how often each function is called while `run` runs."""
    functions = CalledFunctions(root)
    with functions.counted():
        run()
    return functions.first_counts()


def _leaf(number):
    return abs(number)


def _caller():
    return [_leaf(number) for number in (1, -2, 3)]


def test_functions_are_counted_in_the_order_of_their_first_calls():
    calls = counted(_caller, ROOT)
    here = "ci/gate/tests/measure/test_explanation.py"
    assert calls[f"{here}:_caller"] == 1
    assert calls[f"{here}:_leaf"] == 3
    assert calls["builtins.abs"] == 3
    assert list(calls).index(f"{here}:_caller") < list(calls).index(f"{here}:_leaf")


def _busy():
    end = time.process_time() + 0.02
    while time.process_time() < end:
        for _ in range(10_000):
            pass


def _idle():
    _busy()


def test_a_lines_seconds_are_its_own_and_the_most_come_first():
    # Another process may take the core for longer than the loop takes, at any line.
    for _ in range(5):
        recorded = LineSeconds(ROOT)
        with recorded.recorded():
            _idle()
        found = recorded.most()
        call = next(line.seconds for line in found if line.source == "_busy()")
        if found[0].source in ("for _ in range(10_000):", "pass") and call < 0.001:
            break
    else:
        pytest.fail(f"in five recordings the loop was never the longest: {found}")
    assert {line.file for line in found} == {"ci/gate/tests/measure/test_explanation.py"}
    assert found[0].seconds > 0.001  # tracing takes most of the time, and is charged to no line
    seconds = [line.seconds for line in found]
    assert seconds == sorted(seconds, reverse=True)
    source = Path(__file__).read_text().splitlines()
    assert all(source[line.number - 1].strip() == line.source for line in found)


def test_a_line_is_the_same_on_both_sides_wherever_it_stands():
    base = Calls({}, (Line("a.py", 3, "work()", 0.5), Line("a.py", 4, "rest()", 0.1)))
    head = Calls({}, (Line("a.py", 7, "work()", 0.7), Line("a.py", 9, "more()", 0.4)))
    assert _slower_lines({"base": [base], "head": [head]}) == [
        "`a.py:9: more()`, which the base does not run, takes 400 ms when each line is traced",
        "`a.py:7: work()` takes longer: 500 -> 700 ms when each line is traced",
    ]
    assert _slower_lines({"base": [base], "head": [base]}) == []


def _traced(rng, slowdown=1.0):
    """Return eight rounds of 20 lines in noise of 15%, with 2% outliers. Line 0 is slowed."""
    rounds = []
    for _ in range(8):
        seconds = np.geomspace(1.0, 0.01, 20) * rng.lognormal(0.0, 0.15, 20)
        seconds *= np.where(rng.random(20) < 0.02, 3.0, 1.0)
        seconds[0] *= slowdown
        traced = [Line("a.py", n, f"line {n}", float(each)) for n, each in enumerate(seconds)]
        rounds.append(Calls({}, tuple(traced)))
    return rounds


def test_what_scatter_explains_is_no_cause():
    rng = np.random.default_rng(0)
    alike = [_slower_lines({"base": _traced(rng), "head": _traced(rng)}) for _ in range(400)]
    assert sum(map(bool, alike)) < 0.02 * 400
    slower = [_slower_lines({"base": _traced(rng), "head": _traced(rng, 2.0)}) for _ in range(200)]
    assert sum("line 0" in str(each) for each in slower) > 0.95 * 200


def test_a_function_that_is_called_more_often_by_chance_is_no_cause():
    rounds = {
        "base": [Calls({"work": 3, "sometimes": number}) for number in (0, 2)],
        "head": [Calls({"work": 3, "sometimes": number, "new": 7}) for number in (1, 5)],
    }
    (cause,) = _added_calls(rounds, ROOT)
    assert cause == "more functions are called: 5 -> 11; above all `new` (+7)"


@pytest.fixture
def real_counters(monkeypatch):
    """This machine's own counters, which all other tests leave alone."""
    monkeypatch.delenv("GATE_NO_COUNTERS")


@pytest.mark.usefixtures("real_counters")
def test_what_the_machine_cannot_count_is_none_and_what_it_can_grows_with_the_work(monkeypatch):
    def count(event, size):
        with (counter := Counter(event)).counted():
            sum(range(size))
        return counter.count

    if not sys.platform.startswith("linux") or not can_count(counters.TASK_CLOCK):
        assert count(counters.TASK_CLOCK, 10) is None
        return
    assert count(counters.TASK_CLOCK, 3_000_000) > count(counters.TASK_CLOCK, 3_000) > 0
    few, many = count(counters.INSTRUCTIONS, 3_000), count(counters.INSTRUCTIONS, 3_000_000)
    assert (few, many) == (None, None) if not can_count() else many > 100 * few
    assert count((1, 1 << 20), 10) is None  # an event that no kernel has
    monkeypatch.setenv("GATE_NO_COUNTERS", "1")
    assert count(counters.TASK_CLOCK, 10) is None


def _slower_row(base, head, changes=()):
    row = Inspected(
        Benchmark("suite.time_it", "suite.time_it", None, "time", 60.0),
        base=SideRun(program=base),
        head=SideRun(program=head),
        changes=tuple(changes),
    )
    evidence = Evidence(Plan.make(Verdicts().limits, 1), verdict=SLOWER, done=True)
    return Timed(row, evidence=evidence)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            [("loop_trips", 64, 80)],
            "its program changed; its loops run more often: 64 -> 80 (1.25 times)",
        ),
        ([("fusions", 80, 64)], "its program changed"),
        ([("compile_s", 1.02, 1.03)], "its program changed"),
        ([("argument_bytes", 9_000, 9_040)], "its program changed"),
        (
            [("argument_bytes", 9_000, 9_900), ("fusions", 10, 20), ("copies", 10, 11)],
            "now split into more kernels: 10 -> 20 (2 times)",
        ),
        ([("fusions", 10, 20), ("host_callbacks", 0, 1)], "calls Python on the host: 0 -> 1"),
    ],
)
def test_a_changed_program_says_what_grew_most(changes, reason):
    changes = [Change(*each, "same") for each in changes]
    row = _slower_row(Program("a", {}), Program("b", {}), changes=changes)
    (explained,) = explain([row], None, None, Progress(pytest.fail))
    (said,) = explained.causes
    assert said.endswith(reason)
    row.evidence.verdict = 0  # no reason is asked for where it is not slower
    assert explain([row], None, None, Progress(pytest.fail)) == [row]
