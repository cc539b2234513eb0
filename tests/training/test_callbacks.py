"""Callbacks: when they are called, what they read, set, write and show, and how they end."""

import io
import json
import re
import sys
import time
from functools import partialmethod

import jax
import numpy as np
import pytest

from myriad import create_config, make_env, resume, train_and_evaluate
from myriad.cli import main
from myriad.envs.vector import require_changeable
from myriad.errors import InvalidArgumentError
from myriad.training.callbacks import PHASES, Callback, Run, built_in
from myriad.training.callbacks.built_in import Progress
from tests.bits import assert_same_bits
from tests.compilations import count_compilations
from tests.training.small import (
    PPO,
    SEEDS,
    SIZES,
    Ends,
    First,
    assert_same_run,
    flags_of,
    small_config,
)


class Events(Callback):
    """Remembers each call, with the update and the steps at which it came."""

    def __init__(self, name=""):
        self.name = name
        self.events = []

    def note(self, hook, run):
        self.events.append((self.name + hook, run.update, run.steps))

    on_start = partialmethod(note, "start")
    on_update = partialmethod(note, "update")
    on_evaluation = partialmethod(note, "evaluation")
    on_checkpoint = partialmethod(note, "checkpoint")
    on_end = partialmethod(note, "end")


class StopsAtOnce(Callback):
    def on_start(self, run):
        run.stop()


def train(folder, *callbacks, **fields):
    return train_and_evaluate(small_config(**fields), folder, quiet=True, callbacks=callbacks)


@pytest.mark.slow
def test_each_is_called_after_the_one_before_and_ends_before_it(whole, tmp_path):
    first, second = Events("1 "), Events("2 ")
    first.events = second.events
    # Two chunks for each evaluation.
    fields = {"scan_chunk_size": 32, "checkpoint_every_s": 0.0}
    assert_same_run(train(tmp_path / "run", first, second, **fields), whole)
    of_first = [event for event in first.events if event[0].startswith("1 ")]
    expected = [("start", 0)]
    for update in (8, 16, 24, 32):
        expected += [("update", update - 4), ("update", update)]
        expected += [("evaluation", update), ("checkpoint", update)]
    expected += [("end", 32)]
    assert of_first == [(f"1 {hook}", update, update * 32) for hook, update in expected]
    both = [name for name, *_ in first.events]
    assert both[:4] == ["1 start", "2 start", "1 update", "2 update"]
    assert both[-2:] == ["2 end", "1 end"]


@pytest.mark.slow
def test_a_callback_reads_what_the_results_hold_and_its_time_is_counted_once(tmp_path):
    class Reads(First):
        def on_start(self, run):
            super().on_start(run)
            assert run.rows == []
            self.start = time.perf_counter()

        def on_update(self, run):
            time.sleep(0.05)
            with pytest.raises(InvalidArgumentError, match="read it in on_evaluation"):
                _ = run.agent_state

        def on_evaluation(self, run):
            assert run.new_rows == run.rows[-1:]
            assert (run.folder / "metrics.jsonl").read_text().count("\n") == run.evaluations
            assert (run.monitor["update"], run.total_steps) == (run.update, 1024)

        def on_end(self, run):
            self.run, self.last = run, run.agent_state
            assert 0.2 <= run.seconds["log"] <= sum(run.seconds.values())
            assert sum(run.seconds.values()) <= time.perf_counter() - self.start

    reads = Reads()
    results = train(tmp_path / "run", reads)
    assert reads.run.config == results.config
    returns = [row["return"] for row in results.evaluations]
    assert [row["eval_return"] for row in reads.run.rows] == returns
    assert reads.run.seconds["train"] == results.timings.train_s
    assert_same_bits(reads.last, results.agent_state)
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, reads.state, reads.last)))


@pytest.mark.slow
def test_a_run_that_is_ended_at_its_start_has_one_evaluation(tmp_path):
    run = tmp_path / "run"
    results = train(run, StopsAtOnce())
    assert results.stopped == "callback"
    assert [row["update"] for row in results.evaluations] == [8]
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["8"]
    events = Events()
    assert_same_run(resume(run, quiet=True, callbacks=[events, StopsAtOnce()]), results)
    assert [name for name, *_ in events.events] == ["start", "end"]


SCHEDULE = {0: 3, 8: 20.1, 24: 9.8}


class Sets(Callback):
    """Sets gravity by the update, and counts what compiles meanwhile."""

    def on_start(self, run):
        self.counting = count_compilations()
        self.compiled = self.counting.__enter__()
        self.found = run.env_params["gravity"]
        if not run.update:
            self.on_evaluation(run)

    def on_evaluation(self, run):
        if run.update in SCHEDULE:
            run.set_env(gravity=SCHEDULE[run.update])

    def on_end(self, run):
        self.counting.__exit__(None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"seeds": [*SEEDS]}], ids=str)
