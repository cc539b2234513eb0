"""The attack on what is saved, in short. `python -m tests.attack` is the long one."""

import pytest

from tests.attack.disks import disks
from tests.attack.faults import table
from tests.attack.flips import flips
from tests.attack.kills import kills
from tests.attack.outcomes import Row
from tests.attack.together import together

pytestmark = pytest.mark.long


def assert_held(rows):
    """Hold rows to what `docs/reliability.md` promises."""
    assert not [row for row in rows if row.is_finding]


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("MYRIAD_HOME", str(tmp_path / "home"))


def new_folder(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_damaged_file_changes_no_result_or_is_named(tmp_path):
    rows = list(flips(new_folder(tmp_path), 40, seed=0))
    assert_held(rows)
    assert {"same", "refused"} <= {row.outcome for row in rows}


def test_a_kill_at_any_operation_leaves_what_was_saved(tmp_path):
    assert_held(list(kills(new_folder(tmp_path), 8, seed=0)))


def test_a_bad_disk_is_said_in_a_sentence_and_spoils_nothing(tmp_path):
    rows = list(disks(new_folder(tmp_path), 3, seed=1))
    assert_held(rows)
    if all(row.outcome.startswith("skipped") for row in rows):
        pytest.skip(rows[0].outcome)


def test_processes_that_work_at_once_lose_nothing(tmp_path):
    assert_held(list(together(new_folder(tmp_path), 8)))


def test_the_table_counts_what_came_of_each_kind():
    rows = [Row("flip", "a", "same"), Row("flip", "b", "same"), Row("flip", "c", "FINDING: lost")]
    assert table(rows).splitlines()[2:] == ["| flip | 3 | 2 same, 1 finding |"]
