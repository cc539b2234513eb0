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
    ("env", "arms"),
    [
        ("cartpole-control", ["default", "precision"]),
        pytest.param("snake", ["attention", "flash-attention"], marks=pytest.mark.long),
    ],
    ids=["cartpole", "snake"],
)
def test_arms_alternate_and_have_rows_and_lines_of_their_own(tmp_path, capsys, env, arms):
    argv = ["--fast", "--rounds", "6", "--agent", "dqn", "--env", env]
    argv += [word for arm in arms for word in ("--arm", arm)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "SIZES", (32, 0, 64))
        assert main([*argv, "--output", str(tmp_path / "b.csv")]) == 0
    rows = read_csv(tmp_path / "b.csv")
    batches = [(arm, f"batch {size}") for arm in arms for size in (32, 64)]
    names = [size if arm == "default" else f"{arm}, {size}" for arm, size in batches]
    assert [row["arm"] for row in rows] == names
    assert all(float(row["steps_per_s"]) > 0 for row in rows)
    assert re.search(rf"\| {arms[-1]} \| +64 ", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent", ["dqn", *(pytest.param(name, marks=pytest.mark.long) for name in ("ppo", "pqn"))]
)
def test_a_compiled_pass_is_measured_beside_one_that_is_not(tmp_path, agent):
    argv = ["--rounds", "6", "--agent", agent, "--arm", "compile"]
    assert main([*argv, "--output", str(tmp_path / "b.csv")]) == 0
    rows = read_csv(tmp_path / "b.csv")
    assert [row["arm"] for row in rows] == ["compile, batch 32", "no-compile, batch 32"]
    compiled, uncompiled = (float(row["steps_per_s"]) for row in rows)
    # Not a wall time: both alternate, and one compiles to a program where the other is Python.
    assert compiled > uncompiled > 0
