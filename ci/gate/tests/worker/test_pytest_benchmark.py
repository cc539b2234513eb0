"""Suites of pytest-benchmark: tests with its fixture are benchmarks. The plugin itself is there."""

import os
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
    # Few looks: rows that stay undecided are told no more pairs than the slow one needs.
    repository.replace("gate.toml", "looks = [3, 4, 6, 9]", "looks = [3, 4]")
    run = repository.gate("--base", "main", "--pytest-benchmark", "tests", "--bench", CALLS)
    verdicts = run.verdicts()
    assert run.code == 1, run.out
    assert set(verdicts) == {
        "test_speed.TestSums.test_sum[large]",
        "test_speed.test_emptied",
    }
    assert verdicts["test_speed.TestSums.test_sum[large]"] == "slower"
    # what a loaded machine leaves undecided is no alarm
    assert verdicts["test_speed.test_emptied"] in {"not slower", "undecided"}, run.out
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
