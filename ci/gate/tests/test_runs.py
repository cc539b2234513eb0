"""Whole runs of the gate on a small NumPy project: real commits, worktrees and workers, no jax."""

import json
import os
import re

import pytest

from gate_repository import RULES
from perfgate.worker.own_time import can_tell_waits

CACHED = "basics.Cached.time_cached"


@pytest.mark.slow
def test_a_change_of_no_weight_passes_with_every_kind_of_benchmark(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    run = repository.gate("--base", "main", "--seed", "1")
    assert run.code == 0, run.out + run.err
    assert run.out.startswith("# PASSED: nothing slower than ")
    verdicts = run.verdicts()
    assert verdicts.pop("basics.Absent.time_absent") == "skipped"
    timed = [verdicts.pop(name) for name in [*verdicts] if ".time" in name]
    assert len(timed) == 4
    assert {*timed} <= {"not slower", "not shown slower"}
    others = ("Cached.track_note", "mem_table", "peakmem_table", "track_mean")
    assert verdicts == {f"basics.{name}": "same" for name in others}
    assert not list(run.temporary.iterdir())
    assert len(repository.git("worktree", "list").splitlines()) == 1
    assert repository.git("status", "--porcelain").split() == ["M", "smallsum/__init__.py"]


@pytest.mark.slow
def test_a_slowdown_within_one_function_is_placed_by_a_profile_of_both_sides(repository):
    loop = "    for _ in range(200_000):\n        pass\n    return sum(map"
    repository.replace("smallsum/__init__.py", "    return sum(map", loop)
    run = repository.gate("--base", "main", "--bench", "cached")
    assert run.code == 1, run.out + run.err
    first, *others = run.rows[CACHED]["reasons"]
    assert re.match(r"`smallsum/__init__.py:\w+` takes longer: [\d.]+ -> [\d.]+ ms", first)
    assert f": {first}\n" in run.out
    assert all(f"\n- {each}\n" in run.out for each in others)


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


@pytest.fixture
def long(repository):
    """The project with calls that last so long that a slice has one."""
    repository.write("benchmarks/long.py", LONG)
    repository.commit()
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 3")
    return repository


@pytest.mark.slow
@pytest.mark.skipif(not can_tell_waits(), reason="the kernel keeps no figures of who waits")
def test_work_is_hot_and_whatever_waits_is_a_row_of_the_host(long):
    run = long.gate("--base", "main", "--bench", "long")
    assert {name: row["class"] for name, row in run.rows.items()} == {
        "long.Prepared.time_work": "hot",
        "long.time_wait": "host",
    }
    assert run.verdicts()["long.Prepared.time_work"] == "slower", run.out
    assert 2 < run.rows["long.Prepared.time_work"]["ratio"] < 8  # the later numbers are longer ones
    assert run.verdicts()["long.time_wait"] == "not slower", run.out
    assert run.rows["long.time_wait"]["seconds"]["head"] > 0.049


def test_the_base_is_where_the_branch_left_not_where_main_went(repository):
    repository.git("switch", "--quiet", "--create", "topic")
    repository.write("note.txt", "topic")
    repository.commit()
    repository.git("switch", "--quiet", "main")
    repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")
    repository.commit("others' work")
    words = ("--base", "main", "--head", "topic", "--bench", "track_mean", "--no-timing")
    run = repository.gate(*words)
    assert (run.code, run.verdicts()) == (0, {"basics.track_mean": "same"})


@pytest.mark.slow
def test_the_suite_of_head_runs_on_both_sides(repository):
    repository.replace("benchmarks/basics.py", "smallsum.table(100)", "smallsum.table(200)")
    run = repository.gate("--base", "main", "--bench", "track_mean", "--no-timing")
    assert run.code == 0  # its own base would have given another value
    change = run.rows["basics.track_mean"]["changes"][0]
    assert change["base"] == change["head"] == pytest.approx(13233.5)


@pytest.mark.slow
def test_undecided_within_a_budget_of_nothing_never_passes_unless_told_to(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    arguments = ("--base", "main", "--budget", "0", "--bench")
    run = repository.gate(*arguments, CACHED)
    assert (run.code, run.verdicts()[CACHED]) == (3, "undecided")
    assert run.out.startswith("# COULD NOT TELL: 1 undecided; 1 benchmark in all")
    assert repository.gate(*arguments, CACHED, "--undecided", "warn").code == 0

    run = repository.gate(*arguments, "cached|track_note")
    assert run.code == 3  # what else passes makes no difference
    run = repository.gate(*arguments, "cached|track_note", "--undecided", "stop", "--report-only")
    assert run.code == 0
    assert run.out.startswith("# COULD NOT TELL: 1 undecided")
    assert json.loads(run.report.read_text())["exit_code"] == 3
    assert repository.gate("--base", "nowhere", "--report-only").code == 2


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0, 4, 8, 30])
def test_a_tenfold_slowdown_beside_an_untouched_row_never_passes(repository, budget):
    """With little time it is not decided, and what else passed makes no difference."""
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 10")
    words = ("--base", "main", "--bench", "time_total|cached|track", "--budget", str(budget))
    run = repository.gate(*words)
    assert run.code in ((1,) if budget == 30 else (1, 3)), run.out
    assert not run.out.startswith("# PASSED")


