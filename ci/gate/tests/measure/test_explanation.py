"""Why a row takes longer: its program, functions that are called, packages that are imported."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from perfgate.config import DEFAULT_FILE, read_rules
from perfgate.hlo import Program
from perfgate.measure.explanation import _added_calls, _slower_functions, explain
from perfgate.measure.run import Run
from perfgate.process.protocol import Calls
from perfgate.rows import Benchmark, Change, Row, SideRun
from perfgate.stats.evidence import SLOWER, Evidence
from perfgate.worker import profiling

ROOT = Path(__file__).resolve().parents[4]
HERE = "ci/gate/tests/measure/test_explanation.py"
RULES = read_rules(DEFAULT_FILE, DEFAULT_FILE.with_name("accepted.toml"))


def _leaf(number):
    return abs(int(number))


def _busy():
    return sum(number * number for number in range(200_000))


def _caller():
    _busy()
    return [_leaf(number) for number in list({"1": 1, "2": 2, "3": 3}.keys())]


def test_a_profile_counts_calls_and_charges_each_function_its_own_seconds(monkeypatch):
    def sample(benchmark, calls, clock):
        clock.timer()
        benchmark()
        clock.timer()

    monkeypatch.setattr(profiling, "sampling", SimpleNamespace(sample=sample))
    found = profiling.profiled(_caller, ROOT)
    assert found.counts[f"{HERE}:_caller"] == 1
    assert found.counts[f"{HERE}:_leaf"] == 3
    assert found.counts["builtins.abs"] == 3
    assert found.counts["dict.keys"] == 1
    order = list(found.counts)
    assert order.index(f"{HERE}:_caller") < order.index(f"{HERE}:_busy")
    assert found.seconds[f"{HERE}:_caller"] < 0.5 * sum(found.seconds.values())
    assert set(found.seconds) >= {f"{HERE}:_busy", f"{HERE}:_leaf"}


def _profiles(rng, slowdown=1.0):
    """Return eight rounds of 20 functions in noise of 15%, with 2% outliers. 0 is slowed."""
    rounds = []
    for _ in range(8):
        seconds = np.geomspace(1.0, 0.01, 20) * rng.lognormal(0.0, 0.15, 20)
        seconds *= np.where(rng.random(20) < 0.02, 3.0, 1.0)
        seconds[0] *= slowdown
        rounds.append(Calls({}, {f"function {n}": float(each) for n, each in enumerate(seconds)}))
    return rounds


def test_what_scatter_explains_is_no_cause():
    rng = np.random.default_rng(0)
    alike = [
        _slower_functions({"base": _profiles(rng), "head": _profiles(rng)}) for _ in range(400)
    ]
    assert sum(map(bool, alike)) < 0.02 * 400
    slower = [
        _slower_functions({"base": _profiles(rng), "head": _profiles(rng, 2.0)}) for _ in range(200)
    ]
    assert sum("function 0" in str(each) for each in slower) > 0.95 * 200


def test_a_function_that_is_called_more_often_by_chance_is_no_cause():
    rounds = {
        "base": [Calls({"work": 3, "sometimes": number}, {}) for number in (0, 2)],
        "head": [Calls({"work": 3, "sometimes": number, "new": 7}, {}) for number in (1, 5)],
    }
    (cause,) = _added_calls(rounds, ROOT)
    assert cause == "more functions are called: 5 -> 11; above all `new` (+7)"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([("loop_trips", 64, 80)], "changed; its loops run more often: 64 -> 80 (1.25 times)"),
        ([("fusions", 80, 64)], "its program changed"),
        ([("compile_s", 1.02, 1.13)], "its program changed"),
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
    numbers = {each.metric: each.head for each in changes if each.metric != "compile_s"}
    row = Row(
        Benchmark("suite.time_it", "suite.time_it", None, "time", 60.0),
        base=SideRun(program=Program("a", {})),
        head=SideRun(program=Program("b", numbers)),
        changes=tuple(changes),
        evidence=Evidence(verdict=SLOWER),
    )
    run = Run(None, RULES, None)
    explain(run, [row])
    (said,) = run.rows[row.name].causes
    assert said.endswith(reason)
    row.evidence.verdict = 0  # no reason is asked for where it is not slower
    explain(run := Run(None, RULES, None), [row])
    assert not run.rows
