"""Suites of pytest-benchmark: tests with its fixture are benchmarks. The plugin itself is there."""

import shlex
import shutil
from pathlib import Path

import pytest

from gate_repository import install, run

pytestmark = pytest.mark.slow
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
OTHERS = {
    "lazy": "benchmark.pedantic(functools.partial(wait, seconds=2))",
    "skipped": "pytest.skip('not here')",
    "failing": "raise ValueError('no such thing')",
    "never_called": "pass",
    "left": "pytest.exit('no database')",
    "fault_of_a_plugin": "pass",
}
WAIT = "import functools\n\nimport pytest\n\n\nasync def wait(seconds=1):\n    pass\n"
FAULTY = """
def pytest_runtest_logreport(report):
    if "plugin" in report.nodeid:
        raise OSError("the plugin's own fault")
"""


@pytest.fixture
def repository(repository, monkeypatch):
    # The other plugins of this environment take seconds to import, in every worker.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_benchmark.plugin")
    shutil.rmtree(repository.root / "benchmarks")
    (repository.root / "asv.conf.json").unlink()
    repository.replace("pyproject.toml", "[project]", f"{OPTIONS}\n[project]")
    repository.commit({"tests/test_speed.py": SPEED})
    return repository


def test_a_slower_function_fails_the_test_that_calls_it_and_is_named(repository):
    repository.replace("smallsum/__init__.py", "def total(", "def total_once(")
    slower = "\n\ndef total(values):\n    return [total_once(values) for _ in range(9)][0]\n"
    path = "smallsum/__init__.py"
    repository.write(path, (repository.root / path).read_text() + slower)
    found = repository.gate(1, "--pytest-benchmark", "tests", "--bench", "large|emptied")
    verdicts = found.verdicts()
    assert verdicts.pop("test_speed.TestSums.test_sum[large]") == "slower"
    # what a loaded machine leaves undecided is no alarm
    assert verdicts.pop("test_speed.test_emptied") != "slower", found.out
    assert not verdicts
    assert "smallsum/__init__.py:total_once" in found.out


def test_what_pytest_says_of_a_test_is_its_verdict(repository):
    others = [f"\n\ndef test_{name}(benchmark):\n    {does}\n" for name, does in OTHERS.items()]
    broken = {"tests/test_broken.py": "import nowhere_to_be_found\n", "tests/conftest.py": FAULTY}
    repository.commit(broken | {"tests/test_others.py": "".join([WAIT, *others])})
    repository.write("smallsum/data.txt", "")
    found = repository.count(3, "others|broken|emptied", "--pytest-benchmark", "tests")
    verdicts = found.verdicts()
    assert verdicts["test_others.test_skipped"] == "skipped"
    assert found.rows["test_others.test_skipped"]["reasons"] == ["it is skipped: Skipped: not here"]
    broken = [name for name, verdict in verdicts.items() if verdict == "broken before"]
    names = {"test_failing", "test_never_called", "test_lazy"}
    assert {name.split(".")[-1] for name in broken} >= names
    assert "it is a coroutine function, so calling it runs nothing of it; " in found.out
    assert "ValueError: no such thing" in found.out
    assert "No module named 'nowhere_to_be_found'" in found.out
    assert verdicts["test_speed.test_emptied"] == "not timed"
    # pytest's own end is no fault of a test
    assert verdicts["test_others.test_left"] == "could not measure"
    assert verdicts["test_others.test_fault_of_a_plugin"] == "could not measure"
    assert "pytest ended with exit code 3: OSError: the plugin's own fault" in found.out


ONE = """
import smallsum
from .sizes import SIZE


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


def test_a_file_may_be_the_suite_and_all_beside_it_is_each_sides_own(repository):
    folder = "tests/package/"
    file, sizes = f"{folder}test_one.py", f"{folder}sizes.py"
    beside = {f"{folder}conftest.py": BESIDE, f"{folder}__init__.py": ""}
    repository.commit(beside | {file: ONE, sizes: "SIZE = 10_000\n"})
    # The base's code does less with head's file than with its own, which needs all beside it.
    repository.replace(file, "total, numbers)", "total, numbers[:10])")
    repository.replace(sizes, "10_000", "20_000")
    found = repository.count(1, "", "--pytest-benchmark", file, base="HEAD")
    assert found.verdicts() == {"test_one.test_sum": "not timed", "test_one.test_mean": "worse"}
    assert found.rows["test_one.test_mean"]["reasons"][0].startswith("workload time ")
    assert f"(1): `{file}`." in found.out


def test_a_file_that_the_base_lacks_or_cannot_import_is_told_from_one_that_it_has(repository):
    repository.write("test_new.py", "def test_new(benchmark):\n    benchmark(sum, [1])\n")
    words = ("", "--pytest-benchmark", "test_new.py")
    assert repository.count(0, *words).verdicts() == {"test_new.test_new": "new"}
    repository.commit()
    repository.write("smallsum/more.py", "")
    later = "\n\ndef test_more(benchmark):\n    benchmark(sum, [2])\n"
    text = (repository.root / "test_new.py").read_text()
    repository.write("test_new.py", f"import smallsum.more\n\n\n{text}{later}")
    found = repository.count(0, *words, base="HEAD").verdicts()
    assert found == {"test_new.test_new": "not timed", "test_new.test_more": "new"}


def test_arguments_for_pytest_reach_its_listing_and_its_runs(repository):
    setting = "import smallsum\n\nsmallsum.SIZE = 10\n"  # a plugin that `-p` loads
    sized = "import smallsum\n\n\ndef test_sized(benchmark):\n    benchmark(range, smallsum.SIZE)\n"
    repository.commit({"setting.py": setting, "tests/test_sized.py": sized})
    repository.write("smallsum/data.txt", "1")
    words = ("--pytest-benchmark", "tests", "--pytest-args", "-p setting -k 'sized or insert'")
    found = repository.count(0, "", *words, base="HEAD")
    assert set(found.verdicts()) == {"test_sized.test_sized", "test_speed.test_insert"}
    again = shlex.split(found.rows["test_sized.test_sized"]["reproduce"])
    assert "--pytest-args=-p setting -k 'sized or insert'" in again


def test_pytest_that_can_not_start_ends_the_run_with_the_reason(repository):
    repository.write("tests/conftest.py", "import nowhere\n")
    found = repository.gate(3, "--pytest-benchmark", "tests")
    assert "No module named 'nowhere'" in found.err
    assert "pytest ended with exit code 4: " in found.err


def test_tests_without_a_benchmark_are_no_suite(repository):
    repository.write("smallsum/other.py", "")
    found = repository.gate(2, "--pytest-benchmark", "smallsum")
    assert "no test in smallsum uses the fixture" in found.err


@pytest.mark.long
@pytest.mark.parametrize("old", [("pytest-benchmark==3.4.1", "py"), ("pytest-benchmark==4.0.0",)])
def test_older_versions_of_the_plugin_do(repository, tmp_path, old):
    programs = install(tmp_path / "venv", GATE, "pytest<9", *old)
    repository.write("smallsum/data.txt", "")
    command = [programs / "perfgate", "--base", "main", "--no-timing"]
    own = {"PYTHONPATH": "", "PYTEST_PLUGINS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    out = run([*command, "--pytest-benchmark", "tests"], repository.root, **own).stdout
    assert out.count("| not timed |") == 5
