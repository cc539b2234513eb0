"""A training says how far it is: in place on a terminal, now and then elsewhere."""

import io
import re
import sys

import pytest

from myriad import create_config
from myriad.training.callbacks import Run, built_in
from myriad.training.callbacks.built_in import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_a_first_line_and_one_every_half_minute_say_how_far_it_is(
    tmp_path, monkeypatch, capsys
):
    clock = iter([10.0, 12.0, 41.9, 42.0, 72.0])
    monkeypatch.setattr(built_in.time, "monotonic", lambda: next(clock))
    run = Run(create_config("cartpole", "ppo"), tmp_path, [None], 20, 500, lambda state: state)
    shown = Progress()
    run.update = 1  # resumed: an earlier process made these steps
    shown.on_start(run)
    run.steps_per_s = 100.0
    for run.update in (2, 4, 6):
        shown.on_update(run)
    run.update, run.new_rows = 8, [{"eval_return": 195.5}]
    shown.on_evaluation(run)
    assert capsys.readouterr().err.splitlines() == [
        "1,000 of 10,000 steps, 100/s, return -, 36 s left",
        "3,000 of 10,000 steps, 100/s, return -, 90 s left",
        "4,000 of 10,000 steps, 100/s, return 195.5, 106 s left",
    ]


@pytest.mark.parametrize("columns", [40, 90, 200])
def test_a_progress_line_fits_its_terminal_and_tells_no_time_left_at_its_end(
    columns, monkeypatch, tmp_path
):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    config = create_config("cartpole", "ppo")
    run = Run(config, tmp_path, [None], 10, 1_000_000, lambda state: state)
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
