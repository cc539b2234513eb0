"""Blocks that published documents print run as they stand, up to their first line of progress."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.child_processes import python, run

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[1]
DOTENV = """\
OPTIMAL_BATCH_SIZE=8192
USE_TORCH_COMPILE=false
USE_FLASH_ATTENTION=true
USE_BF16=true
"""
TRAINED = """\
myriad train --env snake --agent dqn
myriad train --env snake --agent ppo
myriad train --env snake --agent dqn --no-flash-attention
myriad train --env snake --agent dqn --no-bf16
myriad train --env snake --agent dqn --no-compile
myriad train --env snake --agent dqn --batch-size 4096
myriad train --env snake --agent dqn --batch-size 4096 --no-bf16 --no-flash-attention
"""
TUNED = """\
from myriad import create_config, train_and_evaluate
from myriad.platform.autotune import suggest_scan_chunk_size      # also importable from myriad.autotune

chunk_size = suggest_scan_chunk_size(num_envs=100_000, env="cartpole-control", agent="dqn", buffer_size=10_000,
                                     force_revalidate=False, verbose=True)      # an int; the first three may be positional
config = create_config(env="cartpole-control", agent="dqn", num_envs=100_000, scan_chunk_size=chunk_size)
config = create_config(env="cartpole-control", agent="dqn", num_envs=100_000, auto_tune=True)
results = train_and_evaluate(config)
"""  # noqa: E501
MEASURED = """\
JAX_PLATFORM_NAME=cpu python benchmarks/throughput.py
python benchmarks/throughput.py --num-envs 1000 --scan-chunk-size 256 --env gene-circuit
python benchmarks/memory_profile.py --profile envs
python benchmarks/memory_profile.py --profile scan
python benchmarks/memory_profile.py --profile both
python benchmarks/comparison.py --library gymnax --num-envs 1000 --steps-per-env 1000
python benchmarks/plot_results.py
python benchmarks/plot_results.py --plot-type throughput
python examples/10_performance_demo.py
"""
# A line of progress, such as "1,024 of 10,000 steps, 340/s, ...".
PROGRESS = re.compile(r"^[\d,]+ of [\d,]+ steps, [\d,]+/s")


def up_to_progress(words, folder):
    """Run Python until a line of progress, interrupt it, and return its lines up to there."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"MYRIAD_HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if PROGRESS.match(line):
            process.send_signal(signal.SIGINT)
            break
    rest = process.communicate(timeout=120)[0]
    assert PROGRESS.match(lines[-1]), lines
    assert "which are saved" in rest, rest
    return lines


@pytest.mark.parametrize("command", TRAINED.splitlines())
def test_the_settings_train_under_the_file_as_printed(command, tmp_path):
    (tmp_path / ".env").write_text(DOTENV)
    up_to_progress(["-m", *shlex.split(command)], tmp_path)


def test_the_doctor_knows_the_file_as_printed(tmp_path):
    (tmp_path / ".env").write_text(DOTENV)
    # The default agent has no use for this batch size, and trains without it.
    said = python("-m", "myriad", "doctor", cwd=tmp_path, code=1).stdout
    assert re.findall(r"^problem +(.*?):", said, re.MULTILINE) == [
        "OPTIMAL_BATCH_SIZE of .env asks for batch"
    ]
    assert re.search(r"^attention +none +USE_FLASH_ATTENTION of .env +no", said, re.MULTILINE)
    assert re.search(r"^compile +cached +USE_TORCH_COMPILE of .env +yes", said, re.MULTILINE)


def test_the_autotuner_is_called_as_printed(tmp_path):
    lines = up_to_progress(["-c", TUNED], tmp_path)
    assert sum("best" in line for line in lines) >= 1


def test_the_benchmarks_run_in_a_clone_as_printed(tmp_path):
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", ROOT, clone)
    paths = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(clone),
        "MYRIAD_HOME": str(tmp_path),
    }
    for command in MEASURED.splitlines():
        run("bash", "-c", command, cwd=clone, **paths)
    assert len([*(clone / "results" / "csv").glob("*.csv")]) >= 6
    assert (clone / "results" / "plots" / "throughput_scaling.png").exists()
