"""However a run ends early, resuming it leads to the bits of the run that nothing interrupted."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from myriad import load_agent, resume, train_and_evaluate
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import Run
from tests.bits import assert_same_bits
from tests.child_processes import python
from tests.training.small import Ends, assert_same_run, fail, flags_of, small_config


def interrupt(run):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "end", "every_s", "left"),
    [
        ("whole", interrupt, 60.0, [16]),
        ("whole", Run.stop, 60.0, [16]),
        ("whole", fail, 0.0, [8]),
        ("many", Run.stop, 0.0, [8, 16]),
    ],
)
def test_a_run_that_ends_early_goes_on_to_the_same_bits(
    kind, end, every_s, left, request, tmp_path
):
    whole = request.getfixturevalue(kind)
    config = whole.config.changed(checkpoint_every_s=every_s)
    with contextlib.suppress(KeyboardInterrupt, ZeroDivisionError):
        results = train_and_evaluate(config, tmp_path / "run", callbacks=[Ends(end, 2)])
        assert results.stopped == "callback"
    saved = (tmp_path / "run" / "checkpoints").iterdir()
    assert sorted(int(path.name) for path in saved) == left
    assert_same_run(resume(tmp_path / "run", quiet=True), whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "many"])
def test_a_killed_run_goes_on_from_its_checkpoint_and_a_finished_one_is_as_it_was(
    kind, request, tmp_path
):
    whole = request.getfixturevalue(kind)
    run = shutil.copytree(whole.run_folder, tmp_path / "run")
    finished = resume(run, quiet=True)
    assert_same_run(finished, whole)
    assert "steps/s        nothing was left to train" in repr(finished)
    # A kill leaves rows later than the checkpoint, and a part of one.
    shutil.rmtree(run / "checkpoints" / "32")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"update": 4')
    again = resume(run, quiet=True)
    assert_same_run(again, whole)
    # Its speed counts only the steps of its own process.
    timings = again.timings
    assert timings.steps_per_s * timings.train_s == pytest.approx(256 * len(whole.seeds))


@pytest.mark.slow
def test_a_run_of_two_devices_goes_on_on_one_as_it_would_have(tmp_path):
    run = tmp_path / "run"
    config = small_config(num_devices=2, checkpoint_every_s=0.0)
    whole = train_and_evaluate(config, run)
    shutil.rmtree(run / "checkpoints" / "32")
    done = python("-m", "myriad.cli", "train", "--resume", run, JAX_NUM_CPU_DEVICES="1")
    assert "this run trained on 2 CPU devices and continues on 1 CPU device: " in done.stderr
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["loss"] == pytest.approx(whole.training[-1]["loss"], rel=1e-3, abs=1e-4)
    assert [last["update"], last["episodes"]] == [32, whole.training[-1]["episodes"]]


@pytest.mark.slow
def test_a_run_whose_configuration_was_changed_is_refused_and_stays(whole, tmp_path):
    run = shutil.copytree(whole.run_folder, tmp_path / "run")
    file, rows = run / "config.toml", (run / "metrics.jsonl").read_bytes()
    text = file.read_text()
    for old, new, says in (
        ("seed = 0", "seed = 7", "seed of .* must be as when the run began, but got 7"),
        ("log_to = []", 'log_to = ["tensorbord"]', "unknown tracker 'tensorbord'"),
    ):
        assert old in text
        file.write_text(text.replace(old, new))
        with pytest.raises(InvalidArgumentError, match=says):
            resume(run, quiet=True)
    # A file of another version may lack a field, which has its default.
    lines = text.splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "gravity" not in line))
    resume(run, quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == rows


def run_killed(folder: Path, agent: str, after_s: float | None) -> bool:
    """Start or resume the run, kill it after `after_s` seconds, return whether it had ended."""
    fields = {"num_envs": 4, "steps_per_env": 20_000, "eval_frequency": 1_000, "eval_rollouts": 2}
    fields |= {"checkpoint_every_s": 0, "scan_chunk_size": 200}
    fields |= {"rollout_steps": 8} if agent == "ppo" else {"buffer_size": 1_000}
    words = ["--env", "cartpole", "--agent", agent, *flags_of(fields), "--run-folder", str(folder)]
    if (folder / "config.toml").exists():
        words = ["--resume", str(folder)]
    command = [sys.executable, "-m", "myriad.cli", "train", *words, "--quiet"]
    with subprocess.Popen(command) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.kill()
    return process.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("agent", ["ppo", "dqn"])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(agent, tmp_path):
    start = time.monotonic()
    assert run_killed(tmp_path / "whole", agent, None)
    lasted, rng = time.monotonic() - start, np.random.default_rng(0)
    kills = 0
    while not run_killed(
        tmp_path / "killed", agent, rng.uniform(0.2, 0.8) * lasted if kills < 3 else None
    ):
        kills += 1
    whole, killed = (load_agent(tmp_path / name)[2] for name in ("whole", "killed"))
    assert_same_bits(whole.state, killed.state)
    histories = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "killed")]
    assert histories[0] == histories[1]
