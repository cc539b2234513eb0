"""From a shell: signals and closed outputs lose nothing, and Tab completes commands."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from myriad import distributed
from myriad.cli import main
from myriad.distributed import interrupt_noted
from myriad.training.run_folder import RunFolder
from tests.child_processes import run, until

LONG = ["train", "--env", "cartpole", "--agent", "pid", "--num-envs", "2"]
LONG += ["--steps-per-env", "2_000_000_000", "--eval-frequency", "64", "--eval-rollouts", "2"]
FAILED = "standard output or another file can't be used: "


@contextlib.contextmanager
def running(path, *options, **env) -> Iterator[subprocess.Popen]:
    """Run a training that would take hours. It ends with the block whatever happens there."""
    command = [sys.executable, *options, "-m", "myriad.cli", *LONG, f"--run-folder={path}"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | env
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.long), (signal.SIGTERM, -15)],
)
def test_a_signal_saves_and_says_how_to_go_on(number, code, tmp_path):
    folder = RunFolder(tmp_path / "run")
    with running(folder.path, MYRIAD_COMPILATION_CACHE="off") as process:
        until(lambda: folder.metrics.exists() and folder.metrics.stat().st_size)
        process.send_signal(number)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == code
    begun, said = said.rsplit("\n", 2)[:2]
    assert "settings: 4,000,000,000 steps; " in begun
    found = re.fullmatch(r"stopped after ([\d,]+) of 4,000,000,000 steps, .*", said)
    assert found
    assert f"`myriad train --resume {folder.path}` goes on" in said
    steps = int(found[1].replace(",", ""))
    (checkpoint,) = folder.checkpoints.folder.iterdir()
    assert int(checkpoint.name) * 2 == steps


@pytest.mark.long
@pytest.mark.parametrize("delay_s", [0.02, 0.1, 0.25, 0.6])
def test_interrupts_at_the_start_end_in_no_traceback(delay_s, tmp_path):
    # Python itself takes a moment before it runs anything of ours.
    with running(tmp_path / "run", "-X", "importtime") as process:
        assert process.stderr
        for line in process.stderr:
            if line.rstrip().endswith("myriad.cli"):
                break
        time.sleep(delay_s)
        for _ in range(5):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        said = process.stderr.read()
        # A shell reports 130 for both: killed while it loaded, and ended by itself.
        assert process.wait(120) in (-signal.SIGINT, 130)
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "code", "sentence"),
    [("| true", 141, ""), ("> /dev/full", 2, f"{FAILED}No space left on device.\n")],
)
def test_an_output_that_nobody_takes_is_no_traceback(output, code, sentence):
    command = f'set -o pipefail; (sleep 0.5; "$0" -m myriad.cli envs) {output}'
    assert run("bash", "-c", command, sys.executable, code=code).stderr == sentence


def test_a_command_inside_another_program_leaves_its_signals_alone(monkeypatch):
    def interrupt(*_):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("myriad.cli.lists.Envs.run", interrupt)
    before = signal.getsignal(signal.SIGINT)
    assert main(["envs"]) == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_a_later_interrupt_is_raised_and_a_sigterm_that_a_program_handles_stays_its_own(
    monkeypatch,
):
    monkeypatch.setattr(distributed, "IN_A_ROW_S", 0.0)
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with interrupt_noted() as noted:
            signal.raise_signal(signal.SIGTERM)
            assert not noted.is_set()
            signal.raise_signal(signal.SIGINT)
            assert noted.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_a_thread_may_train_without_handling_signals():
    with ThreadPoolExecutor() as pool:
        assert not pool.submit(lambda: interrupt_noted().__enter__().is_set()).result()


@pytest.mark.slow
def test_a_script_for_tab_has_commands_and_options(tmp_path):
    script = tmp_path / "myriad"
    with pytest.raises(SystemExit) as end:
        main(["--tyro-write-completion", "bash", str(script)])
    assert not end.value.code
    assert all(word in script.read_text() for word in ("evaluate", "--agent", "--eval-frequency"))
