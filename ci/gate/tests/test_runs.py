"""Whole runs of the gate on a small NumPy project: real commits, worktrees and workers, no jax."""

import json
import os

import pytest

from gate_repository import RULES
from perfgate.worker.own_time import can_tell_waits

pytestmark = pytest.mark.slow
CACHED = "basics.Cached.time_cached"
INIT = "smallsum/__init__.py"
BASICS = "benchmarks/basics.py"


def test_a_change_of_no_weight_passes_with_every_kind_of_benchmark(repository):
    repository.replace(INIT, "REPEATS = 1", "REPEATS = 2 - 1")
    run = repository.gate(0, "--seed", "1")
    assert run.out.startswith("# PASSED: nothing slower than ")
    verdicts = run.verdicts()
    assert verdicts.pop("basics.Absent.time_absent") == "skipped"
    timed = [verdicts.pop(name) for name in [*verdicts] if ".time" in name]
    assert len(timed) == 4
    assert {*timed} <= {"not slower", "not shown slower"}
    others = ("Cached.track_note", "mem_table", "peakmem_table", "track_mean")
    assert verdicts == {f"basics.{name}": "same" for name in others}
    assert len(repository.git("worktree", "list").splitlines()) == 1
    assert repository.git("status", "--porcelain").split() == ["M", INIT]


LONG = """import time

from smallsum import REPEATS


class Prepared:
    def setup(self):
        time.sleep(0.05)

    def time_work(self):
        sum(range(2_000_000 * REPEATS))  # nothing that takes long to trace

    time_work.number = 1


def time_wait():
    time.sleep(0.05)
"""


def test_the_base_is_where_the_branch_left_and_runs_heads_suite(repository):
    repository.git("switch", "--quiet", "--create", "topic")
    repository.replace(BASICS, "smallsum.table(100)", "smallsum.table(200)")
    topic = repository.commit()
    repository.git("switch", "--quiet", "main")
    repository.replace(INIT, "1.0 * number", "2.0 * number")
    repository.commit()  # others' work
    repository.replace(INIT, "2.0 * number", "3.0 * number")  # not what is asked about
    run = repository.count(0, "track_mean", "--head", "topic", "--json")
    assert json.loads(run.out)["head"] == topic
    change = run.rows["basics.track_mean"]["changes"][0]
    # its own suite, or main's code, would have given another value
    assert change["base"] == change["head"] == pytest.approx(13233.5)


def test_a_tenfold_slowdown_within_a_budget_of_nothing_never_passes_unless_told_to(repository):
    repository.replace(INIT, "REPEATS = 1", "REPEATS = 10")
    # what else passes makes no difference
    arguments = ("--budget", "0", "--bench", "cached|track_note")
    run = repository.gate(3, *arguments)
    assert run.verdicts()[CACHED] == "undecided"
    assert run.out.startswith("# COULD NOT TELL: 1 undecided; 2 benchmarks in all")
    repository.gate(0, *arguments, "--undecided", "warn")
    run = repository.gate(0, *arguments, "--report-only")
    assert json.loads(run.report.read_text())["exit_code"] == 3
    repository.gate(2, "--report-only", base="nowhere")


ENDLESS = "import time\n\n\ndef time_early():\n    pass\n" + "".join(
    f"\n\ndef {name}():\n    time.sleep(3600)\n" for name in ("track_late", "time_late")
)


def test_what_the_end_of_a_run_cuts_off_is_named(repository):
    rules = RULES.replace("[timing]", "[timing]\nrun_s = 12")
    repository.commit({"benchmarks/steps.py": ENDLESS, "gate.toml": rules})
    repository.replace(INIT, "REPEATS = 1", "REPEATS = 2 - 1")
    run = repository.count(3, "steps")
    assert run.out.startswith("# COULD NOT TELL: 2 not reached; 3 benchmarks in all")
    assert run.verdicts() == {
        "steps.time_early": "same code",
        "steps.time_late": "not reached",
        "steps.track_late": "not reached",
    }
    assert "- not reached before the run ended; run fewer at once with --bench" in run.out
    run = repository.count(0, "early|track_late")  # what tracks a value may wait for a longer run
    assert run.out.startswith("# PASSED: no regression found, 1 not reached; 2 benchmarks in all")


