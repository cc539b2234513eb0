"""The suite of batch sizes: its command measures every size and arm, and draws."""

import re

import pytest

from benchmarks.batch_size import main
from benchmarks.harness.results import read_csv
from myriad.autotune import batch


def test_the_command_writes_and_draws_a_row_for_every_size(monkeypatch, tmp_path, capsys):
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
    arms = {row["arm"]: row["status"] for row in read_csv(tmp_path / "b.csv")}
    assert arms == {"batch 128": "ok", "batch 512": "ok", "batch 2048": "refused"}
    assert re.search(r"512 .* chosen \|", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "agent", "arms"),
    [
        ("cartpole-control", "pqn", ["precision", "compile"]),
        pytest.param("snake", "dqn", ["attention", "flash-attention"], marks=pytest.mark.long),
        pytest.param("cartpole-control", "ppo", ["compile"], marks=pytest.mark.long),
        pytest.param("cartpole-control", "dqn", ["compile"], marks=pytest.mark.long),
    ],
)
def test_arms_alternate_and_have_rows_and_lines_of_their_own(
    tmp_path, capsys, monkeypatch, env, agent, arms
):
    argv = ["--fast", "--rounds", "6", "--agent", agent, "--env", env]
    argv += [word for arm in arms for word in ("--arm", arm)]
    monkeypatch.setattr(batch, "SIZES", (32, 0))
    assert main([*argv, "--output", str(tmp_path / "b.csv")]) == 0
    rates = {row["arm"]: float(row["steps_per_s"]) for row in read_csv(tmp_path / "b.csv")}
    names = [f"{arm}, batch 32" for arm in arms]
    uncompiled = ["no-compile, batch 32"] * ("compile" in arms)
    assert list(rates) == names + uncompiled
    assert all(rate > 0 for rate in rates.values())
    assert re.search(rf"\| +{arms[-1]} \| +32 ", capsys.readouterr().out)
    if uncompiled:
        # Not a wall time: both alternate, and one compiles to a program where the other is Python.
        assert rates["compile, batch 32"] > rates["no-compile, batch 32"]
