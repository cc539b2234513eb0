"""Suites of pytest-benchmark: tests with its fixture are benchmarks. The plugin itself is there."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gate_repository import make_repository

GATE = Path(__file__).resolve().parents[2]
# each of these would leave out the benchmarks, write a file or fail the run
OPTIONS = """
[tool.pytest.ini_options]
addopts = '''
  --benchmark-skip --benchmark-autosave --benchmark-json=out.json --benchmark-compare
  --benchmark-compare-fail=mean:5% --benchmark-disable --last-failed
'''
filterwarnings = ["error"]
"""

SPEED = """
import sqlite3

import pytest

import smallsum


@pytest.fixture
def database():
    connection = sqlite3.connect(":memory:")  # only the thread that made it may use it
    connection.execute("create table numbers (value)")
    yield connection
    connection.close()


class TestSums:
    @pytest.mark.parametrize("number", [100, 20_000], ids=["a.small", "large"])
    def test_sum(self, benchmark, number):
        values = list(range(number))
        assert benchmark(smallsum.total, values) == smallsum.total(values)


def test_insert(benchmark, database):
    benchmark(database.execute, "insert into numbers values (1)")


def test_emptied(benchmark, database):
    def emptied(values):
        assert values, "an earlier call has emptied it"
        database.execute("insert into numbers values (?)", values[:1])
        values.clear()

    benchmark.pedantic(emptied, setup=lambda: (([1] * 1_000,), {}), rounds=3)


@pytest.mark.benchmark(group="ours", min_rounds=7)
def test_described(benchmark):
    assert (benchmark.name, benchmark.group) == ("test_described", "ours")
    benchmark.extra_info["numbers"] = 1_000

    @benchmark
    def summed():
        return smallsum.total(range(1_000))

    assert summed == smallsum.total(range(1_000))
    assert benchmark.stats.stats.mean > 0


def test_without_it():
    assert smallsum.total([1, 4]) == 3
"""
CALLS = "large|emptied"  # plain, and one that is bound to a thread and has a setup
OTHERS = """
import pytest


def test_skipped(benchmark):
    pytest.skip("not here")


def test_failing(benchmark):
    raise ValueError("no such thing")


def test_never_called(benchmark):
    pass


def test_left(benchmark):
    pytest.exit("no database")


def test_fault_of_a_plugin(benchmark):
    pass
"""
FAULTY = """
def pytest_runtest_logreport(report):
    if "plugin" in report.nodeid:
        raise OSError("the plugin's own fault")
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    # The other plugins of this environment take seconds to import, in every worker.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_benchmark.plugin")
    made = make_repository(tmp_path)
    shutil.rmtree(made.root / "benchmarks")
    (made.root / "asv.conf.json").unlink()
    made.write("tests/test_speed.py", SPEED)
    made.write("pyproject.toml", (made.root / "pyproject.toml").read_text() + OPTIONS)
    made.commit()
    return made


@pytest.mark.slow
def test_a_slower_function_fails_the_test_that_calls_it_and_is_named(repository):
    repository.replace("smallsum/__init__.py", "def total(", "def total_once(")
    slower = "\n\ndef total(values):\n    return [total_once(values) for _ in range(9)][0]\n"
    path = "smallsum/__init__.py"
    repository.write(path, (repository.root / path).read_text() + slower)
    run = repository.gate("--base", "main", "--pytest-benchmark", "tests", "--bench", CALLS)
    verdicts = run.verdicts()
    assert run.code == 1, run.out
    assert set(verdicts) == {
        "test_speed.TestSums.test_sum[large]",
        "test_speed.test_emptied",
    }
    assert verdicts["test_speed.TestSums.test_sum[large]"] == "slower"
    # what a loaded machine leaves undecided is no alarm
    assert verdicts["test_speed.test_emptied"] != "slower", run.out
    assert "smallsum/__init__.py:total_once" in run.out
    assert "--pytest-benchmark tests" in run.out


