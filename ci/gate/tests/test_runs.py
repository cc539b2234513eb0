"""Whole runs of the gate on a small NumPy project: real commits, worktrees and workers, no jax."""

import json
import os
import re
from collections import Counter
from xml.etree import ElementTree as ET

import pytest

from gate_repository import make_repository

CACHED = "basics.Cached.time_cached"


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path)


@pytest.fixture(params=[False, True], ids=["uncounted", "counted"])
def counted(request, repository):
    """Whether instructions are counted: what asks for this runs both ways on any machine."""
    repository.counted = request.param
    return request.param


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
def test_a_change_of_no_weight_passes_with_every_kind_of_benchmark(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    run = repository.gate("--base", "main", "--seed", "1")
    assert run.code == 0, run.out + run.err
    assert run.out.startswith("# PASSED: no regression found; 9 benchmarks in all")
    assert run.verdicts() == {
        "basics.Absent.time_absent": "skipped",
        "basics.Cached.time_cached": "not slower",
        "basics.Cached.track_note": "same",
        "basics.Total.time_total(1000)": "not slower",
        "basics.Total.time_total(20000)": "not slower",
        "basics.mem_table": "same",
        "basics.peakmem_table": "same",
        "basics.timeraw_import": "not slower",
        "basics.track_mean": "same",
    }
    assert not list(run.temporary.iterdir())
    assert len(repository.git("worktree", "list").splitlines()) == 1
    assert repository.git("status", "--porcelain").split() == ["M", "smallsum/__init__.py"]


@pytest.mark.slow
def test_a_slowdown_within_one_function_is_placed_by_a_trace_of_both_sides(repository):
    loop = "    for _ in range(200_000):\n        pass\n    return sum(map"
    repository.replace("smallsum/__init__.py", "    return sum(map", loop)
    run = repository.gate("--base", "main", "--bench", "cached")
    assert run.code == 1, run.out + run.err
    cause = (
        r"`smallsum/__init__.py:\d+: (pass|for _ in range\(200_000\):)`, which the base does not"
    )
    first, *others = run.rows[CACHED]["reasons"]
    assert re.match(cause, first)
    assert f": {first}\n" in run.out
    assert all(f"\n- {each}\n" in run.out for each in others)


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
def test_a_planted_slowdown_fails_and_the_report_says_how_to_repeat_it(repository):
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
    # our own file
    junit = ET.fromstring((run.report.parent / "junit.xml").read_text())  # noqa: S314
    assert junit.get("failures") == "1"
    assert len(junit.findall("testcase")) == 2


LONG = """import contextlib
import os
import pathlib
import subprocess
import sys
import threading
import time

from smallsum import REPEATS


def work(times=REPEATS):
    sum(number * number for number in range(300_000 * times))


class Prepared:
    def setup(self):
        time.sleep(0.05)

    def time_work(self):
        work()

    time_work.number = 1


def timeraw_work():
    return "sum(number * number for number in range(300_000))"


def time_wait():
    time.sleep(0.05)


def time_thread():
    thread = threading.Thread(target=time.sleep, args=(0.02,))
    thread.start()
    thread.join()


def time_child():
    subprocess.run([sys.executable, "-S", "-c", "sum(n * n for n in range(300_000))"], check=True)


def time_collapse():
    sum(range(20_000 if REPEATS == 1 else 1_000_000))


def time_neighbours():
    # Each that runs on the same core is in the way of the others, as if it took their cache.
    core, here = str(os.sched_getaffinity(0)), pathlib.Path(os.environ["CORES"])
    mine = here / str(os.getpid())
    mine.write_text(core)
    for _ in range(20):
        with contextlib.suppress(FileNotFoundError):
            for _ in [each for each in here.iterdir() if each.read_text() == core]:
                sum(range(100_000))
    mine.unlink()
"""


@pytest.fixture
def long(repository, tmp_path, monkeypatch):
    """The project with calls that last long enough to be taken on both sides at once."""
    repository.write("benchmarks/long.py", LONG)
    repository.commit()
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 3")
    (tmp_path / "cores").mkdir()
    monkeypatch.setenv("CORES", str(tmp_path / "cores"))
    return repository


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_long_work_runs_on_both_sides_at_once_and_whatever_waits_in_turn(long):
    run = long.gate("--base", "main", "--bench", "long")
    assert {name: row["shared"] for name, row in run.rows.items()} == {
        "long.Prepared.time_work": True,
        "long.time_child": False,
        "long.time_collapse": False,
        "long.time_neighbours": False,
        "long.time_thread": False,
        "long.time_wait": False,
        "long.timeraw_work": True,
    }
    assert run.verdicts()["long.Prepared.time_work"] == "slower", run.out
    assert 2 < run.rows["long.Prepared.time_work"]["ratio"] < 8  # the later numbers are longer ones
    assert {run.verdicts()[name] for name in ("long.time_wait", "long.timeraw_work")} == {
        "not slower"
    }, run.out
    assert run.rows["long.time_wait"]["seconds"]["head"] > 0.049


@pytest.mark.slow
def test_a_collapse_takes_one_turn_a_pair(repository, tmp_path, monkeypatch):
    repository.write(
        "benchmarks/collapse.py",
        "import os\nimport pathlib\n\nfrom smallsum import REPEATS\n\n\n"
        "def time_collapse():\n"
        "    if REPEATS > 1:\n"
        "        with pathlib.Path(os.environ['SEEN']).open('a') as file:\n"
        "            file.write(f'{os.getpid()}\\n')\n"
        "    sum(range(10_000 * REPEATS**4))\n",
    )
    repository.replace("gate.toml", "pair_s = 0.1", "pair_s = 0.03")
    repository.commit()
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 5")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.txt"))
    run = repository.gate("--base", "main", "--bench", "time_collapse")
    row = run.rows["collapse.time_collapse"]
    assert (run.code, row["verdict"], row["shared"]) == (1, "slower", False), run.out
    calls = Counter((tmp_path / "seen.txt").read_text().split())
    pairs = len(row["log_ratios"]) + len(row["confirming_log_ratios"])
    # In each of them its worker warms it up, tries it alone and then takes the turn.
    assert list(calls.values()).count(3) >= pairs - 1, calls


