"""The learning targets: how they are counted, and that each is written as soon as it is known."""

import myriad
from benchmarks import learning


class Trained:
    """Stands in for the training; the second target's is interrupted."""

    num_envs = 16

    def __init__(self, target):
        self.target = target

    def train(self, seed):
        if self.target is not learning.TARGETS[0]:
            raise KeyboardInterrupt
        first, final = [(20_000, 500.0), (60_000, 480.0), (None, 100.0)][seed]
        return {"seed": seed, "first": first, "final_return": final}


def test_what_was_trained_is_counted_and_written_target_by_target(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(myriad, "configure", lambda: None)
    monkeypatch.setattr(learning, "Learning", Trained)
    assert learning.main(["--seeds", "3", "--output", str(tmp_path / "runs.csv")]) == 130
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 4
    line = capsys.readouterr().out.splitlines()[-1]
    assert "| 1 of 3 by 50,000 | 100 to 500 | 2 of 3 at 475 after 150,000 |" in line
