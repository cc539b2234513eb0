"""Which functions a change alters, which of them ran, and whom the change can't have reached."""

import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath

import pytest

from gate_repository import RULES, make_repository
from perfgate.source.functions import altered
from perfgate.worker.executed import Executed

HERE = Path(__file__).name
BEFORE = """
import functools
LIMIT = 3

def plain(x, y=1):
    return x + y

@functools.cache
def table():
    return 1

class Shape:
    sides = 4

    def area(self):
        def inner():
            return 1
        return inner()
"""


@pytest.mark.parametrize(
    ("old", "new", "functions", "modules"),
    [
        ("return x + y", "return y + x", {"m.py:plain"}, set()),
        ("            return 1\n        return inner", "            return 2\n        return inner",
         {"m.py:Shape.area"}, set()),
        ("y=1", "y=2", set(), {"m.py"}),
        ("LIMIT = 3", "LIMIT = 4", set(), {"m.py"}),
        ("sides = 4", "sides = 3", set(), {"m.py"}),
        ("def plain", "def renamed", set(), {"m.py"}),
        ("def table():\n    return 1", "def table():\n    return 2", set(), {"m.py"}),
        ("def area(self):", "def area(self:", set(), {"m.py"}),
    ],
)  # fmt: skip
def test_a_change_is_of_functions_only_where_nothing_else_differs(
    tmp_path, old, new, functions, modules
):
    for name, text in (("base", BEFORE), ("head", BEFORE.replace(old, new))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.py").write_text(text)
    found = altered(tmp_path / "base", tmp_path / "head", [PurePosixPath("m.py")])
    assert (found.functions, found.modules, found.others) == (functions, modules, set())


def test_new_files_and_files_that_are_not_python_are_changed_as_a_whole(tmp_path):
    (tmp_path / "new.py").write_text("")
    paths = [PurePosixPath("new.py"), PurePosixPath("data.csv")]
    found = altered(tmp_path / "nothing", tmp_path, paths)
    assert (found.modules, found.others) == ({"new.py"}, {"data.csv"})
    assert found.reach([], []) == ["data.csv"]
    assert found.reach([], ["new.py"]) == ["data.csv", "new.py"]


def test_a_function_inside_of_another_counts_as_the_outer_one(tmp_path):
    for name, value in (("base", 1), ("head", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.py").write_text(f"def f():\n    return lambda: {value}\n")
    found = altered(tmp_path / "base", tmp_path / "head", [PurePosixPath("m.py")])
    assert found.reach(["m.py:f.<locals>.<lambda>"], []) == ["m.py:f"]
    assert found.reach(["m.py:g"], []) == []


def _leaf():
    return 1


class _Thing:
    def method(self):
        return [_leaf() for _ in range(2)]


def test_functions_of_every_thread_are_recorded_while_the_block_runs():
    executed = Executed(Path(__file__).parent)
    _Thing()
    with executed.recorded():
        thread = threading.Thread(target=_Thing().method)
        thread.start()
        thread.join()
    assert {f"{HERE}:_leaf", f"{HERE}:_Thing.method"} <= executed.names
    assert not any(name.endswith("parametrize") for name in executed.names)


def _numbers():
    yield 1
    yield 2


def test_a_generator_that_goes_on_in_the_block_is_recorded():
    executed = Executed(Path(__file__).parent)
    numbers = _numbers()
    next(numbers)
    with executed.recorded():
        next(numbers)
    assert f"{HERE}:_numbers" in executed.names


def test_no_function_is_recorded_where_nobody_may_use_the_record():
    executed = Executed(Path(__file__).parent)
    with executed.recorded(functions=False):
        _Thing().method()
    assert executed.names == set()


def test_a_process_that_was_started_is_noticed():
    # In a new interpreter: other tests may leave a process to this one, such as a fork server.
    source = """
import subprocess, sys
from pathlib import Path
from perfgate.worker.executed import Executed

executed = Executed(Path.cwd())

def started_processes(act):
    with executed.recorded():
        act()
    print(not executed.is_whole)

children = []
started_processes(lambda: None)
started_processes(lambda: subprocess.run([sys.executable, "-c", ""], check=True))
started_processes(lambda: None)
start = [sys.executable, "-c", "input()"]
started_processes(lambda: children.append(subprocess.Popen(start, stdin=subprocess.PIPE)))
started_processes(lambda: None)
children[0].communicate(b"\\n")
started_processes(lambda: None)
"""
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "False", "True", "True", "False"]


ROWS = """
import smallsum

VALUES = smallsum.table(10_000)

def time_table():
    smallsum.table(10_000)

def time_total():
    smallsum.total(VALUES)

def timeraw_table():
    return "import smallsum; smallsum.table(10_000)"
"""


# A busy machine needs more pairs for a verdict. An idle one has it after a few.
MANY_LOOKS = RULES.replace("looks = [3, 4, 6, 9]", "looks = [3, 4, 6, 9, 16, 32]")


@pytest.fixture
def repository(tmp_path):
    made = make_repository(tmp_path, MANY_LOOKS)
    made.write("benchmarks/more.py", ROWS)
    made.commit()
    return made


@pytest.mark.slow
def test_only_benchmarks_that_run_a_changed_function_are_timed(repository):
    repository.replace("smallsum/__init__.py", "range(REPEATS)", "range(REPEATS + 5)")
    run = repository.gate("--base", "main", "--bench", "^more|cached")
    assert run.code == 1, run.out + run.err
    assert run.verdicts() == {
        "more.time_table": "same functions",
        "more.time_total": "slower",
        "basics.Cached.time_cached": "slower",
        # It runs no changed function either, but in another process, which nobody sees.
        "more.timeraw_table": "not slower",
    }


@pytest.mark.slow
def test_a_changed_constant_or_file_of_data_reaches_all(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    run = repository.gate("--base", "main", "--bench", "time_table")
    assert run.verdicts() == {"more.time_table": "not slower"}
    repository.git("checkout", "--quiet", ".")
    repository.write("smallsum/table.csv", "1\n")
    run = repository.gate("--base", "main", "--bench", "time_table")
    assert run.verdicts() == {"more.time_table": "not slower"}


@pytest.mark.slow
def test_what_setup_cache_ran_belongs_to_all_who_use_it(repository):
    repository.replace("smallsum/__init__.py", "number**2", "number**2.0")
    run = repository.gate("--base", "main", "--bench", "cached")
    assert run.verdicts() == {"basics.Cached.time_cached": "not slower"}


COMPILES = """
import sys
import types

sys.modules.setdefault("numba", types.ModuleType("numba"))


def time_first():
    pass


def time_second():
    pass


def _refuse_a_profiler():
    assert sys.getprofile() is None


time_second.setup = _refuse_a_profiler
"""


@pytest.mark.slow
def test_no_profiler_watches_what_a_compiler_may_run_unseen(repository):
    repository.write("benchmarks/compiles.py", COMPILES)
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2 - 1")
    run = repository.gate("--base", "main", "--bench", "^compiles", "--no-timing")
    assert run.code == 0, run.out + run.err


COMPILER = """
import sys
import types


def time_loads_a_compiler():
    sys.modules["numba"] = types.ModuleType("numba")
"""
# The benchmark that dies ends the worker that has loaded a compiler.
CACHED = """
import os

import smallsum


class Cached:
    def setup_cache(self):
        return smallsum.total(range(10))

    def time_b_dies(self, total):
        os._exit(1)

    def time_c(self, total):
        pass
"""


@pytest.mark.slow
def test_what_setup_cache_ran_unseen_in_another_worker_is_not_taken_for_nothing(repository):
    repository.write("benchmarks/unseen_1.py", COMPILER)
    repository.write("benchmarks/unseen_2.py", CACHED)
    repository.commit()
    repository.replace("smallsum/__init__.py", "range(REPEATS)", "range(REPEATS + 5)")
    run = repository.gate("--base", "main", "--bench", "^unseen", "--budget", "0")
    assert run.verdicts() == {
        "unseen_1.time_loads_a_compiler": "undecided",
        "unseen_2.Cached.time_b_dies": "broken before",
        "unseen_2.Cached.time_c": "undecided",
    }
