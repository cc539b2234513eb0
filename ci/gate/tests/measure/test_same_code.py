"""A row that a change does not reach is not timed: what it used is known from its first run."""

import pytest

SUITE = """
import subprocess
import sys

import smallsum


def time_table():
    smallsum.table(1_000)


class Cached:
    def setup_cache(self):
        from smallsum import cached

        return cached.VALUES

    def time_cached(self, values):
        sum(values)


class Torn:
    def teardown(self):
        import smallsum.late

    def time_nothing(self):
        pass


class ZLast:
    def setup(self):
        program = "from smallsum import extra; print(extra.work())"
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    def time_child(self):
        pass
"""
FILES = {
    "benchmarks/uses.py": SUITE,
    "smallsum/cached.py": "VALUES = [1, 2]\n",
    "smallsum/extra.py": "def work():\n    return 1\n",
    "smallsum/late.py": "VALUE = 1\n",
    "smallsum/other.py": "VALUE = 1\n",
    "tests/test_other.py": "VALUE = 1\n",
    "data/values.txt": "1\n",
}
NAMES = ("Cached.time_cached", "Torn.time_nothing", "ZLast.time_child", "time_table")
ROWS = {f"uses.{name}" for name in NAMES}


@pytest.fixture
def repository(repository):
    repository.commit(FILES)
    return repository


def reached(repository):
    """Return the rows that would be timed."""
    run = repository.count(0, "^uses")
    assert run.verdicts().keys() == ROWS
    return {name for name, verdict in run.verdicts().items() if verdict != "same code"}


@pytest.mark.slow
def test_only_a_row_that_starts_other_processes_is_timed_if_nobody_uses_what_changed(repository):
    repository.replace("smallsum/other.py", "1", "2")
    repository.replace("tests/test_other.py", "1", "2")
    repository.write("smallsum/new.py", "VALUE = 1\n")
    assert "uses.ZLast.time_child" in reached(repository)
    assert "uses.time_table" not in reached(repository)


@pytest.mark.slow
def test_what_a_row_has_used_or_may_use_lets_it_be_timed(repository):
    repository.replace("smallsum/cached.py", "[1, 2]", "[2, 1]")
    repository.replace("smallsum/late.py", "1", "2")
    assert reached(repository) == ROWS - {"uses.time_table"}
    repository.replace("data/values.txt", "1", "2")  # compiled code may read it
    assert reached(repository) == ROWS
