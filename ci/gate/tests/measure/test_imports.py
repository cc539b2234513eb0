"""Benchmarks that no changed file can reach are not run; what they import is known from before."""

import json
from types import SimpleNamespace

import pytest

from gate_repository import RULES, make_repository
from perfgate.config import Budget
from perfgate.measure.imports import Imports, _left_out_by_ratios
from perfgate.source.git import WORKING_TREE
from perfgate.source.sides import checked_out

SUITE = """
import importlib
import importlib.util
import os
import pathlib
import sys

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


def track_reads_beside_it():
    before = os.getcwd()
    os.chdir(ROOT / "smallsum")
    try:
        with open("beside.py") as file:
            return len(file.read())
    finally:
        os.chdir(before)


def track_reads_a_page():
    return len((ROOT / "docs" / "values.md").read_text())


def track_computed_name():
    return importlib.import_module("smallsum." + "".join(["pl", "ugin"])).VALUE


def track_removed_module():
    import smallsum.removed

    return sys.modules.pop("smallsum.removed").VALUE


def track_of_a_test():
    return _loaded(ROOT / ("te" + "sts") / "numbers.py")


def track_elsewhere():
    return _loaded(pathlib.Path("{elsewhere}"))


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
# Each in a module of its own, whose workers are not asked for another one.
NATIVE = """
import ctypes


