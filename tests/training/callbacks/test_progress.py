"""What takes long says so at once, and its seconds when it has ended."""

import io
import re
import sys
import time

import pytest

from myriad import create_config, files
from myriad.cli import main
from myriad.files import announced
from myriad.training.callbacks import Run
from myriad.training.callbacks.progress import Progress

TRAIN = ["train", "--env", "cartpole", "--agent", "random", "--steps-per-env", "8"]
SMALL = ["--num-envs", "4", "--eval-rollouts", "2", "--eval-max-steps", "2"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_a_line_says_now_and_then_how_long_it_has_taken(monkeypatch, capsys):
    with pytest.raises(ZeroDivisionError), announced("compiling"):
        _ = 1 / 0
    assert capsys.readouterr().err == "compiling ...\n"
    monkeypatch.setattr(files, "_EVERY_S", 0.01)
    with announced("compiling"):
        time.sleep(0.1)
    first, second, *_, last = capsys.readouterr().err.splitlines()
    assert (first, second) == ("compiling ...", "compiling: 0 s so far")
    assert re.fullmatch(r"compiling: [\d.]+ s", last)


@pytest.mark.slow
def test_a_terminal_shows_the_seconds_in_place(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with announced("compiling"):
        time.sleep(1.5)
    shown = terminal.getvalue()
    assert re.fullmatch(r"compiling \.\.\.\n(\r\d+ s)+\r\x1b\[Kcompiling: [\d.]+ s\n", shown)


@pytest.mark.parametrize("columns", [40, 90, 200])
def test_a_progress_line_fits_its_terminal_and_tells_no_time_left_at_its_end(
    columns, monkeypatch, tmp_path
):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    run = Run(
        create_config("cartpole", "ppo"), tmp_path, [None], 10, 1_000_000, lambda state: state
    )
    shown = Progress()
    shown.on_start(run)
    run.update, run.steps_per_s, run.new_rows = 9, 1_234_567.0, [{"eval_return": 475.5}]
    shown.on_evaluation(run)
    shown._bar.refresh()
    before = len(terminal.getvalue())
    shown.on_end(run)
    frames = [
        re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", each.replace("\r", "\n"))
        for each in (terminal.getvalue()[:before], terminal.getvalue()[before:])
    ]
    lines = [line.rstrip() for frame in frames for line in frame.splitlines()]
    assert all(len(line) <= columns for line in lines)
    assert "9,000,000 steps  1,234,567/s" in frames[1]
    assert "return 475.5" in frames[1]
    clock = re.compile(r"\d:\d\d:\d\d|-:--:--")
    assert len(clock.findall(frames[1])) == (0 if columns == 40 else 1)


@pytest.mark.slow
def test_a_run_and_its_evaluation_say_what_they_compile_without_a_terminal(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(files, "_EVERY_S", 3600.0)  # nothing takes that long
    folder = str(tmp_path / "run")
    assert main([*TRAIN, *SMALL, "--run-folder", folder]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "random on cartpole: compiling ..."
    ready = r"random on cartpole, 4 environments: ready in [\d.]+ s"
    assert re.fullmatch(ready, lines[1])
    assert main(["evaluate", folder, "--episodes", "3"]) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert first == "compiling and playing 3 episodes ..."
    assert re.fullmatch(r"compiling and playing 3 episodes: [\d.]+ s", last)
