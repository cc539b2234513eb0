"""The comparison with brax's PPO: its table, its rows, and both sides where brax is installed."""

import csv
import time

import pytest

from benchmarks import learning_brax
from benchmarks.harness import process


def test_the_table_has_a_line_for_each_point_and_the_file_a_row(monkeypatch, tmp_path, capsys):
    def run(target, request, **_):
        assert request["own"]
        shift = 2 * request["seed"] + 100 * target.endswith("theirs")
        points = [[step, 10 + step + shift, 20 + step, 30 + shift] for step in (1_000, 2_000)]
        return {"points": points}

    monkeypatch.setattr(process, "run", run)
    path = tmp_path / "curves.csv"
    flags = ["--own", "--seeds", "2", "--num-steps", "2000", "--output", str(path)]
    assert learning_brax.main(flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| 1,000 | 31 (30 to 32) | 1011 | 1020 | 131 (130 to 132) | 1111 | 1020 |",
        "| 2,000 | 31 (30 to 32) | 2011 | 2020 | 131 (130 to 132) | 2111 | 2020 |",
    ]
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["library"] for row in rows] == ["myriad", "myriad", "brax", "brax"] * 2
    assert rows[-1]["seed"] == "1"
    assert float(rows[-1]["return"]) == 132


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # brax warns of what JAX will change
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("side", learning_brax.SIDES)
def test_both_sides_take_the_same_steps_and_are_judged(side, own):
    pytest.importorskip("brax")
    target = f"benchmarks.learning_brax:{learning_brax.SIDES[side].__name__}"
    request = {"started": time.time(), "num_steps": 1, "seed": 0, "own": own}
    points = process.run(target, request, timeout_s=1_200)["points"]
    batch = learning_brax.NUM_ENVS * learning_brax.ROLLOUT_STEPS
    assert [steps for steps, *_ in points] == [
        batch * (point + 1) for point in range(learning_brax.NUM_POINTS)
    ]
    seconds = [wall for _, wall, _, _ in points]
    assert seconds == sorted(seconds)
    assert all(0 < returned < 2_000 for *_, returned in points)
