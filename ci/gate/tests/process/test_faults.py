"""What a benchmark breaks costs that benchmark its row and no other."""

import pytest

# What a benchmark does, and what the gate says of it.
FAULTS = {
    "def time_hangs": ("time.sleep(3600)", "no answer within 1 s; if it needs longer, raise its"),
    "def time_is_killed": ("os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
    "def time_exits": ("os._exit(7)", "exit code 7"),
    "def time_leaves": ("sys.exit('enough')", "SystemExit: enough"),
    "def time_raises": ("raise RuntimeError('the reason\\nin two')", "RuntimeError: the reason"),
    "def time_forks": ("os.fork()", "it forked"),
    "def track_infinity": ("return float('inf')", "the benchmark returned inf"),
    "async def time_awaits": ("pass", "it is a coroutine function, so calling it runs nothing"),
    "def time_yields": ("yield", "it is a generator function, so calling it runs nothing of it"),
    "async def peakmem_streams": ("yield", "it is an asynchronous generator function, so calling"),
    "def time_deletes_its_folder": ("shutil.rmtree(os.getcwd())", "FileNotFoundError"),
    "def time_floods_every_pipe": ("flood()", "the pipe that belongs to the gate"),
}
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


def flood():
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
TROUBLE += "\n\n".join(f"{define}():\n    {does}\n" for define, (does, _) in FAULTS.items())
TROUBLE += "\n\ntime_hangs.timeout = 1\n"
# Modules of the worker have these names, too.
SHADOWS = ("listing", "process", "profiling", "protocol", "suite", "worker")
TROUBLE += "".join(f"\n\nimport {name}\nassert {name}.OWN" for name in SHADOWS)
REASONS = {define.split()[-1]: reason for define, (_, reason) in FAULTS.items()} | {
    "Fragile.time_without_cache": "ValueError: no cache today",
    "Untidy.time_untidy": "OSError: teardown failed",
}


@pytest.mark.slow
def test_a_fault_is_reported_with_its_cause_and_the_rest_gets_its_verdict(repository):
    shadows = {f"{name}.py": "OWN = True\n" for name in SHADOWS}
    repository.commit(shadows | {"benchmarks/trouble.py": f"BEFORE = 1\n{TROUBLE}"})
    # Head's suite differs: what it left alone, and was broken before, would not hold it up.
    repository.git("switch", "--quiet", "--create", "topic")
    repository.commit({"benchmarks/trouble.py": TROUBLE})
    run = repository.gate(3, "--bench", "^trouble", "--seed", "1", "--time-identical")
    verdicts = run.verdicts()
    for name, reason in REASONS.items():
        assert verdicts[f"trouble.{name}"] == "could not measure", name
        assert reason in run.rows[f"trouble.{name}"]["reasons"][0]
    assert verdicts["trouble.time_good"] == "not slower"
    assert verdicts["trouble.time_prints_garbage"] == "not slower"
    assert verdicts["trouble.time_asks_to_be_skipped"] == "skipped"


HEAD_ALONE = """
import time

import smallsum


class Needs:
    def setup(self):
        if smallsum.REPEATS > 1:
            raise NotImplementedError("no GPU here")

    def time_needs(self):
        smallsum.total([1.0])


def time_loops():
    while smallsum.REPEATS > 1:
        pass


def time_long():
    time.sleep(0.01 if smallsum.REPEATS == 1 else 0.5)


time_loops.timeout = time_long.timeout = 3
time_long.number = 10  # in a pair, but the first run has two calls
"""


@pytest.mark.slow
def test_a_hang_on_head_alone_is_slower_and_a_skip_keeps_its_words(repository):
    repository.commit({"benchmarks/alone.py": HEAD_ALONE})
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    run = repository.gate(1, "--bench", "alone", base="HEAD")
    assert run.verdicts() == {
        "alone.Needs.time_needs": "could not measure",
        "alone.time_loops": "slower",
        "alone.time_long": "slower",
    }
    assert run.rows["alone.Needs.time_needs"]["reasons"] == [
        "it runs on the base, but is skipped on head: NotImplementedError: no GPU here"
    ]
    first, second = run.rows["alone.time_loops"]["reasons"]
    assert first == "it ends on the base, but runs into its timeout on head"
    assert second.startswith("on head: no answer within 3 s; if it needs longer, raise")
    repository.accept("alone.time_loops", "--reason", "rare", "--expires", "2999-01-31")
    run = repository.count(3, "alone", base="HEAD")
    assert run.verdicts()["alone.time_loops"] == "slower, accepted"


def test_a_package_imported_from_elsewhere_is_refused(repository, tmp_path):
    (tmp_path / "smallsum.py").write_text("def table(size):\n    return [size]\n")
    elsewhere = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport smallsum\n"
    repository.write("benchmarks/__init__.py", elsewhere)
    run = repository.gate(3, "--no-timing")
    assert "smallsum was imported from " in run.err
    assert ", which is not in its checkout; if the package lies in a subfolder" in run.err
