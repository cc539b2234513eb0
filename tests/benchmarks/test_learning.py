"""The learning targets: how they are counted, and one of them kept at a reduced size."""

from pathlib import Path

import pytest

import myriad
from benchmarks import learning
from benchmarks.harness.files import write_rows


def run(first, final):
    return learning.Run("cartpole-control", "ppo", 16, 0, first, 150_000, final)


def test_a_target_counts_what_was_in_time_and_what_held():
    target = learning.TARGETS[0]
    runs = [run(20_000, 500.0), run(60_000, 480.0), run(None, 100.0)]
    assert learning.kept(target, runs) == (1, 2)
    assert "1 of 3 by 50,000" in learning.row(target, runs)
    assert "2 of 3 at 475 after 150,000" in learning.row(target, runs)


def test_rows_are_written(tmp_path: Path):
    write_rows(tmp_path / "runs.csv", learning.Run, [run(20_000, 500.0)])
    assert (tmp_path / "runs.csv").read_text().splitlines()[
        1
    ] == "cartpole-control,ppo,16,0,20000,150000,500.0"


class Trained:
    """Stands in for the training; the second target's is interrupted."""

    def __init__(self, target):
        self.target = target

    def train(self, seed):
        if self.target is not learning.TARGETS[0]:
            raise KeyboardInterrupt
        return run(20_000, 500.0)


def test_what_was_trained_is_written_target_by_target(tmp_path, monkeypatch):
    monkeypatch.setattr(myriad, "configure", lambda: None)
    monkeypatch.setattr(learning, "Learning", Trained)
    assert learning.main(["--seeds", "2", "--output", str(tmp_path / "runs.csv")]) == 130
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--seeds", "0"], "must be a whole number of at least 1, but got '0'"),
        (["--seeds", "-1"], "must be a whole number of at least 1, but got '-1'"),
        (["--agent", "pid"], "invalid choice: 'pid'"),
        (
            ["--output", "nowhere/runs.csv"],
            "nowhere/runs.csv can't be written: No such file or directory",
        ),
    ],
)
def test_a_wrong_flag_is_one_sentence_before_anything_trains(
    argv, sentence, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learning, "Learning", lambda target: pytest.fail("it trained"))
    assert learning.main(argv) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_ppo_reaches_its_target_on_a_fresh_seed():
    target = learning.LearningTarget(
        "cartpole-control", "ppo", 475.0, 50_000, 1, 475.0, 60_000, 1, 1
    )
    result = learning.Learning(target).train(seed=0)
    assert learning.kept(target, [result]) == (1, 1)
