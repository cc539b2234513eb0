"""The monitor, films and traces: each at its interval, none in the way of the results."""

import json
from pathlib import Path

import pytest

from myriad import create_config, train_and_evaluate
from myriad.cli import main
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import PHASES
from myriad.training.run_folder import RunFolder
from tests.training.small import PPO, SIZES, flags_of, small_config

# Ten evaluations, in the programs of the small training.
TEN = {"steps_per_env": 80, "eval_frequency": 8}


def train(folder, **options):
    return train_and_evaluate(small_config(**TEN | options), folder, quiet=True)


@pytest.mark.slow
def test_rows_films_and_what_trackers_get_come_at_their_intervals_and_change_nothing(tmp_path):
    pytest.importorskip("tensorboardX")
    watched, plain = tmp_path / "watched", tmp_path / "plain"
    train(watched, monitor_every=3, film_every=4, log_to=["tensorboard"])
    lines = (watched / "monitor.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [row["update"] for row in found] == [3, 6, 9]
    for row in found:
        shares = [row[f"{name}_share"] for name in (*PHASES, "host")]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
        assert row["steps_per_s"] > 0
        assert 0 < row["device_utilisation"] <= 1
        assert row["process_memory_bytes"] > 1 << 20
    films = sorted(watched.glob("films/*.gif"), key=lambda path: int(path.stem))
    assert [int(path.stem) for path in films] == [4, 8]
    assert all(path.read_bytes().startswith(b"GIF8") for path in films)
    events = b"".join(path.read_bytes() for path in (watched / "tensorboard").iterdir())
    assert events.count(b"monitor/train_share") == 3
    train(plain, monitor_every=0)
    one, other = ((folder / "metrics.jsonl").read_bytes() for folder in (watched, plain))
    assert one == other
    left_out = {"monitor.jsonl", "films", "tensorboard"}
    assert not left_out & {path.name for path in plain.iterdir()}
    assert left_out <= {path.name for path in watched.iterdir()}


def test_rows_are_added_behind_a_line_that_a_kill_cut(tmp_path):
    folder = RunFolder.create(tmp_path / "run", 'env = "cartpole"\n', {})
    (folder.path / "monitor.jsonl").write_text('{"update": 1')
    folder.append({"update": 11}, "monitor.jsonl")
    lines = (folder.path / "monitor.jsonl").read_text().splitlines()
    assert lines == ['{"update": 1', '{"update": 11}']


def test_a_film_of_what_cannot_be_drawn_is_refused_before_anything_is_written(tmp_path):
    config = create_config("gymnax:Catch-bsuite", "ppo", film_every=2)
    with pytest.raises(InvalidArgumentError, match="film_every must be 0 for gymnax:Catch"):
        train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_profile_holds_a_trace_and_the_command_says_how_large_it_is(tmp_path, capsys):
    folder = str(tmp_path / "run")
    command = ["train", "--env", "cartpole-control", "--agent", "ppo", *flags_of(SIZES | PPO | TEN)]
    assert main([*command, "--run-folder", folder, "--profile", "1", "--quiet"]) == 0
    said = capsys.readouterr()
    (trace,) = Path(folder).glob("profile/**/perfetto_trace.json.gz")
    assert f"{trace}: {trace.stat().st_size / 2**20:.1f} MiB" in said.err


@pytest.mark.slow
def test_a_run_that_was_over_is_traced_all_the_same(tmp_path):
    folder = str(tmp_path / "run")
    command = ["train", "--env", "cartpole-control", "--agent", "pid", "--num-envs", "2"]
    small = ["--steps-per-env", "64", "--eval-rollouts", "2", "--profile", "1", "--quiet"]
    assert main([*command, *small, "--run-folder", folder]) == 0
    assert main(["train", "--resume", folder, "--profile", "1", "--quiet"]) == 0