@pytest.mark.slow
def test_what_pytest_says_of_a_test_is_its_verdict(repository):
    repository.write("tests/test_others.py", OTHERS)
    repository.write("tests/conftest.py", FAULTY)
    repository.write("tests/test_broken.py", "import nowhere_to_be_found\n")
    repository.commit()
    repository.write("smallsum/data.txt", "")
    words = ("--bench", "others|broken|emptied", "--no-timing")
    run = repository.gate("--base", "main", "--pytest-benchmark", "tests", *words)
    verdicts = run.verdicts()
    assert verdicts["test_others.test_skipped"] == "skipped"
    assert run.rows["test_others.test_skipped"]["reasons"] == ["it is skipped: Skipped: not here"]
    broken = [name for name, verdict in verdicts.items() if verdict == "broken before"]
    assert {name.split(".")[-1] for name in broken} >= {"test_failing", "test_never_called"}
    assert "ValueError: no such thing" in run.out
    assert "No module named 'nowhere_to_be_found'" in run.out
    assert verdicts["test_speed.test_emptied"] == "not timed"
    # pytest's own end is no fault of a test
    assert verdicts["test_others.test_left"] == "could not measure"
    assert verdicts["test_others.test_fault_of_a_plugin"] == "could not measure"
    assert ": Exit: no database" in run.out
    assert "pytest ended with exit code 3: OSError: the plugin's own fault" in run.out
    assert run.code == 3


@pytest.mark.slow
def test_a_new_test_has_no_counterpart_and_a_lost_one_is_gone(repository):
    more = "\n\ndef test_more(benchmark):\n    benchmark(smallsum.total, [1])\n"
    lost = SPEED.replace("def test_insert(benchmark, database)", "def insert(database)")
    repository.write("tests/test_speed.py", lost + more)
    words = ("--bench", "insert|more", "--no-timing")
    run = repository.gate("--base", "main", "--pytest-benchmark", "tests", *words)
    verdicts = run.verdicts()
    assert verdicts == {"test_speed.test_more": "new", "test_speed.test_insert": "gone"}
    assert run.code == 3


ONE = """
import pytest

import smallsum
from sizes import SIZE

pytestmark = pytest.mark.speed


def test_sum(benchmark, numbers):
    benchmark(smallsum.total, numbers[:SIZE])


def test_mean(benchmark, numbers):
    benchmark(smallsum.total, numbers)
"""
BESIDE = """
import pytest


@pytest.fixture
def numbers():
    return [1] * 20_000
"""
MARKS = """
def pytest_configure(config):
    config.addinivalue_line("markers", "speed: a benchmark")
"""


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["", "tests/", "tests/package/"])
def test_a_file_may_be_the_suite_and_all_beside_it_is_each_sides_own(repository, folder):
    file = f"{folder}test_one.py"
    repository.write(file, ONE)
    repository.write(f"{folder}conftest.py", BESIDE)
    repository.write(f"{folder}sizes.py", "SIZE = 10_000\n")
    repository.write("marks.py", MARKS)
    repository.replace("pyproject.toml", "addopts = '''", "addopts = '''-p marks")
    if "package" in folder:
        repository.write(f"{folder}__init__.py", "")
        repository.replace(file, "from sizes", "from .sizes")
    repository.commit()
    words = ("--base", "HEAD", "--pytest-benchmark", file, "--no-timing")

    repository.write("smallsum/data.txt", "")
    run = repository.gate(*words)
    assert run.code == 0, run.out + run.err
    assert run.verdicts() == {"test_one.test_sum": "not timed", "test_one.test_mean": "not timed"}

    # The base's code does less with head's file than with its own, which needs all beside it.
    repository.replace(file, "total, numbers)", "total, numbers[:10])")
    repository.replace(f"{folder}sizes.py", "10_000", "20_000")
    run = repository.gate(*words)
    assert run.verdicts() == {"test_one.test_sum": "not timed", "test_one.test_mean": "worse"}
    assert run.rows["test_one.test_mean"]["reasons"][0].startswith("workload time ")
    assert f"(1): `{file}`." in run.out


@pytest.mark.slow
def test_a_file_that_the_base_lacks_or_cannot_import_is_told_from_one_that_it_has(repository):
    repository.write("test_new.py", "def test_new(benchmark):\n    benchmark(sum, [1])\n")
    words = ("--base", "main", "--pytest-benchmark", "test_new.py", "--no-timing")
    assert repository.gate(*words).verdicts() == {"test_new.test_new": "new"}
    repository.commit()
    repository.write("smallsum/more.py", "")
    later = "\n\ndef test_more(benchmark):\n    benchmark(sum, [2])\n"
    text = (repository.root / "test_new.py").read_text()
    repository.write("test_new.py", f"import smallsum.more\n\n\n{text}{later}")
    found = repository.gate("--base", "HEAD", *words[2:]).verdicts()
    assert found == {"test_new.test_new": "not timed", "test_new.test_more": "new"}


