"""The comparison with brax's PPO: its table, its rows, and both where brax is installed."""

import csv
import time

import pytest

from benchmarks import learning
from benchmarks.harness import process
from benchmarks.opponents import brax_ppo


def test_the_table_has_a_line_for_each_point_and_the_file_a_row(monkeypatch, tmp_path, capsys):
    def run(target, request, **_):
        assert request["own"]
        shift = 2 * request["seed"] + 100 * target.endswith("theirs")
        points = [[step, 10 + step + shift, 20 + step, 30 + shift] for step in (1_000, 2_000)]
        return {"points": points}

    monkeypatch.setattr(process, "run", run)
    path = tmp_path / "curves.csv"
    flags = ["--against", "brax", "--own", "--seeds", "2", "--steps", "2000"]
    assert learning.main([*flags, "--output", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == [
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
@pytest.mark.parametrize("library", brax_ppo.TRAINERS)
def test_both_take_the_same_steps_and_are_judged(library, own):
    pytest.importorskip("brax")
    target = f"benchmarks.opponents.brax_ppo:{brax_ppo.TRAINERS[library].__name__}"
    request = {"started": time.time(), "num_steps": 1, "seed": 0, "own": own}
    points = process.run(target, request, timeout_s=1_200)["points"]
    batch = brax_ppo.NUM_ENVS * brax_ppo.ROLLOUT_STEPS
    assert [steps for steps, *_ in points] == [
        batch * (point + 1) for point in range(brax_ppo.NUM_POINTS)
    ]
    seconds = [wall for _, wall, _, _ in points]
    assert seconds == sorted(seconds)
    assert all(0 < returned < 2_000 for *_, returned in points)
