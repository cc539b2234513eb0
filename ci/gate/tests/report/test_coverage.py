"""What a report says of itself: files nobody imported, rows nobody timed, a suite that changed."""

import json

import pytest

from gate_repository import make_repository

TOTAL = "basics.Total.time_total"


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path)


NEW_SUITE = """
import random

class Unseeded:
    def setup(self):
        self.values = [random.random() for _ in range(100)]

    def time_sum(self):
        sum(self.values)

class Seeded:
    def setup(self):
        rng = random.Random(0)
        self.values = [rng.random() for _ in range(100)]

    def time_sum(self):
        self.values = [sum(self.values)]

class Unknown:
    def setup(self):
        self.values = lambda: random.random()

    def time_sum(self):
        pass

def track_fails():
    import smallsum.unused

    1 / 0
"""


@pytest.mark.slow
def test_what_a_change_does_to_its_own_measuring_and_what_nothing_reached_is_shown(repository):
    repository.write("benchmarks/inputs.py", NEW_SUITE)
    repository.write("smallsum/unused.py", "VALUE = 1\n")
    repository.write("smallsum/note.txt", "not a module\n")
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 1 + 0")
    repository.replace("benchmarks/basics.py", "[1_000, 20_000]", "[1_000, 2_000]")
    repository.replace("gate.toml", "fail_ratio = 1.3", "fail_ratio = 2.1")
    repository.write("accepted.toml", "# Nothing yet.\n")
    run = repository.gate("--base", "main", "--bench", "note|fails|time_sum|Cached", "--no-timing")
    found = json.loads(run.report.read_text())["coverage"]
    assert found["not_imported"] == ["smallsum/unused.py"]
    known = "none of the benchmarks whose imports are known (5 of 6) imported these changed files"
    assert f"- {known} (1): `smallsum/unused.py`." in run.out
    assert len(found["measures"].pop("benchmarks/inputs.py")) == 29
    assert found["measures"] == {
        "benchmarks/basics.py": [
            "-    params = ([1_000, 20_000],)",
            "+    params = ([1_000, 2_000],)",
        ],
        "gate.toml": ["-fail_ratio = 1.3", "+fail_ratio = 2.1"],
        "accepted.toml": ["+# Nothing yet."],
    }
    assert "This change alters `gate.toml`, which decides how the change is measured:" in run.out
    assert "\n+fail_ratio = 2.1\n" in run.out
    assert "... and 9 more lines" in run.out  # of the new module
    assert found["random_inputs"] == ["inputs.Unseeded.time_sum"]
    assert "- setup makes different inputs each time; seed it (1): `inputs.Unseeded" in run.out


def test_rows_of_the_same_code_are_named_as_not_timed(repository):
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 1  # once")
    run = repository.gate("--base", "main", "--bench", "time_total")
    assert run.code == 0
    assert "- not timed, since both sides run the same program or code (2): `basics" in run.out
    assert "- Nothing was timed. The run took" in run.out
    assert "`finds`:" not in run.out


@pytest.mark.slow
def test_a_benchmark_that_this_change_skips_is_not_neutral(repository):
    setup = "        self.values = smallsum.table(size)"
    repository.replace("benchmarks/basics.py", setup, "        raise NotImplementedError")
    run = repository.gate("--base", "main", "--bench", "time_total|time_absent", "--no-timing")
    assert run.code == 3
    assert set(run.verdicts().items()) >= {
        (f"{TOTAL}(1000)", "could not measure"),
        ("basics.Absent.time_absent", "skipped"),  # as it was before
    }
    assert "the base's suite runs it, but this change's suite skips it" in run.out