SETTING = "import smallsum\n\nsmallsum.SIZE = 10\n"  # a plugin that `-p` loads
SIZED = "import smallsum\n\n\ndef test_sized(benchmark):\n    benchmark(range, smallsum.SIZE)\n"


@pytest.mark.slow
def test_arguments_for_pytest_reach_its_listing_and_its_runs(repository):
    repository.write("setting.py", SETTING)
    repository.write("tests/test_sized.py", SIZED)
    repository.commit()
    repository.write("smallsum/data.txt", "1")
    words = ("--base", "HEAD", "--pytest-benchmark", "tests", "--no-timing")
    run = repository.gate(*words, "--pytest-args", "-p setting -k 'sized or insert'")
    assert run.code == 0, run.out
    assert set(run.verdicts()) == {"test_sized.test_sized", "test_speed.test_insert"}
    again = shlex.split(run.rows["test_sized.test_sized"]["reproduce"])
    assert "--pytest-args=-p setting -k 'sized or insert'" in again


LAZY = """
import functools


async def wait(seconds=1):
    pass


def count(number):
    yield number


async def both():
    yield 1


def test_coroutine(benchmark):
    benchmark(wait)


def test_bound(benchmark):
    benchmark.pedantic(functools.partial(wait, seconds=2))


def test_generator(benchmark):
    benchmark(count, 3)


def test_both(benchmark):
    benchmark(both)


def test_run_to_its_end(benchmark):
    benchmark(lambda: list(count(3)))
"""
LAZY_KINDS = {
    "coroutine": "a coroutine",
    "bound": "a coroutine",
    "generator": "a generator",
    "both": "an asynchronous generator",
}


@pytest.mark.slow
def test_a_function_whose_call_runs_nothing_is_refused(repository):
    repository.write("tests/test_lazy.py", LAZY)
    words = ("--base", "main", "--pytest-benchmark", "tests/test_lazy.py", "--no-timing")
    run = repository.gate(*words)
    assert run.code == 3
    assert run.verdicts().pop("test_lazy.test_run_to_its_end") == "new"
    for name, kind in LAZY_KINDS.items():
        row = run.rows[f"test_lazy.test_{name}"]
        assert row["verdict"] == "could not measure"
        assert f"it is {kind} function, so calling it runs nothing of it; " in row["reasons"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "text", "folder", "code", "said"),
    [
        ("smallsum/a.py", "", "smallsum", 2, "no test in smallsum uses the fixture `benchmark`."),
        ("pytest.ini", "[pytest]\naddopts = --bencmark-skip\n", "tests", 3, "unrecognized argum"),
        ("tests/conftest.py", "import nowhere\n", "tests", 3, "No module named 'nowhere'"),
    ],
)
def test_pytest_that_finds_nothing_ends_the_run_with_the_reason(
    repository, file, text, folder, code, said
):
    repository.write(file, text)
    run = repository.gate("--base", "main", "--pytest-benchmark", folder)
    assert run.code == code
    assert said in run.err
    assert ("pytest ended with exit code 4: " in run.err) == (code == 3)


@pytest.mark.long
@pytest.mark.parametrize("old", [("pytest-benchmark==3.4.1", "py"), ("pytest-benchmark==4.0.0",)])
def test_older_versions_of_the_plugin_do(repository, tmp_path, old):
    uv = Path(sys.executable).with_name("uv")
    if not uv.is_file():
        pytest.skip("uv is missing: pip install uv")
    place = tmp_path / "venv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
    python = place / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", python, GATE, "pytest<9", *old]
    subprocess.run(install, check=True)
    repository.write("smallsum/data.txt", "")
    words = ("--base", "main", "--pytest-benchmark", "tests", "--no-timing")
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("PYT")}
    done = subprocess.run(
        [place / "bin" / "perfgate", *words],
        cwd=repository.root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| not timed |") == 5
