"""What a report says of itself: files nobody imported, rows nobody timed, a suite that changed."""

import json

import pytest

NEW_SUITE = """
def time_sum():
    sum(range(100))

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
    run = repository.count(3, "note|fails|time_sum|Cached")
    found = json.loads(run.report.read_text())["coverage"]
    assert found["not_imported"] == ["smallsum/unused.py"]
    known = "none of the benchmarks whose imports are known (3 of 4) imported these changed files"
    assert f"- {known} (1): `smallsum/unused.py`." in run.out
    names = ["benchmarks/basics.py", "benchmarks/inputs.py", "gate.toml", "accepted.toml"]
    assert found["measures"] == names
    assert "- this change also alters how it is measured (4): `benchmarks/basics.py`," in run.out