def offer(repository, program):
    """Let the benchmark CACHED offer a program: the lines of its body."""
    offered = f"    def program(self, cache):\n        {program}\n\n    def time_cached"
    repository.replace(BASICS, "    def time_cached", offered)


def test_a_program_that_head_offers_no_more_is_not_compared_unseen(repository):
    offer(repository, "return 'module @jit_{}' if smallsum.REPEATS == 1 else None")
    repository.replace(INIT, "REPEATS = 1", "REPEATS = 2")
    run = repository.count(3, CACHED)
    (reason,) = run.rows[CACHED]["reasons"]
    assert reason == "on head: it offers a compiled program on the base, but none on head"


@pytest.mark.parametrize(
    ("slow_calls", "flags", "code", "verdict"),
    [
        (0, ["--time-identical"], 3, "undecided"),
        (2, [], 0, "same program"),  # a burst, which is asked again
        (1_000, [], 3, "undecided"),
    ],
)
def test_one_program_needs_no_timing_unless_its_first_calls_differ(
    repository, slow_calls, flags, code, verdict
):
    # It mostly sleeps, so its first calls are alike on a busy machine, too.
    waiting = "import time\n\n\ndef total(values):\n    time.sleep(0.1)"
    repository.replace(INIT, "def total(values):", waiting)
    offer(repository, "return 'module @jit_one'\n\n    timed_is_program = True")
    repository.commit()
    pauses = f"import itertools\nimport time\n\nPAUSES = iter([0.12] * {slow_calls})\n\n\n"
    slow = (
        "def total(values):\n"
        "    for pause in itertools.islice(PAUSES, 1):\n"
        "        time.sleep(pause)"
    )
    repository.replace(INIT, "def total(values):", pauses + slow)
    run = repository.gate(code, "--bench", CACHED, "--budget", "0", *flags)
    assert run.verdicts()[CACHED] == verdict


CORES = """import os
import pathlib
import subprocess
import sys


def note(name, pid=0):
    with pathlib.Path(os.environ["SEEN"], name).open("a") as file:
        file.write(f"{sorted(os.sched_getaffinity(pid))}\\n")


class Usual:
    def setup(self):
        waiting = [sys.executable, "-c", "input()"]
        self.child = subprocess.Popen(waiting, stdin=subprocess.PIPE)

    def teardown(self):
        self.child.communicate()

    def time_usual(self):
        note("usual", self.child.pid)

    time_usual.number = 1


def time_spread():
    sum(number * number for number in range(300_000))
    note("spread")
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_samples_and_their_children_share_one_core_unless_a_rule_says_more(
    repository, tmp_path, monkeypatch
):
    rules = f"{RULES}[[cores]]\nbenchmark = 'spread'\ncores = 2\n"
    repository.commit({"benchmarks/places.py": CORES, "gate.toml": rules})
    repository.write("smallsum/data.txt", "")
    monkeypatch.setenv("SEEN", str(tmp_path))
    run = repository.gate(0, "--bench", "places")
    assert run.rows["places.Usual.time_usual"]["log_ratios"], run.out
    usual, spread = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("usual", "spread")
    )
    # Prepared on both cores, but by far most calls are samples, and these are on one.
    most = max(usual, key=usual.count)
    assert len(most) == 1
    assert usual.count(most) > 0.6 * len(usual)
    row = run.rows["places.time_spread"]
    assert (row["verdict"], row["class"]) == ("not slower", "host")
    assert all(len(cores) > 1 for cores in spread)


def test_a_slowdown_fails_with_its_ratio_and_cause_and_what_waits_is_a_row_of_the_host(repository):
    repository.commit({"benchmarks/long.py": LONG})
    repository.write(".asv/gate/gate.json", "{")  # a killed run may have left anything
    repository.replace(INIT, "REPEATS = 1", "REPEATS = 6")
    run = repository.gate(1, "--bench", "cached|track_mean|long")
    row = run.rows[CACHED]
    assert row["verdict"] == "slower"
    assert 3 < row["low"] < row["ratio"] < row["high"]
    assert any("more functions are called" in why and "_sum` (+5)" in why for why in row["reasons"])
    assert run.verdicts()["basics.track_mean"] == "same"
    assert run.out.startswith("# FAILED: 2 regressed")
    assert f"--bench '^{CACHED.replace('.', chr(92) + '.')}$'" in run.out
    # Calls that last so long that a slice has one.
    work, wait = (run.rows[f"long.{name}"] for name in ("Prepared.time_work", "time_wait"))
    assert (work["verdict"], wait["verdict"]) == ("slower", "not slower"), run.out
    assert 4 < work["ratio"] < 16  # the later numbers are longer ones
    assert wait["seconds"]["head"] > 0.049
    if can_tell_waits():
        assert (work["class"], wait["class"]) == ("hot", "host")


def test_documentation_runs_nothing_and_comments_need_no_timing(repository):
    budget = '[[budget]]\nbenchmark = "never"\nmetric = "seconds"\nceiling = 1\nunit = "s"\n'
    repository.commit({"gate.toml": RULES + budget})
    repository.write("docs/page.md", "# A page\n")
    run = repository.gate(0)
    assert run.rows == {}
    assert run.out.startswith("# PASSED: only documentation or comments differ, so nothing was ")
    assert json.loads(run.report.read_text())["budgets"] == []
    repository.write("gate.toml", RULES)
    repository.write("tests/test_sums.py", "import smallsum\n")
    repository.replace(INIT, "REPEATS = 1", "# Once is enough.\nREPEATS = (1)")
    run = repository.gate(0, "--budget", "0", "--bench", "basics.*time_")
    assert run.verdicts()[CACHED] == "same code"
    assert "- not timed, since both sides run the same program or code (3): `basics" in run.out
    assert "- Nothing was timed. The run took" in run.out


NEW_SUITE = """
def time_sum():
    sum(range(100))