@pytest.mark.slow
def test_on_one_core_long_work_runs_in_turn(long):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        run = long.gate("--base", "main", "--bench", "time_work")
    finally:
        os.sched_setaffinity(0, cores)
    row = run.rows["long.Prepared.time_work"]
    assert (row["shared"], row["verdict"]) == (False, "slower"), run.out


ASKED = '[[metric]]\nname = "cpu_instructions"\nworse = "more"\ntolerance = 0.03\nclock = true\n'


@pytest.mark.slow
@pytest.mark.parametrize("asked", [False, True], ids=["by default", "asked for"])
def test_instructions_decide_only_where_a_repository_asks_for_it(repository, counted, asked):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 6")
    if asked:
        repository.write("gate.toml", (repository.root / "gate.toml").read_text() + ASKED)
    run = repository.gate("--base", "main", "--bench", CACHED, "--no-timing")
    decides = asked and counted
    assert (run.code, run.verdicts()[CACHED]) == ((1, "worse") if decides else (0, "not timed")), (
        run.out
    )
    assert ("the processor executes more instructions" in run.out) == decides
    assert ("The processor's instructions can't be counted here." in run.out) != counted


@pytest.mark.slow
def test_instructions_are_those_of_the_call_and_not_of_its_setup(repository):
    repository.counted = True
    repository.replace(
        "smallsum/__init__.py",
        "    return [",
        "    for _ in range(10_000):\n        total([])\n    return [",
    )
    repository.write("gate.toml", (repository.root / "gate.toml").read_text() + ASKED)
    run = repository.gate("--base", "main", "--bench", "time_total", "--no-timing")
    assert run.code == 0, run.out
    for row in run.rows.values():
        counts = {each["metric"]: each for each in row["changes"]}["cpu_instructions"]
        assert counts["base"] == counts["head"] > 0


