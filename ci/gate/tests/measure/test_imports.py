"""Benchmarks that no changed file can reach are not run; what they import is known from before."""

from types import SimpleNamespace

import pytest

from gate_repository import make_repository
from perfgate.config import Budget
from perfgate.measure.imports import Imports, _left_out_by_ratios
from perfgate.source.git import WORKING_TREE
from perfgate.source.sides import checked_out

SUITE = """
import importlib.util
import pathlib

import smallsum

ROOT = pathlib.Path(smallsum.__file__).parents[1]
CALLS = []


def time_table():
    smallsum.table(1_000)


def time_lazy():
    from smallsum import extra

    extra.work()


def time_second_call():
    CALLS.append(1)
    if len(CALLS) == 2:
        import smallsum.second


def track_lazy():
    from smallsum import extra

    return extra.work()


def track_reads():
    path = pathlib.Path(smallsum.__file__).with_name("formula.py")
    return eval(path.read_text())


def track_reads_a_page():
    return len((ROOT / "docs" / "values.md").read_text())


def track_of_a_test():
    return _loaded(ROOT / ("te" + "sts") / "numbers.py")


def _loaded(file):
    spec = importlib.util.spec_from_file_location("loaded", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VALUE


class Cached:
    def setup_cache(self):
        from smallsum import cached

        return cached.VALUES

    def track_cached(self, values):
        return sum(values)


class TornDown:
    def teardown(self):
        import smallsum.late

    def time_nothing(self):
        pass
"""
# It comes before the other module in a worker.
CHILDREN = """
import functools
import subprocess
import sys


@functools.cache
def _made():
    program = "from smallsum import extra; print(extra.work())"
    command = [sys.executable, "-c", program]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def timeraw_other_process():
    return "from smallsum import extra; extra.work()"


def track_child():
    return _made()


def track_child_of_the_last():
    return _made()
"""
STATEMENTS = """
import smallsum


def timeraw_statement():
    return "pass"


def track_after_a_statement():
    return len(smallsum.table(10))
"""
FILES = {
    "benchmarks/lazy.py": SUITE,
    "benchmarks/children.py": CHILDREN,
    "benchmarks/statements.py": STATEMENTS,
    "smallsum/extra.py": "def work():\n    return 1\n",
    "smallsum/formula.py": "1 + 1\n",
    "smallsum/cached.py": "VALUES = [1, 2]\n",
    "smallsum/other.py": "VALUE = 1\n",
    "smallsum/second.py": "VALUE = 1\n",
    "smallsum/late.py": "VALUE = 1\n",
    "tests/numbers.py": "VALUE = 1\n",
    "tests/test_other.py": "VALUE = 1\n",
    "docs/values.md": "1\n",
    "docs/other.md": "1\n",
    "data/values.txt": "1\n",
}
ROWS = "^(lazy|children|statements)"
ARGUMENTS = ("--base", "main", "--no-timing", "--bench", ROWS)
NOT_RUN = "same files"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A repository in which one run has recorded what benchmarks import."""
    repository = make_repository(tmp_path_factory.mktemp("imports"))
    for name, text in FILES.items():
        repository.write(name, text)
    repository.commit()
    repository.replace("smallsum/other.py", "1", "2")
    first = repository.gate(*ARGUMENTS)
    assert first.code == 0, first.out + first.err
    assert NOT_RUN not in first.verdicts().values()
    repository.git("checkout", "--quiet", ".")
    return repository


@pytest.fixture
def repository(recorded):
    yield recorded
    recorded.git("checkout", "--quiet", ".")
    recorded.git("clean", "--quiet", "--force", "-d")


def not_run(run):
    assert run.code == 0, run.out + run.err
    return {name for name, verdict in run.verdicts().items() if verdict == NOT_RUN}


KNOWN = {
    "lazy.Cached.track_cached",
    "lazy.TornDown.time_nothing",
    "lazy.time_lazy",
    "lazy.time_second_call",
    "lazy.time_table",
    "lazy.track_lazy",
    "lazy.track_of_a_test",
    "lazy.track_reads",
    "lazy.track_reads_a_page",
    "statements.track_after_a_statement",
}


def read_records(repository):
    """Read the records of a repository as a run does that compares its working tree with main."""
    with checked_out(repository.root / "asv.conf.json", "main", WORKING_TREE) as sides:
        return Imports.read(repository.root / ".asv/gate", sides)


def test_a_record_that_a_change_commits_counts_for_nothing(tmp_path):
    repository = make_repository(tmp_path)
    repository.write(".asv/gate/imports.json", "{}")
    keys = read_records(repository).keys
    assert keys["base"] == keys["head"]
    repository.git("add", "--force", ".asv/gate/imports.json")
    keys = read_records(repository).keys
    assert keys["base"] != keys["head"]


@pytest.mark.parametrize("variable", ["SMALLSUM_MODE", "PYTEST_ADDOPTS", "GITHUB_ACTIONS"])
def test_a_record_counts_for_nothing_under_another_variable(tmp_path, monkeypatch, variable):
    repository = make_repository(tmp_path)
    before = read_records(repository).keys["head"]
    monkeypatch.setenv("GITHUB_JOB", "another")
    assert read_records(repository).keys["head"] == before
    monkeypatch.setenv(variable, "another")
    assert read_records(repository).keys["head"] != before


def test_records_that_cannot_be_read_count_for_nothing(tmp_path):
    repository = make_repository(tmp_path)
    damaged = '{"version": 1, "known": {"a": {"b": 1}}}'
    for text in ("", "{", "[]", '{"version": 0}', '{"version": 1}', damaged):
        repository.write(".asv/gate/imports.json", text)
        assert read_records(repository).known == {}


@pytest.mark.slow
def test_only_what_other_processes_may_decide_runs_where_no_imported_file_changed(repository):
    repository.replace("smallsum/other.py", "1", "3")
    repository.replace("tests/test_other.py", "1", "2")
    run = repository.gate(*ARGUMENTS)
    assert not_run(run) == KNOWN
    assert "not running 10 of 14 benchmarks: no file that they use changed" in run.err
    assert "- not run, since no file that they use changed (10): `lazy." in run.out
    assert "`smallsum/other.py`" in run.out.partition("imported these changed files")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "row"),
    [
        ("smallsum/formula.py", "1 + 1", "1 + 1  # two", "lazy.track_reads"),
        ("smallsum/cached.py", "[1, 2]", "[2, 1]", "lazy.Cached.track_cached"),
        ("smallsum/second.py", "1", "2 - 1", "lazy.time_second_call"),
        ("smallsum/late.py", "1", "2 - 1", "lazy.TornDown.time_nothing"),
        ("tests/numbers.py", "1", "2 - 1", "lazy.track_of_a_test"),
    ],
)
def test_a_file_that_is_used_late_lets_its_benchmark_run(repository, file, old, new, row):
    repository.replace(file, old, new)
    left = not_run(repository.gate(*ARGUMENTS))
    assert row not in left
    assert left


@pytest.mark.slow
def test_a_page_that_a_benchmark_is_known_to_read_lets_it_run(repository):
    repository.replace("docs/values.md", "1", "2")
    run = repository.gate(*ARGUMENTS)
    ran = {name for name, row in run.rows.items() if "was not run" not in str(row["reasons"])}
    assert "lazy.track_reads_a_page" in ran
    assert "lazy.time_table" not in ran
    assert "only documentation differs, so nothing" not in run.out
    repository.git("checkout", "--quiet", ".")
    repository.replace("docs/other.md", "1", "2")
    run = repository.gate(*ARGUMENTS)
    assert run.out.startswith("# PASSED: only documentation differs, so nothing was measured; 14 ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "flags"),
    [
        ("data/values.txt", []),  # any benchmark may read it
        (".github/workflows/gate.yml", []),  # who changes only this wants to see them run
        ("smallsum/other.py", ["--time-identical"]),
    ],
)
def test_all_run_where_the_records_do_not_say_enough(repository, file, flags):
    repository.write(file, "VALUE = 2\n")
    assert not_run(repository.gate(*ARGUMENTS, *flags)) == set()


BUDGET = """
[[budget]]
benchmark = "time_table"
metric = "seconds"
ceiling = 1e-9
unit = "s"
"""


@pytest.mark.slow
def test_a_change_of_pages_and_rules_runs_what_the_rules_are_about(repository):
    repository.write("README.md", "# Sums\n")
    repository.write("gate.toml", BUDGET)
    run = repository.gate("--base", "main", "--bench", "time_table")
    assert run.code == 1, run.out + run.err
    assert "1 budget missed" in run.out


def test_a_benchmark_that_runs_for_one_ratio_lets_those_of_the_next_one_run():
    ratios = [("a", "b"), ("^b", "c"), ("d", "e")]
    budgets = [
        Budget(benchmark=name, metric="ratio", unit="x", floor=1.0, over=over)
        for name, over in ratios
    ]
    rules = SimpleNamespace(budget=budgets)
    names = {"a", "b", "c", "d", "e", "f"}
    assert _left_out_by_ratios(names - {"c"}, names, rules) == {"d", "e", "f"}
    assert _left_out_by_ratios(names, names, rules) == names