ENDLESS = """import time


def time_early():
    pass


def track_late():
    time.sleep(3600)


def time_late():
    time.sleep(3600)
"""


@pytest.mark.slow
def test_what_the_end_of_a_run_cuts_off_is_named(repository):
    repository.write("benchmarks/steps.py", ENDLESS)
    repository.write("gate.toml", RULES.replace("[timing]", "[timing]\nrun_s = 12"))
    repository.commit()
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    run = repository.gate("--base", "main", "--bench", "steps", "--no-timing")
    assert run.code == 3, run.out
    assert run.out.startswith("# COULD NOT TELL: 2 not reached; 3 benchmarks in all")
    assert run.verdicts() == {
        "steps.time_early": "same code",
        "steps.time_late": "not reached",
        "steps.track_late": "not reached",
    }
    assert "- not reached before the run ended; run fewer at once with --bench" in run.out
    run = repository.gate("--base", "main", "--bench", "early|track_late", "--no-timing")
    assert run.code == 0  # what tracks a value may wait for a longer run
    assert run.out.startswith("# PASSED: no regression found, 1 not reached; 2 benchmarks in all")


def test_a_program_that_head_offers_no_more_is_not_compared_unseen(repository):
    offer = (
        "    def program(self, cache):\n"
        "        return 'module @jit_{}' if smallsum.REPEATS == 1 else None\n\n"
    )
    repository.replace("benchmarks/basics.py", "    def time_cached", offer + "    def time_cached")
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    run = repository.gate("--base", "main", "--bench", CACHED, "--no-timing")
    assert run.code == 3, run.out
    assert run.rows[CACHED]["reasons"] == [
        "on head: it offers a compiled program on the base, but none on head"
    ]


CORES = """import os
import pathlib
import subprocess
import sys

SEEN = pathlib.Path(os.environ["SEEN"])


def note(name, *pids):
    cores = [sorted(os.sched_getaffinity(pid)) for pid in (0, *pids)]
    with (SEEN / name).open("a") as file:
        file.write(f"{cores}\\n")


class Usual:
    def setup(self):
        waiting = [sys.executable, "-c", "input()"]
        self.child = subprocess.Popen(waiting, stdin=subprocess.PIPE)

    def teardown(self):
        self.child.kill()
        self.child.wait()

    def time_usual(self):
        note("usual", self.child.pid)

    time_usual.number = 1


def time_spread():
    sum(number * number for number in range(300_000))
    note("spread")
"""


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_samples_and_their_children_share_one_core_unless_a_rule_says_more(
    repository, tmp_path, monkeypatch
):
    repository.write("benchmarks/places.py", CORES)
    rule = "[[cores]]\nbenchmark = 'spread'\ncores = 2\n[timing]"
    repository.replace("gate.toml", "[timing]", rule)
    repository.commit()
    repository.write("smallsum/data.txt", "")
    (tmp_path / "seen").mkdir()
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    run = repository.gate("--base", "main", "--bench", "places")
    assert run.rows["places.Usual.time_usual"]["log_ratios"], run.out
    usual, spread = (
        [json.loads(line) for line in (tmp_path / "seen" / name).read_text().splitlines()]
        for name in ("usual", "spread")
    )
    # Prepared on both cores, but by far most calls are samples, and these are on one.
    most = max(usual, key=usual.count)
    assert len(most[0]) == 1
    assert most[0] == most[1]
    assert usual.count(most) > 0.6 * len(usual)
    row = run.rows["places.time_spread"]
    assert (row["verdict"], row["class"]) == ("not slower", "host")
    assert all(len(cores) > 1 for (cores,) in spread)


