"""Learning curves show what the evaluations of runs say."""

import json
from pathlib import Path

import numpy as np
import pytest

from myriad import create_config
from myriad.cli import main
from myriad.timing import mean_interval
from myriad.training.curves import plot_runs

pytest.importorskip("matplotlib")


def run(folder, returns, steps=(100, 200, 300), **options):
    """Write the folder of a run as a training does, with a return for each evaluation."""
    config = create_config("cartpole", "ppo", **options)
    folder.mkdir()
    (folder / "config.toml").write_text(config.to_toml())
    (folder / "environment.json").write_text('{"versions": {}}')
    rows = [
        {"steps": at, "eval_return": each, "eval_return_std": 1.0}
        for at, each in zip(steps, returns, strict=False)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def lines(axes):
    """Return the labelled lines of a panel, their values by label."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def test_runs_that_differ_only_in_the_seed_are_one_curve_with_student_s_interval(tmp_path):
    returns = [[1, 2, 6], [3, 5, 7], [2, 2, 5]]
    folders = [run(tmp_path / f"{seed}", each, seed=seed) for seed, each in enumerate(returns)]
    figure = plot_runs(folders)
    (axes,) = figure.axes
    (mean,) = lines(axes).values()
    assert mean.get_label() == "ppo (3 seeds)"
    figure.draw_without_rendering()
    (caption,) = (text for text in figure.texts if "Thin: each seed." in text.get_text())
    assert caption.get_window_extent().x1 < figure.bbox.x1
    np.testing.assert_allclose(mean.get_xydata(), [[100, 2], [200, 3], [300, 6]])
    drawn = axes.collections[0].get_paths()[0].vertices
    for at, values in zip((100, 200, 300), zip(*returns, strict=True), strict=True):
        # No seed returned less than 1 or more than 7.
        low, high = np.clip(mean_interval(values), 1, 7)
        ends = drawn[drawn[:, 0] == at, 1]
        assert (min(ends), max(ends)) == pytest.approx((low, high))


def test_a_setting_makes_a_curve_of_its_own_and_an_environment_a_panel(tmp_path):
    folders = [
        run(tmp_path / "a", [1, 2, 3]),
        run(tmp_path / "b", [1, 2, 3], **{"agent.learning_rate": 0.002}),
        run(tmp_path / "faster", [1, 2, 3], scan_chunk_size=128, seed=5),
    ]
    (axes,) = plot_runs(folders).axes
    rates = ["ppo, agent.learning_rate = 0.0005 (2 seeds)", "ppo, agent.learning_rate = 0.002"]
    assert [label.removesuffix(" (1 seed)") for label in lines(axes)] == rates
    config = (tmp_path / "b" / "config.toml").read_text()
    (tmp_path / "b" / "config.toml").write_text(config.replace('"cartpole"', '"mine:Env"'))
    titles = [axes.get_title() for axes in plot_runs(folders).axes]
    assert titles == ["cartpole-control", "mine:Env"]
    # A run that began with the weights of another is no seed of it.
    (tmp_path / "faster" / "environment.json").write_text('{"start_from": {"folder": "a"}}')
    assert len(lines(plot_runs(folders[::2]).axes[0])) == 2


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_command_writes_a_picture_once_and_the_same_each_time(ending, tmp_path, capsys):
    command = ["plot", str(run(tmp_path / "a", [1, 2])), "--output", str(tmp_path / f"a.{ending}")]
    assert main(command) == 0
    assert capsys.readouterr().out == f"{command[-1]}\n"
    first = Path(command[-1]).read_bytes()
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml"}[ending])
    assert main(command) == 2
    assert "exists: name another file" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert Path(command[-1]).read_bytes() == first


def test_what_can_not_be_drawn_is_one_sentence(tmp_path, refused):
    for name in ("empty", "damaged", "old", "a"):
        run(tmp_path / name, [1])
    (tmp_path / "empty" / "metrics.jsonl").write_text("")
    (tmp_path / "damaged" / "metrics.jsonl").write_text('{"steps": [1]}\n[]\n')
    (tmp_path / "old" / "config.toml").write_text("num_envs = 3")
    for argv, says in (
        ([], "at least one run"),
        (["gone"], "gone/config.toml can't be read"),
        (["empty"], "has no evaluation yet"),
        (["damaged"], "damaged is no run whose files are whole"),
        (["old"], "old is no run whose files are whole"),
        (["a", "--output", "a.pdf"], "--output must end in .png or .svg"),
    ):
        said = refused("plot", *argv, *([] if "--output" in argv else ["--output", "x.png"]))
        assert says in said
        assert said.count("\n") == 1


@pytest.mark.slow
def test_results_are_drawn_as_their_folder_is(whole, tmp_path):
    figure = whole.plot(tmp_path / "run.svg")
    (own,), (read,) = (
        lines(each.axes[0]).values() for each in (figure, plot_runs([whole.run_folder]))
    )
    np.testing.assert_array_equal(own.get_xydata(), read.get_xydata())
    assert (tmp_path / "run.svg").stat().st_size
