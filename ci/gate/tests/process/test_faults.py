"""What a benchmark breaks costs that benchmark its row and no other."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gate_repository import LAST_RESORT_S, make_repository
from perfgate.process import supervisor

TROUBLE = """
import os
import shutil
import signal
import sys
import time

import smallsum

VALUES = smallsum.table(10_000)


def time_good():
    smallsum.total(VALUES)


def time_prints_garbage():
    os.write(1, b"\\x00{]\\n" * 100)
    os.write(2, b"\\xff\\n")
    print('{"id": 1, "seconds": 0}', flush=True)
    smallsum.total(VALUES)


def time_hangs():
    time.sleep(3600)


time_hangs.timeout = 1


def time_sleeps_long():
    time.sleep(3600)


def time_is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def time_exits():
    os._exit(7)


def time_leaves():
    sys.exit("enough")


def time_raises():
    raise RuntimeError("the reason\\nin two lines")


def time_runs_out_of_memory():
    bytearray(1 << 62)


def time_forks():
    os.fork()


def time_deletes_its_folder():
    shutil.rmtree(os.getcwd())


def track_infinity():
    return float("inf")


def time_floods_every_pipe():
    for descriptor in range(3, 1024):
        try:
            os.write(descriptor, b"garbage\\n")
        except OSError:
            pass


def time_asks_to_be_skipped():
    from asv_runner.benchmarks.mark import SkipNotImplemented

    raise SkipNotImplemented


class Fragile:
    def setup_cache(self):
        raise ValueError("no cache today")

    def time_without_cache(self, cache):
        pass


class Untidy:
    def setup(self):
        self.handles = []

    def teardown(self):
        raise OSError("teardown failed")

    def time_untidy(self):
        smallsum.total(VALUES)
"""

REASONS = {
    "time_hangs": "no answer within 1 s; if it needs longer, raise its `timeout`",
    "time_is_killed": "ended by SIGKILL",
    "time_exits": "exit code 7",
    "time_leaves": "SystemExit: enough",
    "time_raises": "RuntimeError: the reason",
    "time_runs_out_of_memory": "MemoryError",
    "time_forks": "it forked",
    "track_infinity": "the benchmark returned inf",
    "time_deletes_its_folder": "it deleted its working directory",
    "time_floods_every_pipe": "the pipe that belongs to the gate",
    "Fragile.time_without_cache": "ValueError: no cache today",
    "Untidy.time_untidy": "OSError: teardown failed",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    repository = make_repository(tmp_path_factory.mktemp("faults"))
    repository.write("benchmarks/trouble.py", f"BEFORE = 1\n{TROUBLE}")
    repository.commit("trouble")
    # Head's suite differs: what it left alone, and was broken before, would not hold it up.
    repository.git("switch", "--quiet", "--create", "topic")
    repository.write("benchmarks/trouble.py", TROUBLE)
    repository.commit("less trouble")
    return repository


@pytest.fixture(scope="module", params=[False, True], ids=["uncounted", "counted"])
def run(request, repository):
    repository.counted = request.param
    ended = repository.gate(
        "--base", "main", "--bench", "^trouble(?!.*sleeps_long)", "--seed", "1", "--time-identical"
    )
    repository.counted = False
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("name", REASONS)
def test_a_fault_is_reported_with_its_cause(run, name):
    row = run.rows[f"trouble.{name}"]
    assert row["verdict"] == "could not measure"
    assert REASONS[name] in row["reasons"][0]


@pytest.mark.slow
def test_the_rest_gets_its_verdict_and_the_exit_code_is_3(run):
    assert run.code == 3, run.err
    verdicts = run.verdicts()
    assert verdicts["trouble.time_good"] == "not slower"
    assert verdicts["trouble.time_prints_garbage"] == "not slower"
    assert verdicts["trouble.time_asks_to_be_skipped"] == "skipped"
    assert not list(run.temporary.iterdir())


@pytest.mark.slow
def test_a_regression_beside_faults_is_still_a_regression(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 6")
    run = repository.gate("--base", "main", "--bench", "trouble.time_(good|is_killed)")
    repository.git("checkout", "--quiet", "smallsum")
    assert run.code == 1
    assert run.verdicts() == {
        "trouble.time_good": "slower",
        "trouble.time_is_killed": "could not measure",
    }


def test_what_fails_on_one_side_alone_says_on_which(repository):
    repository.replace(
        "smallsum/__init__.py", "def table(size):", "def table(size):\n    assert size != 100"
    )
    run = repository.gate("--base", "main", "--bench", "track_mean", "--no-timing")
    repository.git("checkout", "--quiet", "smallsum")
    assert run.code == 3
    assert run.rows["basics.track_mean"]["reasons"] == ["on head: AssertionError"]


@pytest.mark.slow
def test_a_module_that_cannot_be_imported_is_a_row_and_its_benchmarks_are_not_gone(repository):
    repository.replace(
        "benchmarks/trouble.py", "import smallsum\n", "import smallsum\nimport absent_package\n"
    )
    run = repository.gate("--base", "main", "--bench", "track_mean|time_good", "--no-timing")
    repository.git("checkout", "--quiet", "benchmarks")
    assert run.code == 3
    assert run.verdicts() == {
        "basics.track_mean": "same",
        "benchmarks.trouble (module)": "could not measure",
    }


def test_a_package_imported_from_elsewhere_is_refused(repository, tmp_path):
    (tmp_path / "smallsum.py").write_text(
        "def table(size): return [size]\ndef total(values): return 0\n"
    )
    elsewhere = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport smallsum\n"
    repository.write("benchmarks/__init__.py", elsewhere)
    run = repository.gate("--base", "main", "--no-timing")
    repository.git("checkout", "--quiet", "benchmarks")
    assert run.code == 3
    assert "smallsum was imported from " in run.err
    assert ", which is not in its checkout; if the package lies in a subfolder" in run.err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_workers_and_removes_the_checkouts(repository, tmp_path, number):
    environment = os.environ | repository.environment | {"TMPDIR": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "perfgate",
        "--base",
        "main",
        "--bench",
        "time_sleeps_long",
        "--time-identical",
    ]
    # The gate takes over which signals are ignored, and a shell lets a job in the background ignore
    # SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        gate = subprocess.Popen(
            command,
            cwd=repository.root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with gate:
        assert gate.stderr is not None
        try:
            next(line for line in gate.stderr if line.startswith("running"))
            gate.send_signal(number)
            _, last = gate.communicate(timeout=LAST_RESORT_S)
        finally:
            gate.kill()
    assert gate.returncode == 130, last
    assert "stopped; nothing was decided" in last
    assert not list(tmp_path.iterdir())
    assert len(repository.git("worktree", "list").splitlines()) == 1
    assert not _workers_of(tmp_path)


def test_a_signal_that_is_ignored_stays_ignored_while_a_worker_starts():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with supervisor._interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def _workers_of(folder):
    files = [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.parent.name != str(os.getpid())
    ]
    found = []
    for path in files:
        try:
            found += [path] if str(folder) in path.read_bytes().decode(errors="replace") else []
        except OSError:  # it has ended meanwhile
            continue
    return found
