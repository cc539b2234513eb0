"""What a benchmark breaks costs that benchmark its row and no other."""

import pytest

from gate_repository import make_repository

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


def time_is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def time_exits():
    os._exit(7)


def time_leaves():
    sys.exit("enough")


def time_raises():
    raise RuntimeError("the reason\\nin two lines")


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
    "time_forks": "it forked",
    "track_infinity": "the benchmark returned inf",
    "time_deletes_its_folder": "FileNotFoundError",
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


@pytest.mark.slow
def test_a_fault_is_reported_with_its_cause_and_the_rest_gets_its_verdict(repository):
    run = repository.gate(
        "--base", "main", "--bench", "^trouble", "--seed", "1", "--time-identical"
    )
    assert run.code == 3, run.err
    verdicts = run.verdicts()
    for name, reason in REASONS.items():
        assert verdicts[f"trouble.{name}"] == "could not measure", name
        assert reason in run.rows[f"trouble.{name}"]["reasons"][0]
    assert verdicts["trouble.time_good"] == "not slower"
    assert verdicts["trouble.time_prints_garbage"] == "not slower"
    assert verdicts["trouble.time_asks_to_be_skipped"] == "skipped"
    assert not list(run.temporary.iterdir())


HEAD_ALONE = """
import smallsum


class Needs:
    def setup(self):
        if smallsum.REPEATS > 1:
            raise NotImplementedError("no GPU here")

    def time_needs(self):
        smallsum.total([1.0])
"""


@pytest.mark.slow
def test_a_skip_on_head_alone_keeps_its_words_and_can_be_accepted(repository):
    repository.write("benchmarks/alone.py", HEAD_ALONE)
    repository.commit("alone")
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    arguments = ("--base", "HEAD", "--bench", "alone", "--no-timing")
    run = repository.gate(*arguments)
    assert run.code == 3, run.out
    (row,) = run.rows.values()
    assert row["verdict"] == "could not measure"
    assert row["reasons"] == [
        "it runs on the base, but is skipped on head: NotImplementedError: no GPU here"
    ]
    accept = ("accept", row["name"], "--metric", "missing", "--reason", "rare")
    assert repository.gate(*accept, "--expires", "2999-01-31").code == 0
    (row,) = repository.gate(*arguments).rows.values()
    assert row["verdict"] == "could not measure, accepted"
    repository.git("checkout", "--quiet", "smallsum")
    (repository.root / "accepted.toml").unlink()


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
