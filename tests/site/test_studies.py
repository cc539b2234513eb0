"""The section of studies shows what a tuner's files say, and leaves out what is damaged."""

import json
from pathlib import Path

import pytest
from published_results import BUILT, read

from ci.site.build import publish

CANDIDATE = {
    "number": 3,
    "score": {"value": 12.0},
    "difference": 2.0,
    "low": 1.0,
    "high": 3.0,
    "verdict": "better",
}
CONTENT = {
    "study": "maze",
    "env": "my:Maze",
    "agent": "ppo",
    "trials": [{"state": "COMPLETE"}, {"state": "COMPLETE"}, {"state": "PRUNED"}],
    "best": {"values": [11.0]},
    "command": "train maze --lr 0.1",
    "confirmation": {
        "default": {"score": {"value": 10.0}},
        "candidates": [CANDIDATE],
        "seeds": [1, 2, 3, 4, 5],
    },
    "hardware": {"device_name": "a processor", "cores": 2},
}


def write(folder: Path, name: str = "maze", **changed) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}_results.json"
    path.write_text(json.dumps(CONTENT | changed))
    return path


def test_a_study_stands_beside_its_default_with_the_interval_of_the_difference(tmp_path):
    write(tmp_path / "results" / "tuning")
    (tmp_path / "results" / "tuning" / "maze_history.html").write_text("<p>drawn</p>")
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    page = read(tmp_path / "site", "comparison.html")
    for shown in (">10<", ">12<", "+2 <small>1 to 3</small>", ">better<", "train maze --lr 0.1"):
        assert shown in page, shown
    assert "2 completed, 1 pruned" in page
    assert read(tmp_path / "site", "studies/maze_history.html") == "<p>drawn</p>"
    assert json.loads(read(tmp_path / "site", "data/raw/maze_results.json")) == CONTENT


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"best": None, "command": None, "confirmation": None}, "no trial was completed"),
        ({"confirmation": None}, "not confirmed"),
        ({"confirmation": {"default": None, "candidates": [CANDIDATE]}}, "not confirmed"),
    ],
)
def test_what_was_not_done_is_said(tmp_path, changed, says):
    write(tmp_path / "results" / "tuning", **changed)
    publish(tmp_path / "results", tmp_path / "site", BUILT, repository=tmp_path)
    assert says in read(tmp_path / "site", "comparison.html")
