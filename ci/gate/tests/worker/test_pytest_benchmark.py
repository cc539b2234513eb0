"""Suites of pytest-benchmark: its fixture's tests are benchmarks, and pytest runs them."""

import shutil

import pytest

from gate_repository import make_repository

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


def test_emptied(benchmark):
    def emptied(values):
        assert values, "an earlier call has emptied it"
        values.clear()

    benchmark.pedantic(emptied, setup=lambda: (([1] * 1_000,), {}), rounds=3)


def test_without_it():
    assert smallsum.total([1, 4]) == 3
"""
OTHERS = """
import pytest

pytestmark = pytest.mark.benchmark(group="others")


def test_skipped(benchmark):
    pytest.skip("not here")


def test_failing(benchmark):
    raise ValueError("no such thing")


def test_woven(benchmark):
    benchmark.weave(len)


def test_never_called(benchmark):
    pass
"""


@pytest.fixture
def repository(tmp_path):
    made = make_repository(tmp_path)
    shutil.rmtree(made.root / "benchmarks")
    (made.root / "asv.conf.json").unlink()
    made.write("tests/test_speed.py", SPEED)
    made.commit()
    return made


@pytest.mark.slow
def test_a_slower_function_fails_the_test_that_calls_it_and_is_named(repository):
    repository.replace("smallsum/__init__.py", "def total(", "def total_once(")
    slower = "\n\ndef total(values):\n    return [total_once(values) for _ in range(9)][0]\n"
    path = "smallsum/__init__.py"
    repository.write(path, (repository.root / path).read_text() + slower)
    run = repository.gate("--base", "main", "--pytest-benchmark", "tests", "--budget", "60")
    verdicts = run.verdicts()
    assert run.code == 1, run.out
    assert set(verdicts) == {
        "test_speed.TestSums.test_sum[a.small]",
        "test_speed.TestSums.test_sum[large]",
        "test_speed.test_insert",
        "test_speed.test_emptied",
    }
    assert verdicts["test_speed.TestSums.test_sum[large]"] == "slower"
    # what a loaded machine leaves undecided is no alarm
    others = {verdicts["test_speed.test_insert"], verdicts["test_speed.test_emptied"]}
    assert others <= {"not slower", "undecided"}, run.out
    assert "smallsum/__init__.py:total_once" in run.out
    assert "--pytest-benchmark tests" in run.out


@pytest.mark.slow
def test_what_pytest_says_of_a_test_is_its_verdict(repository):
    repository.write("tests/test_others.py", OTHERS)
    repository.write("tests/test_broken.py", "import nowhere_to_be_found\n")
    repository.commit()
    repository.write("smallsum/data.txt", "")
    run = repository.gate("--base", "main", "--pytest-benchmark", "tests", "--no-timing")
    verdicts = run.verdicts()
    assert verdicts["test_others.test_skipped"] == "skipped"
    broken = [name for name, verdict in verdicts.items() if verdict == "broken before"]
    assert {name.split(".")[-1] for name in broken} >= {"test_failing", "test_woven"}
    assert "ValueError: no such thing" in run.out
    assert "can't time woven functions" in run.out
    assert "does not call its fixture" in run.out
    assert "No module named 'nowhere_to_be_found'" in run.out
    assert verdicts["test_speed.test_insert"] == "not timed"


@pytest.mark.slow
def test_a_new_test_has_no_counterpart_and_a_lost_one_is_gone(repository):
    added = "\n\ndef test_more(benchmark):\n    benchmark(smallsum.total, [1])\n"
    text = SPEED.replace("def test_insert(benchmark, database)", "def insert(database)")
    repository.write("tests/test_speed.py", text + added)
    run = repository.gate("--base", "main", "--pytest-benchmark", "tests", "--no-timing")
    assert run.verdicts()["test_speed.test_more"] == "new"
    assert run.verdicts()["test_speed.test_insert"] == "gone"
    assert run.code != 0


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("nowhere", "--pytest-benchmark must name a folder of tests, but got nowhere."),
        ("smallsum", "no test in smallsum uses the fixture `benchmark`."),
    ],
)
def test_a_folder_that_is_none_of_tests_gets_one_sentence(repository, folder, expected):
    run = repository.gate("--base", "main", "--pytest-benchmark", folder)
    assert run.code == 2
    assert expected in run.err