@pytest.mark.slow
def test_a_slowdown_fails_and_says_what_is_called_more_often(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 6")
    run = repository.gate("--base", "main", "--bench", "cached|track_mean")
    assert run.code == 1, run.out + run.err
    row = run.rows[CACHED]
    assert row["verdict"] == "slower"
    assert 3 < row["low"] < row["ratio"] < row["high"]
    assert any("more functions are called" in why and "_sum` (+5)" in why for why in row["reasons"])
    assert run.verdicts()["basics.track_mean"] == "same"
    assert run.out.startswith("# FAILED: 1 regressed")
    assert f"--bench '^{CACHED.replace('.', chr(92) + '.')}$'" in run.out


@pytest.mark.slow
def test_a_faster_head_and_committed_refs_are_not_confused(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 6")
    slow = repository.commit("slow")
    repository.replace("smallsum/__init__.py", "REPEATS = 6", "REPEATS = 1")
    fast = repository.commit("fast")
    # not what is asked about
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 50")
    run = repository.gate("--base", slow, "--head", fast, "--bench", CACHED, "--json")
    assert run.code == 0
    assert run.verdicts()[CACHED] == "faster"
    assert json.loads(run.out)["head"] == fast


@pytest.mark.slow
def test_new_and_gone_benchmarks_each_have_a_row(repository):
    repository.replace("benchmarks/basics.py", "def track_mean", "def track_average")
    repository.replace("benchmarks/basics.py", "track_mean.unit", "track_average.unit")
    run = repository.gate("--base", "main", "--bench", "track_", "--no-timing")
    assert run.code == 3
    assert run.verdicts() == {
        "basics.track_average": "new",
        "basics.track_mean": "gone",
        "basics.Cached.track_note": "same code",
    }
    assert "| `basics.track_average` | new | 3,284 units, on head alone |" in run.out
    entry = ["--metric", "missing", "--reason", "renamed", "--expires", "2999-01-31"]
    repository.accept("basics.track_mean", *entry)
    assert repository.gate("--base", "main", "--bench", "track_", "--no-timing").code == 0


@pytest.mark.slow
def test_pages_tests_and_comments_need_no_timing(repository):
    repository.write("README.md", "# Sums\n")
    repository.write("tests/test_sums.py", "import smallsum\n")
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "# Once is enough.\nREPEATS = (1)")
    run = repository.gate("--base", "main", "--bench", "time_", "--budget", "0")
    assert (run.code, run.verdicts()[CACHED]) == (0, "same code"), run.out
    assert "- not timed, since both sides run the same program or code (3): `basics" in run.out
    assert "- Nothing was timed. The run took" in run.out


NEVER_RUN = 'def time_never():\n    raise AssertionError("it ran")\n'
BUDGET = '[[budget]]\nbenchmark = "never"\nmetric = "seconds"\nceiling = 1\nunit = "s"\n'


@pytest.mark.slow
def test_a_change_of_documentation_alone_runs_no_benchmark_unless_you_ask_for_it(repository):
    repository.write("benchmarks/never.py", NEVER_RUN)
    repository.write("gate.toml", (repository.root / "gate.toml").read_text() + BUDGET)
    repository.commit()
    repository.write("docs/page.md", "# A page\n")
    arguments = ["--base", "main", "--bench", "never"]
    run = repository.gate(*arguments)
    assert (run.code, run.rows) == (0, {}), run.out
    assert run.out.startswith("# PASSED: only documentation differs, so nothing was measured; 0 ")
    assert "--time-identical measures them anyway." in run.out
    assert json.loads(run.report.read_text())["budgets"] == []
    run = repository.gate(*arguments, "--time-identical", "--budget", "0")
    assert "AssertionError: it ran" in str(run.rows["never.time_never"]["reasons"])


ONE_PROGRAM = (
    "    timed_is_program = True\n"
    "    def program(self, cache):\n"
    "        return 'module @jit_one'\n\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow_calls", "flags", "expected"),
    [
        (0, [], (0, "same program")),
        (0, ["--time-identical"], (3, "undecided")),
        (2, [], (0, "same program")),  # a burst, which is asked again
        (1_000, [], (3, "undecided")),
    ],
    ids=["same", "timed all the same", "burst", "always slower"],
)
def test_one_program_needs_no_timing_unless_its_first_calls_differ(
    repository, slow_calls, flags, expected
):
    # It mostly sleeps, so its first calls are alike on a busy machine, too.
    waiting = "import time\n\n\ndef total(values):\n    time.sleep(0.1)"
    repository.replace("smallsum/__init__.py", "def total(values):", waiting)
    repository.replace(
        "benchmarks/basics.py", "    def time_cached", ONE_PROGRAM + "    def time_cached"
    )
    repository.commit()
    pauses = f"import itertools\nimport time\n\nPAUSES = iter([0.12] * {slow_calls})\n\n\n"
    slow = (
        "def total(values):\n"
        "    for pause in itertools.islice(PAUSES, 1):\n"
        "        time.sleep(pause)"
    )
    repository.replace("smallsum/__init__.py", "def total(values):", pauses + slow)
    run = repository.gate("--base", "main", "--bench", CACHED, "--budget", "0", *flags)
    assert (run.code, run.verdicts()[CACHED]) == expected, run.out + run.err


