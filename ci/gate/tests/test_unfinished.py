"""A run has an end: what it did not reach is listed, and the next run continues it."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from gate_repository import LAST_RESORT_S, RULES, make_repository
from perfgate.config import Rules, Verdicts
from perfgate.hlo import Instruction, Program
from perfgate.measure.pairing import Session
from perfgate.measure.progress import Progress, Run
from perfgate.process.protocol import FirstRun, Footprint
from perfgate.rows import Benchmark, Change, Row, SideRun
from perfgate.stats.evidence import Evidence, Plan

# Each benchmark notes its first runs. The last one only ends if a file is there.
SUITE = """import os
import pathlib
import time

import smallsum

SEEN = pathlib.Path(os.environ["SEEN"])


def _run(name):
    (SEEN / f"{name} {os.getpid()}").touch()
    smallsum.total([1.0])


def track_early():
    _run("early")
    return 1


def track_late():
    _run("late")
    while not (SEEN / "go").exists():
        time.sleep(0.01)
    return 1
"""
COMMAND = ["--base", "main", "--bench", "steps", "--no-timing"]


@pytest.fixture
def seen(tmp_path, monkeypatch):
    folder = tmp_path / "seen"
    folder.mkdir()
    monkeypatch.setenv("SEEN", str(folder))
    return folder


@pytest.fixture
def repository(tmp_path, seen):
    repository = make_repository(tmp_path)
    repository.write("benchmarks/steps.py", SUITE)
    repository.commit()
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    return repository


def first_runs(seen, name):
    return len([each for each in seen.iterdir() if each.name.startswith(name)])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_a_run_that_was_stopped_leaves_a_report_and_the_next_one_continues(
    repository, seen, number
):
    # A shell may let a job in the background ignore SIGINT, and the gate leaves that so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        gate = subprocess.Popen(
            [sys.executable, "-m", "perfgate", *COMMAND],
            cwd=repository.root,
            env=os.environ | repository.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with gate:
        assert gate.stderr is not None
        next(line for line in gate.stderr if line.startswith("running steps.track_late"))
        gate.send_signal(number)
        gate.communicate(timeout=LAST_RESORT_S)
    report = json.loads((repository.root / ".asv/gate/gate.json").read_text())
    assert report["exit_code"] == 3
    assert report["headline"].startswith("COULD NOT TELL: 1 not reached; 2 benchmarks in all")
    assert {row["name"]: row["verdict"] for row in report["rows"]} == {
        "steps.track_early": "same",
        "steps.track_late": "not reached",
    }
    (seen / "go").touch()
    run = repository.gate(*COMMAND)
    assert run.code == 0, run.out
    assert set(run.verdicts().values()) == {"same"}
    assert first_runs(seen, "early") == 2  # one on each side, both in the run that was stopped
    assert not (run.report.parent / "unfinished").exists()


@pytest.mark.slow
def test_the_end_of_a_run_cuts_off_a_benchmark_and_no_later_run_waits_for_it_again(
    repository, seen
):
    repository.write("gate.toml", RULES.replace("[timing]", "[timing]\nrun_s = 8"))
    runs = [repository.gate(*COMMAND) for _ in range(2)]
    assert [run.code for run in runs] == [3, 3], runs[0].out
    assert "- not reached before the run ended; repeat the command to continue (1)" in runs[0].out
    assert json.loads(runs[1].report.read_text())["elapsed_s"] < 12
    (reason,) = runs[1].rows["steps.track_late"]["reasons"]
    assert "s, all that timing.run_s leaves" in reason


@pytest.mark.slow
def test_a_run_that_is_undecided_is_continued_unless_the_change_or_a_setting_is_another(
    repository, seen
):
    (seen / "go").touch()
    undecided = ["--base", "main", "--bench", "track_early|time_cached", "--budget", "0"]
    undecided += ["--undecided", "stop"]
    assert repository.gate(*undecided).code == 3
    assert "continuing an unfinished run" in repository.gate(*undecided).err
    assert first_runs(seen, "early") == 2
    assert "continuing" not in repository.gate(*undecided, "--time-identical").err
    repository.write("smallsum/more.py", "")
    assert "continuing" not in repository.gate(*undecided).err


def test_pairs_of_a_run_that_was_cut_off_count_in_the_next(tmp_path):
    benchmark = Benchmark("suite.time_it", "suite.time_it", None, "time", 60.0)
    footprint = Footprint(("a.py",), has_all_imports=True)
    program = Program("hash", {"copies": 1.0}, instructions=(Instruction("add", "f32", "", "a"),))
    run = SideRun(FirstRun(0.1, numbers={"compile_s": 1.0}, footprint=footprint), program)
    change = Change("compile_s", 1.0, math.inf, "worse", rounds=((1.0, 2.0),))
    evidence = Evidence(Plan.make(Verdicts().limits, 5))
    for pair in (0.2, 0.21, 0.2, 0.19, 0.2, 0.22, 0.2, 0.2, 0.2, 0.21):
        evidence.add(pair)
    row = Row(benchmark, base=run, head=run, changes=(change,), evidence=evidence, causes=("why",))
    row = replace(row, timed_s={"base": (0.1,), "head": (0.12,)})
    progress = Progress()
    progress.read(tmp_path, "key")
    progress.keep([row])

    continued = Progress()
    continued.read(tmp_path, "key")
    rng = random.Random(0)  # noqa: S311
    session = Session(Run(None, Rules(), None, continued), rng)
    opened = session._opened(continued.rows[row.name], 5)
    assert replace(opened.so_far(), evidence=None) == replace(row, evidence=None)
    assert (opened.evidence.first, opened.evidence.fresh) == (evidence.first, evidence.fresh)
    assert opened.evidence.suspected
    damaged = next((tmp_path / "unfinished" / "key").iterdir())
    damaged.write_text(damaged.read_text()[:-9])
    other = Progress()
    other.read(tmp_path, "key")
    assert not other.rows
    other.read(tmp_path, "another key")
    assert not damaged.exists()
