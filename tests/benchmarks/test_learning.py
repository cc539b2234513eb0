"""The learning targets: how they are counted, and that each is written as soon as it is known."""

import myriad
from benchmarks import learning


def train(target, seeds):
    """Stand in for the training; the second target's is interrupted."""
    if target is not learning.TARGETS[0]:
        raise KeyboardInterrupt
    ends = [(20_000, 500.0), (60_000, 480.0), (None, 100.0)]
    for seed, (first, final) in zip(seeds, ends, strict=True):
        yield {"num_envs": 16, "seed": seed, "first": first, "final_return": final}


def test_what_was_trained_is_counted_and_written_target_by_target(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(myriad, "configure", lambda: None)
    monkeypatch.setattr(learning, "train", train)
    assert learning.main(["--seeds", "3", "--output", str(tmp_path / "runs.csv")]) == 130
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 4
    line = capsys.readouterr().out.splitlines()[-1]
    assert "| 1 of 3 by 50,000 | 100 to 500 | 2 of 3 at 475 after 150,000 |" in line
