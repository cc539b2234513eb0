"""Why a row takes longer: what grew most in its program."""

import pytest

from perfgate.config import DEFAULT_FILE, read_rules
from perfgate.hlo import Program
from perfgate.measure.explanation import explain
from perfgate.measure.run import Run
from perfgate.rows import Benchmark, Change, Row, SideRun
from perfgate.stats.evidence import SLOWER, Evidence

RULES = read_rules(DEFAULT_FILE, DEFAULT_FILE.with_name("accepted.toml"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([("loop_trips", 64, 80)], "changed; its loops run more often: 64 -> 80 (1.25 times)"),
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
