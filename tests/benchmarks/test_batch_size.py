"""The suite of batch sizes: its command measures every size and variant."""

import re

import pytest

from benchmarks.batch_size import main
from myriad.autotune import batch
from tests.benchmarks.csv_rows import read_csv


def test_the_command_writes_a_row_for_every_size(monkeypatch, tmp_path, capsys):
    measured = [
        batch.BatchRate(128, 1e5, 0.9e5, 1.1e5, 1 << 20),
        batch.BatchRate(512, 2e5, 1.9e5, 2.1e5, 1 << 20),
        batch.BatchRate(2_048, None, None, None, 1 << 40, "needs 1 TiB, and 1 MiB are free"),
    ]
    monkeypatch.setattr(
        batch, "measure_arms", lambda arms, sizes, rounds: dict.fromkeys(arms, measured)
    )
    # What was refused makes the exit code 1.
    assert main(["--agent", "ppo", "--output", str(tmp_path / "b.csv")]) == 1
    statuses = {row["arm"]: row["status"] for row in read_csv(tmp_path / "b.csv")}
    assert statuses == {"batch 128": "ok", "batch 512": "ok", "batch 2048": "refused"}
    assert re.search(r"512 .* chosen \|", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "agent", "variants"),
    [
        ("cartpole-control", "pqn", ["default", "precision"]),
        pytest.param("snake", "dqn", ["attention", "flash-attention"], marks=pytest.mark.long),
    ],
)
def test_variants_alternate_and_have_rows_and_lines_of_their_own(
    tmp_path, capsys, monkeypatch, env, agent, variants
):
    argv = ["--fast", "--rounds", "6", "--agent", agent, "--env", env]
    argv += [word for variant in variants for word in ("--variant", variant)]
    monkeypatch.setattr(batch, "SIZES", (32, 0))
    assert main([*argv, "--output", str(tmp_path / "b.csv")]) == 0
    rates = {row["arm"]: float(row["steps_per_s"]) for row in read_csv(tmp_path / "b.csv")}
    names = ["batch 32" if each == "default" else f"{each}, batch 32" for each in variants]
    assert list(rates) == names
    assert all(rate > 0 for rate in rates.values())
    assert re.search(rf"\| +{variants[-1]} \| +32 ", capsys.readouterr().out)
