"""Instructions by valgrind: of one call alone, and the same however busy the machine is."""

import shutil

import pytest

from gate_repository import make_repository

CACHED = "basics.time_cached"
needs_valgrind = pytest.mark.skipif(
    not shutil.which("valgrind"), reason="valgrind is missing: apt install valgrind"
)
FAILS = '\n[[metric]]\nname = "cpu_instructions"\nworse = "more"\ntolerance = 0.03\n'


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path)


def instructions(run, name):
    """What a report says of a row's instructions."""
    return {each["metric"]: each for each in run.rows[name]["changes"]}["cpu_instructions"]


@pytest.mark.slow
@needs_valgrind
def test_valgrind_counts_the_calls_work_and_a_repository_may_let_it_fail(repository):
    before = "return [1.0 * number**2 for number in range(size)]"
    repository.replace("smallsum/__init__.py", before, before.replace("1.0", "2.0"))
    arguments = ("--base", "main", "--bench", "time_cached", "--no-timing")
    run = repository.gate(*arguments, "--instructions", "valgrind")
    (name,) = run.rows
    found = instructions(run, name)
    assert 0.99 < found["head"] / found["base"] < 1.01
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    run = repository.gate(*arguments, "--instructions", "valgrind")
    found = instructions(run, name)
    assert 1.5 < found["head"] / found["base"] < 2.5
    assert run.code == 0, run.out
    repository.write("gate.toml", (repository.root / "gate.toml").read_text() + FAILS)
    run = repository.gate(*arguments, "--instructions", "valgrind")
    assert run.code == 1, run.out
    assert "the processor executes more instructions" in run.out
    assert "--instructions valgrind" in run.out


def test_where_valgrind_is_not_installed_one_sentence_says_so(repository, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    run = repository.gate("--base", "main", "--instructions", "valgrind")
    assert run.code == 2
    assert "--instructions valgrind needs valgrind, which is not installed" in run.err
