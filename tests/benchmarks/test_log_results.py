"""A file of results can be logged to Weights & Biases under a project, a name and tags."""

import os
import subprocess
import sys

import pytest

from benchmarks.harness.results import COLUMNS
from benchmarks.log_results import main, numbers_of


def a_file(folder):
    row = dict.fromkeys(COLUMNS, "") | {
        "suite": "throughput",
        "library": "myriad",
        "env": "cartpole-control",
        "agent": "random",
        "num_envs": "1000",
        "steps_per_s": "2468.5",
        "status": "ok",
        "timestamp": "20260101T000000Z",
    }
    file = folder / "throughput_cpu.csv"
    file.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    return file, row


def test_the_numbers_of_a_row_are_those_of_its_columns(tmp_path):
    _, row = a_file(tmp_path)
    assert numbers_of(row) == {"num_envs": 1000.0, "steps_per_s": 2468.5}


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["missing.csv"], "results missing.csv can't be read"),
        ([], "the following arguments are required: FILE"),
        (["missing.csv", "--wandb-tags"], "argument --wandb-tags: expected at least one argument"),
    ],
)
def test_what_cannot_be_logged_is_refused(argv, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith(sentence)


def test_without_wandb_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main([str(a_file(tmp_path)[0])]) == 2
    assert "pip install wandb" in capsys.readouterr().err


@pytest.mark.slow
def test_rows_and_names_reach_the_run(tmp_path):
    pytest.importorskip("wandb")
    file, _ = a_file(tmp_path)
    names = ["--wandb-project", "speed", "--wandb-name", "mine", "--wandb-tags", "one", "two"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.log_results", str(file), *names],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"WANDB_MODE": "offline", "HOME": str(tmp_path)},
    )
    assert "1 rows are logged as mine of speed" in done.stdout
    (run,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    stored = run.read_bytes()
    for word in (b"speed", b"mine", b"one", b"two", b"2468.5"):
        assert word in stored
