"""The suite of batch sizes: its command measures every size and variant."""

import re

from benchmarks.batch_size import main
from benchmarks.harness.results import read_csv
from myriad.autotune import batch


def test_the_command_writes_a_row_for_every_size(monkeypatch, tmp_path, capsys):
    measured = [
        batch.BatchRate(128, 1e5, 0.9e5, 1.1e5, 1 << 20),
        batch.BatchRate(512, 2e5, 1.9e5, 2.1e5, 1 << 20),
        batch.BatchRate(2_048, None, None, None, 1 << 40, "needs 1 TiB, and 1 MiB are free"),
    ]
    monkeypatch.setattr(
        batch, "measure_arms", lambda arms, sizes, rounds: dict.fromkeys(arms, measured)
    )
    flags = ["--agent", "ppo", "--variant", "default", "--variant", "precision"]
    # What was refused makes the exit code 1.
    assert main([*flags, "--output", str(tmp_path / "b.csv")]) == 1
    statuses = {row["arm"]: row["status"] for row in read_csv(tmp_path / "b.csv")}
    of_default = {"batch 128": "ok", "batch 512": "ok", "batch 2048": "refused"}
    of_precision = {f"precision, {name}": status for name, status in of_default.items()}
    assert statuses == of_default | of_precision
    printed = capsys.readouterr().out
    for variant in ("default", "precision"):
        assert re.search(rf"{variant} \| +512 .* chosen \|", printed)