def test_a_value_acts_from_the_next_update_on_is_named_by_rows_and_survives_a_resume(
    fields, tmp_path
):
    whole = train(tmp_path / "whole", sets := Sets(), **fields)
    assert not {"jit(run)", "jit(of_all)", "jit(_evaluate)"} & set(sets.compiled)
    found = [row["env/gravity"] for row in whole.training if row.get("seed", 3) == 3]
    assert found == [3, 20.1, 20.1, 9.8]
    assert "gravity = 9.8" in (whole.run_folder / "config.toml").read_text()
    train(tmp_path / "parts", Sets(), Ends(Run.stop, 2), **fields)
    later = Sets()
    assert_same_run(resume(tmp_path / "parts", quiet=True, callbacks=[later]), whole)
    assert later.found == 20.1


@pytest.mark.slow
def test_an_evaluation_plays_what_the_configuration_says(tmp_path):
    # A pole that is pushed as hard falls within a few steps.
    class Pushes(Callback):
        def on_start(self, run):
            run.set_env(force=500.0)

    balanced = {"agent": "pid", "eval_rollouts": 2}
    heavy = train(tmp_path / "heavy", Pushes(), **balanced)
    plain = train(tmp_path / "plain", **balanced)
    assert list(heavy.evaluations) == list(plain.evaluations)
    assert heavy.training[-1]["episodes"] > plain.training[-1]["episodes"]


def test_what_cannot_change_in_a_training_is_refused(tmp_path):
    said = []

    class Tries(Callback):
        def on_start(self, run):
            for values in ({"max_steps": 7}, {"x_threshold": 1.0}, {"gravty": 1}, {"tau": -1}):
                with pytest.raises(ValueError, match=next(iter(values))) as caught:
                    run.set_env(**values)
                said.append(str(caught.value))

        def on_update(self, run):
            with pytest.raises(InvalidArgumentError, match="in on_start and on_evaluation only"):
                run.set_env(gravity=1.0)

    train(tmp_path, Tries(), agent="random", steps_per_env=64)
    assert all("can't change without compiling" in each for each in said[:2])
    assert "did you mean 'gravity'" in said[2]
    with pytest.raises(InvalidArgumentError, match="gravity can't be set, since the reset_pool"):
        require_changeable(make_env("cartpole", reset_pool=4), "gravity")


# Ten evaluations, in the programs of the small training.
TEN = {"steps_per_env": 80, "eval_frequency": 8}


@pytest.mark.slow
def test_rows_films_and_what_trackers_get_come_at_their_intervals_and_change_nothing(tmp_path):
    pytest.importorskip("tensorboardX")
    watched, plain = tmp_path / "watched", tmp_path / "plain"
    train(watched, **TEN, monitor_every=3, film_every=4, log_to=["tensorboard"])
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
    train(plain, **TEN, monitor_every=0)
    one, other = ((folder / "metrics.jsonl").read_bytes() for folder in (watched, plain))
    assert one == other
    left_out = {"monitor.jsonl", "films", "tensorboard"}
    assert not left_out & {path.name for path in plain.iterdir()}
    assert left_out <= {path.name for path in watched.iterdir()}


@pytest.mark.slow
def test_a_profile_holds_a_trace_and_the_command_says_how_large_it_is(tmp_path, capsys):
    command = ["train", "--env", "cartpole-control", "--agent", "ppo", *flags_of(SIZES | PPO | TEN)]
    assert main([*command, "--run-folder", str(tmp_path), "--profile", "1", "--quiet"]) == 0
    (trace,) = tmp_path.glob("profile/**/perfetto_trace.json.gz")
    said = "".join(capsys.readouterr())
    assert f"{trace}: {trace.stat().st_size / 2**20:.1f} MiB" in said


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress_of(folder, num_updates, steps):
    """Return the progress of a run that begins, and the run."""
    return Progress(), Run(create_config("cartpole", "ppo"), folder, [None], num_updates, steps, id)


def test_without_a_terminal_a_first_line_and_one_every_half_minute_say_how_far_it_is(
    tmp_path, monkeypatch, capsys
):
    clock = iter([10.0, 12.0, 41.9, 42.0, 72.0])
    monkeypatch.setattr(built_in.time, "monotonic", lambda: next(clock))
    shown, run = progress_of(tmp_path, 20, 500)
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


def test_progress_means_the_newest_return_of_every_seed_also_of_one_that_has_ended(tmp_path):
    shown, run = progress_of(tmp_path, 20, 500)
    run.rows = [{"seed": seed, "eval_return": 100.0} for seed in (1, 2)]
    shown.on_start(run)
    run.new_rows = [{"seed": 2, "eval_return": 200.0}]
    shown.on_evaluation(run)
    assert shown._score == "150"


@pytest.mark.parametrize("columns", [40, 200])
def test_a_progress_line_fits_its_terminal_and_tells_no_time_left_at_its_end(
    columns, monkeypatch, tmp_path
):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    shown, run = progress_of(tmp_path, 10, 1_000_000)
    shown.on_start(run)
    run.update, run.steps_per_s, run.new_rows = 9, 1_234_567.0, [{"eval_return": 475.5}]
    shown.on_evaluation(run)
    shown.on_end(run)
    printed = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue().replace("\r", "\n"))
    lines = [line.rstrip() for line in printed.splitlines()]
    assert all(len(line) <= columns for line in lines)
    at_end = printed[printed.rindex("9,000,000 steps  1,234,567/s") :]
    assert "return 475.5" in at_end
    assert len(re.findall(r"\d:\d\d:\d\d|-:--:--", at_end)) == 1
