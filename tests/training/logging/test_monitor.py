"""The monitor, films and traces: each at its interval, none in the way of the results."""

import json
import math
import time
from pathlib import Path

import pytest

from myriad import create_config, resume, train_and_evaluate
from myriad.cli import main
from myriad.errors import InvalidArgumentError
from myriad.training.logging.monitor import PHASES, Monitor, summary

# Ten evaluations.
TINY = {
    "num_envs": 4,
    "steps_per_env": 80,
    "eval_frequency": 8,
    "eval_rollouts": 2,
    "eval_max_steps": 8,
    "rollout_steps": 8,
    "agent.num_minibatches": 2,
    "agent.num_epochs": 1,
    "agent.hidden_sizes": (8,),
}


def train(folder, **options):
    config = create_config("cartpole-control", "ppo", **TINY | options)
    return train_and_evaluate(config, folder, quiet=True)


def rows(folder: Path):
    lines = (folder / "monitor.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(("every", "updates"), [(1, range(1, 11)), (3, (3, 6, 9)), (0, None)])
def test_a_row_comes_at_every_interval(tmp_path, every, updates):
    train(tmp_path / "run", monitor_every=every)
    if updates is None:
        assert not (tmp_path / "run/monitor.jsonl").exists()
        return
    found = rows(tmp_path / "run")
    assert [row["update"] for row in found] == list(updates)
    for row in found:
        shares = [row[f"{name}_share"] for name in (*PHASES, "host")]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
        assert row["steps_per_s"] > 0
        assert 0 < row["device_utilisation"] <= 1
        assert row["process_memory_bytes"] > 1 << 20


@pytest.mark.slow
def test_the_monitor_changes_no_result(tmp_path):
    with_it = train(tmp_path / "with", monitor_every=1)
    without = train(tmp_path / "without", monitor_every=0)
    assert list(with_it.evaluations) == list(without.evaluations)
    files = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("with", "without")]
    assert files[0] == files[1]


@pytest.mark.slow
def test_a_resumed_run_adds_its_rows_behind_a_line_that_a_kill_cut(tmp_path):
    folder = tmp_path / "run"
    train(folder)
    with (folder / "monitor.jsonl").open("a") as file:
        file.write('{"update": 1')
    resume(folder, quiet=True)  # nothing is left to train
    from myriad.training.logging.run_folder import RunFolder

    RunFolder(folder).append_monitor({"update": 11})
    lines = (folder / "monitor.jsonl").read_text().splitlines()
    assert lines[-2:] == ['{"update": 1', '{"update": 11}']


def test_phases_do_not_count_what_is_inside_them_twice():
    monitor = Monitor()
    with monitor.timed("train"):
        time.sleep(0.02)
        with monitor.timed("log"):
            time.sleep(0.05)
    row = monitor.row(100)
    assert monitor.seconds["log"] >= 0.05
    assert monitor.seconds["train"] < monitor.seconds["log"]
    assert sum(monitor.seconds.values()) <= row["seconds"]


def test_the_rate_of_a_resumed_run_counts_only_the_steps_of_its_own_process():
    monitor = Monitor()
    assert math.isnan(monitor.rate(9_000))
    monitor.restart(9_000)
    monitor.seconds["train"] = 2.0
    assert monitor.rate(10_000) == 500


def test_what_the_machine_cannot_tell_is_called_unavailable():
    row = Monitor().row(0) | {"device_utilisation": None, "device_memory_bytes": None}
    assert summary(row).endswith("device unavailable, memory unavailable")


@pytest.mark.slow
def test_trackers_get_the_rows(tmp_path):
    pytest.importorskip("tensorboardX")
    train(tmp_path / "run", log_to=["tensorboard"])
    events = b"".join(p.read_bytes() for p in (tmp_path / "run/tensorboard").iterdir())
    assert events.count(b"monitor/train_share") == 10


@pytest.mark.slow
@pytest.mark.parametrize(("every", "updates"), [(4, [4, 8]), (0, [])])
def test_a_film_comes_at_every_interval(tmp_path, every, updates):
    train(tmp_path / "run", film_every=every)
    films = sorted((tmp_path / "run").glob("films/*.gif"), key=lambda path: int(path.stem))
    assert [int(path.stem) for path in films] == updates
    assert all(path.read_bytes().startswith(b"GIF8") for path in films)


def test_a_film_of_what_cannot_be_drawn_is_refused_before_anything_is_written(tmp_path):
    config = create_config("gene-circuit-sysid", "ppo", film_every=2)
    with pytest.raises(InvalidArgumentError, match="film_every must be 0 for gene-circuit-sysid"):
        train_and_evaluate(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_profile_holds_a_trace_and_the_command_says_how_large_it_is(tmp_path, capsys):
    flags = ["--num-envs", "4", "--steps-per-env", "80", "--rollout-steps", "8"]
    small = ["--agent.num-minibatches", "2", "--eval-rollouts", "2", "--eval-max-steps", "8"]
    folder = str(tmp_path / "run")
    command = ["train", "--env", "cartpole-control", "--agent", "ppo", *flags, *small]
    assert main([*command, "--run-folder", folder, "--profile", "2", "--quiet"]) == 0
    said = capsys.readouterr()
    (trace,) = Path(folder).glob("profile/**/perfetto_trace.json.gz")
    assert f"{trace}: {trace.stat().st_size / 2**20:.1f} MiB" in said.err
    assert "an update: collecting" in said.out
    assert main(["train", "--resume", folder, "--profile", "1", "--quiet"]) == 0


@pytest.mark.slow
def test_an_agent_whose_updates_have_no_halves_is_traced_all_the_same(tmp_path, capsys):
    folder = str(tmp_path / "run")
    command = ["train", "--env", "cartpole-control", "--agent", "pid", "--num-envs", "2"]
    small = ["--steps-per-env", "64", "--eval-rollouts", "2", "--profile", "1", "--quiet"]
    assert main([*command, *small, "--run-folder", folder]) == 0
    assert "has no collect and learn" in capsys.readouterr().err