COPYING = """    def program(self, cache):
        copies = [f"%copy.{each} = f32[8] copy(%x)" for each in range(smallsum.COPIES)]
        return "\\n".join(["HloModule jit_f", *copies])

"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], (0, "not slower")),
        (["--budget", "0"], (3, "undecided")),
        (["--no-timing"], (1, "worse")),
    ],
    ids=["timed", "no time", "counts alone"],
)
def test_an_added_copy_is_no_regression_until_its_time_says_so(repository, flags, expected):
    repository.replace(
        "benchmarks/basics.py", "    def time_cached", COPYING + "    def time_cached"
    )
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 1\nCOPIES = 30")
    repository.commit()
    repository.replace("smallsum/__init__.py", "COPIES = 30", "COPIES = 45")
    run = repository.gate("--base", "main", "--bench", CACHED, *flags)
    assert (run.code, run.verdicts()[CACHED]) == expected, run.out + run.err
    said = "buffers are copied that were not copied before: 30 -> 45"
    assert (said in run.out) is (run.code > 0)


@pytest.mark.slow
def test_a_repository_without_rules_is_held_to_ours_but_not_to_our_budgets(repository):
    (repository.root / "gate.toml").unlink()
    repository.replace("smallsum/__init__.py", "range(size)", "range(2 * size)")
    run = repository.gate("--base", "main", "--no-timing", "--bench", "[.]mem_table")
    assert (run.code, run.verdicts()["basics.mem_table"]) == (1, "worse"), run.out
    assert "Budgets" not in run.out


@pytest.mark.slow
def test_tracked_seconds_that_grew_are_worse_and_same_code_is_not_compared(repository):
    waits = "import smallsum\n\n\ndef track_wait_s():\n    return 4 * smallsum.REPEATS\n"
    repository.write("benchmarks/waits.py", waits)
    repository.commit()
    repository.write("smallsum/other.py", "")
    arguments = ("--base", "main", "--bench", "track_wait_s")
    run = repository.gate(*arguments)
    assert (run.code, run.verdicts()["waits.track_wait_s"]) == (0, "same code"), run.out
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    run = repository.gate(*arguments)
    assert (run.code, run.verdicts()["waits.track_wait_s"]) == (1, "worse"), run.out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--base", "nowhere"], "'nowhere' is not a commit"),
        (["--base", "main", "--suite-config", "absent.json"], "there is no absent.json"),
        (["--base", "main", "--bench", "nothing_like_it"], "matches no benchmark"),
        (["--base", "main", "--rules", "absent.toml"], "there is no absent.toml"),
        (["--base", "main", "--python", "nowhere/python"], "'nowhere/python' is not a program"),
        (["--base", "main", "--shard", "3/2"], "--shard"),
        (["--base", "main", "--bench", "track_mean", "--shard", "2/2"], "holds no benchmark"),
        (["--base", "main", "--pytest-benchmark", "nowhere"], "but got nowhere"),
    ],
)
def test_wrong_usage_gets_one_sentence_and_exit_code_2(repository, arguments, expected):
    repository.write("smallsum/other.py", "")
    run = repository.gate(*arguments)
    assert run.code == 2
    assert expected in run.err
    sentences = [line for line in run.err.splitlines() if not line.startswith("listing the")]
    assert len(sentences) == 1
    assert not list(run.temporary.iterdir())
