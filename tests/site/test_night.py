"""A part of the night's workflow, whose outcome the site shows."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("command", "reason"),
    [("exit 0", ""), ("exit 3", "exit code 3"), ("sleep 60", "it took more than 0.2 seconds")],
)
def test_a_part_says_how_it_ended_and_keeps_the_day_of_its_last_success(command, reason, tmp_path):
    (tmp_path / "ci").mkdir()
    part = shutil.copy(ROOT / "ci" / "part.sh", tmp_path / "ci")
    file = tmp_path / "results" / "csv" / "parts" / "one.json"
    file.parent.mkdir(parents=True)
    day = "2026-01-01T00:00:00+00:00"
    file.write_text(json.dumps({"ended": day, "reason": "", "succeeded": day}))
    limit_s = "0.2" if command == "sleep 60" else "60"
    done = subprocess.run([part, "one", limit_s, "bash", "-c", command], check=False)
    found = json.loads(file.read_text())
    assert (done.returncode == 0, found["reason"]) == (not reason, reason)
    assert (found["succeeded"] == day, found["ended"] > day) == (bool(reason), True)