def track_fails():
    import smallsum.unused

    1 / 0
"""


def test_what_a_change_does_to_its_own_measuring_and_what_nothing_reached_is_shown(repository):
    repository.write("benchmarks/inputs.py", NEW_SUITE)
    repository.write("smallsum/unused.py", "VALUE = 1\n")
    repository.write("smallsum/note.txt", "not a module\n")
    repository.replace(INIT, "REPEATS = 1", "REPEATS = 1 + 0")
    repository.replace(BASICS, "[1_000, 20_000]", "[1_000, 2_000]")
    repository.replace("gate.toml", "fail_ratio = 1.3", "fail_ratio = 2.1")
    repository.write("accepted.toml", "# Nothing yet.\n")
    run = repository.count(3, "note|fails|time_sum|Cached")
    found = json.loads(run.report.read_text())["coverage"]
    assert found["not_imported"] == ["smallsum/unused.py"]
    known = "none of the benchmarks whose imports are known (3 of 4) imported these changed files"
    assert f"- {known} (1): `smallsum/unused.py`." in run.out
    names = ["benchmarks/basics.py", "benchmarks/inputs.py", "gate.toml", "accepted.toml"]
    assert found["measures"] == names
    assert "- this change also alters how it is measured (4): `benchmarks/basics.py`," in run.out


def test_a_shard_runs_its_part_and_budgets_of_others_are_theirs(repository):
    values = "[[budget]]\nbenchmark = 'mean'\nmetric = 'track'\nceiling = 1e9\nunit = 'units'\n"
    over = "basics.Total.time_total(20000)"  # which is in the other shard
    ratio = f"[[budget]]\nbenchmark = 'cached'\nmetric = 'ratio'\nover = '{over}'\nfloor = 0\n"
    repository.write("gate.toml", f"{RULES}{values}{ratio}unit = 'times'\n")
    repository.write("smallsum/unused.py", "")
    names, budgets = [], []
    for shard in ("1/2", "2/2"):
        run = repository.gate(0, "--bench", "track|time_(c|t)", "--shard", shard)
        names.append({*run.rows})
        budgets += [each["word"] for each in json.loads(run.report.read_text())["budgets"]]
    others = ("Cached.time_cached", "Cached.track_note", "Total.time_total(1000)", "track_mean")
    assert names[0] | names[1] == {over, *(f"basics.{name}" for name in others)}
    assert names[0] & names[1] == {over}  # a ratio needs both of its rows
    assert budgets == ["kept", "kept"]