@pytest.mark.slow
def test_an_accepted_slowdown_passes_with_its_reason_until_it_expires(repository, counted):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 6")
    accept = ["accept", CACHED, "--reason", "exact sums", "--ratio", "40"]
    assert repository.gate(*accept, "--expires", "2999-01-31").code == 0
    run = repository.gate("--base", "main", "--bench", CACHED)
    assert run.code == 0, run.out + run.err
    assert "exact sums" in run.out
    assert run.verdicts()[CACHED] == "slower, accepted"

    repository.replace("accepted.toml", "2999-01-31", "2020-01-31")
    run = repository.gate("--base", "main", "--bench", CACHED)
    assert run.code == 1
    assert "expired on 2020-01-31: exact sums" in run.out


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
def test_a_faster_head_and_committed_refs_are_not_confused(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 6")
    slow = repository.commit("slow")
    repository.replace("smallsum/__init__.py", "REPEATS = 6", "REPEATS = 1")
    fast = repository.commit("fast")
    repository.replace(
        "smallsum/__init__.py", "REPEATS = 1", "REPEATS = 50"
    )  # not what is asked about
    run = repository.gate("--base", slow, "--head", fast, "--bench", CACHED, "--json")
    assert run.code == 0
    assert run.verdicts()[CACHED] == "faster"
    assert json.loads(run.out)["head"] == fast


def test_the_base_is_where_the_branch_left_not_where_main_went(repository):
    repository.git("switch", "--quiet", "--create", "topic")
    repository.write("note.txt", "topic")
    repository.commit()
    repository.git("switch", "--quiet", "main")
    repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")
    repository.commit("others' work")
    run = repository.gate(
        "--base", "main", "--head", "topic", "--bench", "track_mean", "--no-timing"
    )
    assert run.code == 0
    assert run.verdicts()["basics.track_mean"] == "same"


@pytest.mark.slow
def test_a_worse_value_is_confirmed_in_fresh_processes_and_fails(repository):
    repository.replace("smallsum/__init__.py", "1.0 * number", "2.0 * number")
    run = repository.gate("--base", "main", "--bench", "track_mean|mem_table", "--no-timing")
    assert run.code == 1
    assert run.verdicts()["basics.track_mean"] == "worse"
    assert "its tracked value got worse" in run.out


@pytest.mark.slow
def test_new_and_gone_benchmarks_each_have_a_row(repository):
    repository.replace("benchmarks/basics.py", "def track_mean", "def track_average")
    repository.replace("benchmarks/basics.py", "track_mean.unit", "track_average.unit")
    run = repository.gate("--base", "main", "--bench", "track_", "--no-timing")
    assert run.code == 3
    assert run.verdicts() == {
        "basics.track_average": "new",
        "basics.track_mean": "gone",
        "basics.Cached.track_note": "same",
    }
    accept = [
        "accept",
        "basics.track_mean",
        "--metric",
        "missing",
        "--reason",
        "renamed",
        "--expires",
        "2999-01-31",
    ]
    assert repository.gate(*accept).code == 0
    assert repository.gate("--base", "main", "--bench", "track_", "--no-timing").code == 0


@pytest.mark.slow
def test_everything_is_new_where_the_base_has_no_suite_yet(repository):
    repository.git("mv", "benchmarks", "aside")
    repository.commit("no suite")
    repository.git("mv", "aside", "benchmarks")
    repository.commit("a suite")
    run = repository.gate("--base", "HEAD~1", "--head", "HEAD", "--bench", "track_mean|time_cached")
    assert run.code == 0, run.out + run.err
    assert set(run.verdicts().values()) == {"new"}


@pytest.mark.slow
def test_benchmarks_of_a_broken_base_suite_do_not_pass_as_new(repository):
    repository.write("benchmarks/__init__.py", "raise OSError('broken')\n")
    repository.commit()
    repository.write("benchmarks/__init__.py", "")
    run = repository.gate("--base", "main", "--bench", "track_mean", "--no-timing")
    assert (run.code, run.verdicts()["basics.track_mean"]) == (0, "same")


@pytest.mark.slow
def test_the_suite_of_head_runs_on_both_sides(repository):
    repository.replace("benchmarks/basics.py", "smallsum.table(100)", "smallsum.table(200)")
    run = repository.gate("--base", "main", "--bench", "track_mean", "--no-timing")
    assert run.code == 0  # its own base would have given another value
    change = run.rows["basics.track_mean"]["changes"][0]
    assert change["base"] == change["head"] == pytest.approx(13233.5)


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
def test_pages_tests_and_comments_need_no_timing(repository):
    repository.write("README.md", "# Sums\n")
    repository.write("tests/test_sums.py", "import smallsum\n")
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "# Once is enough.\nREPEATS = (1)")
    run = repository.gate("--base", "main", "--bench", "time", "--budget", "0")
    assert (run.code, run.verdicts()[CACHED]) == (0, "same code"), run.out
    assert run.verdicts()["basics.timeraw_import"] == "same code"
    run = repository.gate("--base", "main", "--bench", CACHED, "--budget", "0", "--time-identical")
    assert (run.code, run.verdicts()[CACHED]) == (3, "undecided")