def track_process_that_python_does_not_hear_of():
    return ctypes.CDLL(None).system(b"true")
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
REPLACES_ITSELF = """
import sys
import types

sys.modules[__name__] = types.SimpleNamespace(VALUE=1)
"""
STATEMENTS = """
import smallsum


def timeraw_statement():
    return "pass"


def track_after_a_statement():
    return len(smallsum.table(10))
"""
FILES = {
    "benchmarks/children.py": CHILDREN,
    "benchmarks/native.py": NATIVE,
    "benchmarks/statements.py": STATEMENTS,
    "smallsum/extra.py": "def work():\n    return 1\n",
    "smallsum/formula.py": "1 + 1\n",
    "smallsum/beside.py": "1 + 1\n",
    "smallsum/cached.py": "VALUES = [1, 2]\n",
    "smallsum/other.py": "VALUE = 1\n",
    "smallsum/plugin.py": "VALUE = 1\n",
    "smallsum/removed.py": REPLACES_ITSELF,
    "smallsum/second.py": "VALUE = 1\n",
    "smallsum/late.py": "VALUE = 1\n",
    "tests/numbers.py": "VALUE = 1\n",
    "tests/test_other.py": "VALUE = 1\n",
    "docs/values.md": "1\n",
    "docs/other.md": "1\n",
    "data/values.txt": "1\n",
    "data/table.json": "{}\n",
    "smallsum/fast.so": "1\n",
    "smallsum/plugins.toml": "names = []\n",
}
RATIO = """
[[budget]]
benchmark = "time_second_call"
metric = "ratio"
over = "lazy.TornDown.time_nothing"
floor = 1e-9
unit = "x"
"""
ROWS = "^(lazy|children|native|statements)"
ARGUMENTS = ("--base", "main", "--no-timing", "--bench", ROWS)
NOT_RUN = "same files"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A repository in which one run has recorded what benchmarks import."""
    folder = tmp_path_factory.mktemp("imports")
    repository = make_repository(folder, RULES + RATIO)
    elsewhere = folder / "elsewhere.py"
    elsewhere.write_text("VALUE = 1\n")
    repository.write("benchmarks/lazy.py", SUITE.replace("{elsewhere}", str(elsewhere)))
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
    "lazy.track_computed_name",
    "lazy.track_elsewhere",
    "lazy.track_lazy",
    "lazy.track_of_a_test",
    "lazy.track_reads",
    "lazy.track_reads_a_page",
    "lazy.track_reads_beside_it",
    "lazy.track_removed_module",
    "statements.track_after_a_statement",
}


def test_a_record_that_a_change_commits_counts_for_nothing(tmp_path):
    repository = make_repository(tmp_path)
    repository.write(".asv/gate/imports.json", "{}")

    def keys():
        with checked_out(repository.root / "asv.conf.json", "main", WORKING_TREE) as sides:
            return Imports.read(repository.root / ".asv/gate", sides).keys

    assert keys()["base"] == keys()["head"]
    repository.git("add", "--force", ".asv/gate/imports.json")
    assert keys()["base"] != keys()["head"]


@pytest.mark.slow
def test_only_what_other_processes_may_decide_runs_where_no_imported_file_changed(repository):
    repository.replace("smallsum/other.py", "1", "3")
    run = repository.gate(*ARGUMENTS)
    assert not_run(run) == KNOWN
    assert "not running 14 of 19 benchmarks: no file that they use changed" in run.err
    assert "- not run, since no file that they use changed (14): `lazy." in run.out
    assert "`smallsum/other.py`" in run.out.partition("imported these changed files")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "benchmark"),
    [
        ("smallsum/extra.py", "1", "2 - 1", "time_lazy"),
        ("smallsum/formula.py", "1 + 1", "3 - 1", "track_reads"),
        ("smallsum/formula.py", "1 + 1", "1 + 1  # two", "track_reads"),
        ("smallsum/beside.py", "1 + 1", "3 - 1", "track_reads_beside_it"),
        ("smallsum/cached.py", "[1, 2]", "[2, 1]", "track_cached"),
        ("smallsum/plugin.py", "1", "2 - 1", "track_computed_name"),
        ("smallsum/removed.py", "VALUE=1", "VALUE=2 - 1", "track_removed_module"),
        ("smallsum/second.py", "1", "2 - 1", "time_second_call"),
        ("smallsum/late.py", "1", "2 - 1", "time_nothing"),
        ("tests/numbers.py", "1", "2 - 1", "track_of_a_test"),
    ],
)
def test_a_file_that_is_used_late_lets_its_benchmark_run(repository, file, old, new, benchmark):
    repository.replace(file, old, new)
    run = repository.gate(*ARGUMENTS)
    ran = KNOWN - not_run(run)
    assert any(name.endswith(benchmark) for name in ran), ran
    assert ran != KNOWN


@pytest.mark.slow
def test_a_change_of_tests_runs_nothing_that_uses_none(repository):
    repository.replace("tests/test_other.py", "1", "2")
    assert not_run(repository.gate(*ARGUMENTS)) == KNOWN


@pytest.mark.slow
def test_a_python_file_outside_of_the_repository_counts_if_it_is_used(repository):
    repository.replace("smallsum/other.py", "1", "3")
    elsewhere = repository.root.parent / "elsewhere.py"
    elsewhere.write_text("VALUE = 2 - 1\n")
    ran = KNOWN - not_run(repository.gate(*ARGUMENTS))
    assert "lazy.track_elsewhere" in ran
    assert ran != KNOWN
    elsewhere.write_text("VALUE = 1\n")
    repository.gate(*ARGUMENTS)  # it is recorded as it was again


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
    assert run.out.startswith("# PASSED: only documentation differs, so nothing was measured; 19 ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "other"),
    [
        ("smallsum/second.py", "lazy.TornDown.time_nothing"),
        ("smallsum/late.py", "lazy.time_second_call"),
    ],
)
def test_both_benchmarks_of_a_ratio_run_if_one_does(repository, changed, other):
    repository.replace(changed, "1", "2 - 1")
    assert other not in not_run(repository.gate(*ARGUMENTS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("smallsum/added.py", "VALUE = 1\n"),
        ("conftest.py", ""),
        ("sitecustomize.py", ""),
        ("data/values.txt", "2\n"),
        ("data/table.json", "[]\n"),
        ("smallsum/fast.so", "2\n"),
        ("smallsum/plugins.toml", 'names = ["smallsum.other"]\n'),
        ("tests/table.json", "{}\n"),
        ("benchmarks/added.py", "VALUE = 1\n"),
        ("poetry.lock", "numpy\n"),
        ("gate.toml", "[timing]\npair_s = 0.1\n"),
    ],
)
def test_all_run_where_what_decides_their_imports_may_have_changed(repository, file, text):
    repository.replace("smallsum/other.py", "1", "3")
    repository.write(file, text)
    assert not_run(repository.gate(*ARGUMENTS)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("file", ["pyproject.toml", "asv.conf.json"])
def test_all_run_where_another_line_of_a_configuration_differs(repository, file):
    with (repository.root / file).open("a") as configuration:
        configuration.write("\n")
    assert not_run(repository.gate(*ARGUMENTS)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("new", [None, "smallsum/renamed.py"])
def test_all_run_where_a_module_was_deleted_or_renamed(repository, new):
    if new is None:
        (repository.root / "smallsum" / "other.py").unlink()
    else:
        (repository.root / "smallsum" / "other.py").rename(repository.root / new)
    assert not_run(repository.gate(*ARGUMENTS)) == set()


@pytest.mark.slow
def test_all_run_where_only_a_workflow_differs_or_nothing(repository):
    assert not_run(repository.gate(*ARGUMENTS)) == set()
    repository.write(".github/workflows/gate.yml", "on: push\n")
    assert not_run(repository.gate(*ARGUMENTS)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["SMALLSUM_MODE", "PYTEST_ADDOPTS", "GITHUB_ACTIONS"])
def test_all_run_with_another_variable(repository, monkeypatch, variable):
    repository.replace("smallsum/other.py", "1", "3")
    monkeypatch.setenv(variable, "another")
    assert not_run(repository.gate(*ARGUMENTS)) == set()


@pytest.mark.slow
def test_all_run_with_time_identical_and_with_other_rules(repository):
    repository.replace("smallsum/other.py", "1", "3")
    assert not_run(repository.gate(*ARGUMENTS, "--time-identical")) == set()
    assert not_run(repository.gate(*ARGUMENTS, "--rules", "gate.toml")) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 0}', '{"version": 1}', '{"version": 1, "known": {"a": {"b": 1}}}'],
)
def test_records_that_cannot_be_read_count_for_nothing(repository, text):
    file = repository.root / ".asv" / "gate" / "imports.json"
    before = file.read_text()
    repository.replace("smallsum/other.py", "1", "3")
    file.write_text(text)
    try:
        assert not_run(repository.gate(*ARGUMENTS)) == set()
        assert json.loads(file.read_text())["version"] == 1
    finally:
        file.write_text(before)


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


@pytest.mark.slow
def test_a_new_benchmark_lets_the_one_run_that_a_ratio_compares_it_with(tmp_path):
    ratio = RATIO.replace("time_second_call", "time_new")
    ratio = ratio.replace("lazy.TornDown.time_nothing", "old.time_old")
    repository = make_repository(tmp_path, RULES + ratio)
    repository.write("benchmarks/old.py", "def time_old():\n    pass\n")
    repository.write("smallsum/other.py", "VALUE = 1\n")
    repository.commit()
    repository.write("benchmarks/new.py", "def time_new():\n    pass\n")
    repository.replace("smallsum/other.py", "1", "2")
    for _ in range(2):  # the second run finds a record
        run = repository.gate("--base", "main", "--bench", "^(old|new)", "--no-timing")
        assert run.verdicts() == {"new.time_new": "new", "old.time_old": "not timed"}


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
