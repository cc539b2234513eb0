"""Instructions by valgrind: of one call alone, and the same however busy the machine is."""

import shutil

import pytest

from gate_repository import make_repository

needs_valgrind = pytest.mark.skipif(
    not shutil.which("valgrind"), reason="valgrind is missing: apt install valgrind"
)
FAILS = '\n[[metric]]\nname = "cpu_instructions"\nworse = "more"\ntolerance = 0.03\n'


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path)


@pytest.mark.slow
@needs_valgrind
def test_valgrind_counts_the_calls_work_and_a_repository_may_let_it_fail(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 2")
    repository.write("gate.toml", (repository.root / "gate.toml").read_text() + FAILS)
    arguments = ("--base", "main", "--bench", "time_cached", "--no-timing")
    run = repository.gate(*arguments, "--instructions", "valgrind")
    assert run.code == 1, run.out
    (row,) = run.rows.values()
    found = {each["metric"]: each for each in row["changes"]}["cpu_instructions"]
    assert 1.5 < found["head"] / found["base"] < 2.5
    assert "the processor executes more instructions" in run.out
    assert "--instructions valgrind" in run.out


def test_where_valgrind_is_not_installed_one_sentence_says_so(repository, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    run = repository.gate("--base", "main", "--instructions", "valgrind")
    assert run.code == 2
    assert "--instructions valgrind needs valgrind, which is not installed" in run.err