NEVER_RUN = """
def time_never():
    raise AssertionError("it ran")


def track_never():
    raise AssertionError("it ran")
"""
BUDGET = """
[[budget]]
benchmark = "never"
metric = "seconds"
ceiling = 1
unit = "s"
"""


@pytest.fixture
def unrunnable(repository):
    """A repository in which nobody can run a benchmark, and where head changes a page."""
    repository.write("benchmarks/never.py", NEVER_RUN)
    with (repository.root / "gate.toml").open("a") as rules:
        rules.write(BUDGET)
    repository.commit()
    repository.write("docs/page.md", "# A page\n")
    return repository


@pytest.mark.slow
def test_a_change_of_documentation_alone_runs_no_benchmark_and_says_so(unrunnable):
    run = unrunnable.gate("--base", "main", "--bench", "never")
    assert run.code == 0, run.out
    assert run.verdicts() == {"never.time_never": "same code", "never.track_never": "same code"}
    reasons = [row["reasons"] for row in run.rows.values()]
    assert reasons == [["only documentation differs, so it was not run"]] * 2
    assert run.out.startswith("# PASSED: only documentation differs, so nothing was measured; 2 ")
    assert "- not run, since only documentation differs (2): `never.time_never`" in run.out
    assert json.loads(run.report.read_text())["budgets"] == []


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["--time-identical", "smallsum/__init__.py", "gate.toml"])
def test_whatever_is_more_than_documentation_runs_them(unrunnable, changed):
    arguments = ["--base", "main", "--bench", "never", "--budget", "0"]
    if changed.startswith("--"):
        arguments.append(changed)
    else:
        with (unrunnable.root / changed).open("a") as file:
            file.write("# a comment\n")
    run = unrunnable.gate(*arguments)
    assert "AssertionError: it ran" in str(run.rows["never.time_never"]["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize("file", ["smallsum/__init__.py", "smallsum/data.txt", "data.txt"])
def test_whatever_code_may_read_needs_timing(repository, file):
    repository.write(
        file, (repository.root / file).read_text() + "EXTRA = 1\n" if file.endswith("__.py") else ""
    )
    run = repository.gate("--base", "main", "--bench", CACHED, "--budget", "0")
    assert (run.code, run.verdicts()[CACHED]) == (3, "undecided")


@pytest.mark.slow
def test_undecided_within_a_budget_of_nothing_never_passes_unless_told_to(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    arguments = ("--base", "main", "--budget", "0", "--bench")
    run = repository.gate(*arguments, CACHED)
    assert (run.code, run.verdicts()[CACHED]) == (3, "undecided")
    assert run.out.startswith("# COULD NOT TELL: 1 undecided; 1 benchmark in all")
    assert repository.gate(*arguments, CACHED, "--undecided", "warn").code == 0

    run = repository.gate(*arguments, "cached|track_note")
    assert run.code == 0
    assert run.out.startswith("# PASSED: no regression found, 1 undecided; 2 benchmarks in all")
    assert f"with --budget (1): `{CACHED}`." in run.out
    run = repository.gate(*arguments, "cached|track_note", "--undecided", "stop", "--report-only")
    assert run.code == 0
    assert run.out.startswith("# COULD NOT TELL: 1 undecided")
    assert json.loads(run.report.read_text())["exit_code"] == 3
    assert repository.gate("--base", "nowhere", "--report-only").code == 2


ONE_PROGRAM = (
    "    timed_is_program = True\n"
    "    def program(self, cache):\n"
    "        return 'module @jit_one'\n\n"
)


def let_it_wait(repository):
    """Commit a total that mostly sleeps: its first calls are alike on a busy machine, too."""
    waiting = "import time\n\n\ndef total(values):\n    time.sleep(0.1)"
    repository.replace("smallsum/__init__.py", "def total(values):", waiting)
    repository.commit()


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
def test_a_program_that_is_the_same_on_both_sides_needs_no_timing(repository):
    let_it_wait(repository)
    repository.replace(
        "benchmarks/basics.py", "    def time_cached", ONE_PROGRAM + "    def time_cached"
    )
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    run = repository.gate("--base", "main", "--bench", CACHED, "--budget", "0")
    assert (run.code, run.verdicts()[CACHED]) == (0, "same program")
    run = repository.gate("--base", "main", "--bench", CACHED, "--budget", "0", "--no-exoneration")
    assert (run.code, run.verdicts()[CACHED]) == (3, "undecided")


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize(
    ("slow_calls", "expected"),
    [(2, (0, "same program")), (1_000, (3, "undecided"))],
    ids=["burst", "always"],
)
def test_one_program_whose_first_calls_differ_is_asked_again(repository, slow_calls, expected):
    let_it_wait(repository)
    repository.replace(
        "benchmarks/basics.py", "    def time_cached", ONE_PROGRAM + "    def time_cached"
    )
    pauses = f"import itertools\nimport time\n\nPAUSES = iter([0.12] * {slow_calls})\n\n\n"
    slow = (
        "def total(values):\n"
        "    for pause in itertools.islice(PAUSES, 1):\n"
        "        time.sleep(pause)"
    )
    repository.replace("smallsum/__init__.py", "def total(values):", pauses + slow)
    run = repository.gate("--base", "main", "--bench", CACHED, "--budget", "0")
    assert (run.code, run.verdicts()[CACHED]) == expected, run.out


@pytest.mark.slow
def test_first_calls_that_fail_when_asked_again_only_mean_that_it_is_timed(repository, counted):
    repository.replace(
        "benchmarks/basics.py", "    def time_cached", ONE_PROGRAM + "    def time_cached"
    )
    calls = 3 if counted else 2  # of the inspection: what asks again finds no pause left
    pauses = f"import time\n\nPAUSES = iter([0.12] * {calls})\n\n\n"
    tired = f"{pauses}def total(values):\n    time.sleep(next(PAUSES))"
    repository.replace("smallsum/__init__.py", "def total(values):", tired)
    run = repository.gate("--base", "main", "--bench", CACHED, "--budget", "0")
    assert (run.code, run.verdicts()[CACHED]) == (3, "undecided"), run.out
    assert "timing the first calls of basics.Cached.time_cached again" in run.err


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


@pytest.mark.slow
def test_a_repository_without_rules_is_held_to_ours_but_not_to_our_budgets(repository):
    (repository.root / "gate.toml").unlink()
    repository.replace("smallsum/__init__.py", "range(size)", "range(2 * size)")
    run = repository.gate("--base", "main", "--no-timing", "--bench", "Cached|mem_table")
    assert (run.code, run.verdicts()["basics.mem_table"]) == (1, "worse"), run.out
    assert "Budgets" not in run.out
    repository.git("checkout", "--quiet", "smallsum")
    run = repository.gate("--base", "main", "--no-timing")
    assert run.code == 0, run.out


TRACKED_SECONDS = "def track_wait_s():\n    return 1.0\n"


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        (TRACKED_SECONDS, [], (0, "new")),
        (TRACKED_SECONDS, ["--no-timing"], (0, "not timed")),
        ("def track_wait_s():\n    return 1 / 0\n", [], (3, "could not measure")),
    ],
)
def test_seconds_that_are_put_off_pass_for_nothing_that_has_not_run(
    repository, text, arguments, expected
):
    repository.write("benchmarks/waits.py", text)
    run = repository.gate("--base", "main", "--bench", "track_wait_s", *arguments)
    assert (run.code, run.verdicts()["waits.track_wait_s"]) == expected, run.out


@pytest.mark.slow
def test_tracked_seconds_are_run_once_where_the_code_is_the_same_and_compared_where_it_is_not(
    repository,
):
    repository.write(
        "benchmarks/waits.py",
        "import smallsum\n\n\ndef track_wait_s():\n    return 4 * smallsum.REPEATS\n",
    )
    repository.commit()
    arguments = ("--base", "main", "--bench", "track_wait_s")
    run = repository.gate(*arguments)
    assert (run.code, run.verdicts()["waits.track_wait_s"]) == (0, "same code"), run.out
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    run = repository.gate(*arguments, "--no-timing")
    assert run.verdicts()["waits.track_wait_s"] == "not timed"
    run = repository.gate(*arguments)
    assert (run.code, run.verdicts()["waits.track_wait_s"]) == (1, "worse"), run.out


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_both_sides_and_what_they_have_started_are_sampled_on_one_core(repository):
    repository.write(
        "benchmarks/cores.py",
        "import os\nimport pathlib\nimport subprocess\nimport sys\n\n\n"
        "class Cores:\n"
        "    def setup(self):\n"
        "        waiting = [sys.executable, '-c', 'input()']\n"
        "        self.child = subprocess.Popen(waiting, stdin=subprocess.PIPE)\n\n"
        "    def teardown(self):\n"
        "        self.child.kill()\n"
        "        self.child.wait()\n\n"
        "    def time_look(self):\n"
        "        cores = [sorted(os.sched_getaffinity(pid)) for pid in (0, self.child.pid)]\n"
        "        with pathlib.Path(os.environ['SEEN']).open('a') as file:\n"
        "            file.write(f'{cores}\\n')\n\n"
        "    time_look.number = 1\n",
    )
    repository.commit()
    repository.write("smallsum/data.txt", "")
    seen = repository.root.parent / "seen.txt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEN", str(seen))
        run = repository.gate("--base", "main", "--bench", "time_look")
    assert run.rows["cores.Cores.time_look"]["log_ratios"], run.out
    places = [json.loads(line) for line in seen.read_text().splitlines()]
    # Prepared on both cores, but by far most calls are samples, and these are on one.
    most = max(places, key=places.count)
    assert len(most[0]) == 1
    assert most[0] == most[1]
    assert places.count(most) > 0.6 * len(places)
    assert len({str(place[0]) for place in places}) == 2


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_pair_shares_one_core_unless_its_benchmark_is_declared_to_use_more(repository):
    added = "\n\ndef track_cores():\n    import os\n    return len(os.sched_getaffinity(0))\n"
    repository.write("benchmarks/cores.py", added)
    arguments = ("--base", "main", "--bench", "track_cores", "--no-timing")
    repository.commit()
    pinned = repository.gate(*arguments).rows["cores.track_cores"]["changes"][0]
    repository.replace(
        "gate.toml", "[timing]", "[[cores]]\nbenchmark = 'cores'\ncores = 2\n[timing]"
    )
    free = repository.gate(*arguments).rows["cores.track_cores"]["changes"][0]
    assert (pinned["base"], pinned["head"]) == (1, 1)
    assert min(free["base"], free["head"]) > 1


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_seconds_that_a_suite_tracks_are_first_taken_on_both_sides_at_once(
    repository, tmp_path, monkeypatch
):
    repository.write(
        "benchmarks/meeting.py",
        "import os\nimport pathlib\nimport time\n\n\n"
        "def track_meeting_s():\n"
        "    folder = pathlib.Path(os.environ['MEETING'])\n"
        "    (folder / str(os.sched_getaffinity(0))).touch()\n"
        "    end = time.monotonic() + 60\n"
        "    while len(list(folder.iterdir())) < 2:\n"
        "        assert time.monotonic() < end, 'the other side never came'\n"
        "        time.sleep(0.01)\n"
        "    return 1.0\n",
    )
    repository.commit()
    repository.write("smallsum/data.txt", "")
    (tmp_path / "meeting").mkdir()
    monkeypatch.setenv("MEETING", str(tmp_path / "meeting"))
    row = repository.gate("--base", "main", "--bench", "meeting").rows["meeting.track_meeting_s"]
    assert row["verdict"] == "same", row


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_work_of_several_cores_is_timed_in_turn_and_unpinned(repository, tmp_path, monkeypatch):
    repository.write(
        "benchmarks/spread.py",
        "import os\nimport pathlib\n\n\n"
        "def time_spread():\n"
        "    sum(number * number for number in range(300_000))\n"
        "    with pathlib.Path(os.environ['SEEN']).open('a') as file:\n"
        "        file.write(f'{len(os.sched_getaffinity(0))}\\n')\n",
    )
    repository.replace(
        "gate.toml", "[timing]", "[[cores]]\nbenchmark = 'spread'\ncores = 2\n[timing]"
    )
    repository.commit()
    repository.write("smallsum/data.txt", "")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.txt"))
    row = repository.gate("--base", "main", "--bench", "time_spread").rows["spread.time_spread"]
    assert (row["verdict"], row["shared"]) == ("not slower", False)
    assert min(map(int, (tmp_path / "seen.txt").read_text().split())) > 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "--base"),
        (["--base", "nowhere"], "'nowhere' is not a commit"),
        (["--base", "main", "--suite-config", "absent.json"], "there is no absent.json"),
        (["--base", "main", "--bench", "("], "is not a valid regular expression"),
        (["--base", "main", "--budget", "-1"], "--budget"),
        (["--base", "main", "--bench", "nothing_like_it"], "matches no benchmark"),
        (["--base", "main", "--rules", "absent.toml"], "there is no absent.toml"),
        (["accept", "x", "--reason", "y", "--expires", "tomorrow"], "must be a day such as"),
        (
            ["accept", "x", "--reason", "y", "--expires", "2020-01-01", "--ratio", "2"],
            "must not be in the past",
        ),
        (["accept", "x", "--reason", "y", "--expires", "2999-01-01"], "--ratio"),
    ],
)
def test_wrong_usage_gets_one_sentence_and_exit_code_2(repository, arguments, expected):
    run = repository.gate(*arguments)
    assert run.code == 2
    assert expected in run.err
    sentences = [line for line in run.err.splitlines() if not line.startswith("listing the")]
    assert len(sentences) == 1
    assert not list(run.temporary.iterdir())
