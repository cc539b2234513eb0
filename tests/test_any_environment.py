"""Environments that nobody here wrote: every learner trains in them, and none ends the process.

`make environments-report` tries all of gymnax's and any number of generated ones.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import environments_report as report

# What once ended the process, or was refused for it: each paints a grid with one indexed update.
PAINTED = ("Catch-bsuite", "SpaceInvaders-MinAtar")


def outcomes(cases):
    return {(row["outcome"], row["reason"]) for row in report.rows(cases)}


@pytest.mark.long
@pytest.mark.parametrize("name", PAINTED)
def test_every_learner_trains_where_a_grid_is_painted(name):
    cases = [[f"gymnax:{name}", {}, agent] for agent in ("ppo", "dqn")]
    assert outcomes(cases) == {("ok", "")}


@pytest.mark.long
def test_learners_train_in_generated_environments():
    for batch in report.generated_cases(8):
        assert outcomes(batch) == {("ok", "")}


@pytest.mark.long
def test_a_case_that_ends_its_process_is_a_row_and_the_next_one_is_tried(tmp_path, monkeypatch):
    (tmp_path / "this_aborts.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cases = [
        ["os:abort", {}, "random"],  # no environment, which is a refusal
        ["this_aborts:Env", {}, "random"],
        ["no:such", {}, "random"],
    ]
    found = list(report.rows(cases))
    assert [row["outcome"] for row in found] == ["refused", "died", "refused"]
    assert "exit code -6" in found[1]["reason"]
