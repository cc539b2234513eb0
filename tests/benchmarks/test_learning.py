"""The learning targets: how they are counted, and that each is written as soon as it is known."""

import myriad
from benchmarks import learning


def run(first, final):
    return {"seed": 0, "first": first, "final_return": final}


def test_a_target_counts_what_was_in_time_and_what_held():
    runs = [run(20_000, 500.0), run(60_000, 480.0), run(None, 100.0)]
    assert learning.kept(learning.TARGETS[0], runs) == (1, 2)


class Trained:
    """Stands in for the training; the second target's is interrupted."""

    num_envs = 16

    def __init__(self, target):
        self.target = target

    def train(self, seed):
        if self.target is not learning.TARGETS[0]:
            raise KeyboardInterrupt
        return run(20_000, 500.0)


def test_what_was_trained_is_written_target_by_target(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(myriad, "configure", lambda: None)
    monkeypatch.setattr(learning, "Learning", Trained)
    assert learning.main(["--seeds", "2", "--output", str(tmp_path / "runs.csv")]) == 130
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3
    line = capsys.readouterr().out.splitlines()[-1]
    assert "| 2 of 2 by 50,000 | 500 to 500 | 2 of 2 at 475 after 150,000 |" in line
