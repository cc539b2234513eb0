"""Pictures of environments, moving pictures of episodes, and the command line that writes them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from myriad import cli, list_envs, make_agent, make_env, make_key
from myriad.canvas import Canvas
from myriad.envs import ENVIRONMENTS
from myriad.errors import InvalidArgumentError
from myriad.rendering.video import play, record, write

DRAWN = [name for name in list_envs() if hasattr(ENVIRONMENTS.load(name), "render")]


def first_state(name, seed=0, **overrides):
    env = make_env(name, **overrides)
    return env, env.reset(make_key(seed), env.default_params)[1]


def changed(state, **leaves):
    return dataclasses.replace(state, **{name: np.asarray(value) for name, value in leaves.items()})


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_of_one_state_and_shows_that_it_has_changed(name):
    env, state = first_state(name)
    first = env.render(state)
    assert (first.shape, first.dtype) == ((400, 600, 3), np.uint8)
    np.testing.assert_array_equal(first, env.render(jax.device_get(state)))
    ((after, *_),) = play(env, make_agent("random", env), num_steps=1, seed=0)
    assert (env.render(after) != first).any()
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), state)
    says = r"^render draws one instance, but state\S+ has shape \(3,\); .*\.$"
    with pytest.raises(InvalidArgumentError, match=says):
        env.render(batch)


@pytest.mark.parametrize(
    ("name", "overrides", "leaves"),
    [
        pytest.param("snake", {"height": 40, "width": 30}, {}, marks=pytest.mark.slow),
        ("bucket-brigade", {"num_houses": 60, "num_opponents": 40, "mode": "continuous"}, {}),
        ("gene-circuit", {"target": "sine", "max_steps": 1_000_000}, {}),
        ("cartpole", {"x_threshold": 0.3, "half_length": 4.0, "theta_threshold": 3.0}, {}),
        ("cartpole", {}, {"x": np.nan, "theta": np.inf}),
        ("pendulum", {}, {"theta": np.inf, "theta_dot": np.nan}),
    ],
)
def test_unusual_figures_and_a_state_that_is_no_number_fit_the_picture(name, overrides, leaves):
    env, state = first_state(name, **overrides)
    assert env.render(changed(state, **leaves)).shape == (400, 600, 3)


def frames_of(path):
    with Image.open(path) as film:
        shown = []
        for i in range(film.n_frames):
            film.seek(i)
            shown.append((np.asarray(film.convert("RGB")), film.info["duration"]))
    return shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "fps", "end"),
    [("cartpole", {}, 30, "terminated"), ("pendulum-control", {"max_steps": 21}, 7, "truncated")],
)
def test_a_gif_shows_each_step_until_the_episode_ends_at_its_rate(
    name, options, fps, end, tmp_path
):
    env = make_env(name, **options)
    agent, path = make_agent("random", env), tmp_path / "film.gif"
    recording = record(env, agent, path, num_steps=500, seed=3, fps=fps)
    frames = frames_of(path)
    states, rewards, *_ = zip(*play(env, agent, 500, seed=3), strict=True)
    assert (recording.num_steps, recording.end) == (len(frames), end)
    assert len(frames) == options.get("max_steps", len(frames)) < 100
    assert recording.episode_return == pytest.approx(sum(rewards))
    for (frame, _), state in zip(frames, states, strict=True):
        picture = env.render(state)
        # 256 colours: none is far off, and the most are exact.
        assert np.abs(frame.astype(int) - picture).max() < 80
        assert (frame == picture).all(-1).mean() > 0.95
    durations = [duration for _, duration in frames]
    assert sum(durations) == pytest.approx(1_000 * len(frames) / fps, abs=5)
    assert min(durations) >= 20
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_an_mp4_has_as_many_frames_as_steps_even_where_a_side_is_odd(tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    write(tmp_path / "odd.mp4", (Canvas(31, 33).image() for _ in range(20)), 20, 10)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "odd.mp4"))
    assert (frames, seconds) == (20, pytest.approx(2, abs=0.1))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "film.gif"
    path.write_bytes(b"old")

    def pictures():
        yield Canvas().image()
        raise InvalidArgumentError("the second picture fails.")

    with pytest.raises(InvalidArgumentError, match="second picture"):
        write(path, pictures(), 2, 10)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


RENDER = ["render", "--env", "pendulum", "--output"]


@pytest.mark.slow
def test_render_writes_the_episode_and_replaces_a_file_only_by_force(tmp_path, refused, capsys):
    path = tmp_path / "it.gif"
    path.write_text("mine")
    command = ["render", "--env", "snake", "--agent", "random", "--steps", "12", "--fps", "20"]
    command += ["--output", str(path)]
    assert f"{path} exists" in refused(*command)
    assert path.read_text() == "mine"
    assert cli.main([*command, "--force"]) == 0
    assert capsys.readouterr().out == f"{path}: 12 steps, return 0, running\n"
    assert len(frames_of(path)) == 12


@pytest.mark.parametrize(
    ("render", "says"),
    [
        ({}, r"Odd has no method render\(state\)"),
        ({"render": lambda self, state: np.zeros((4, 4))}, r"must return uint8 .*'float64 \[4, 4"),
    ],
)
def test_an_environment_that_draws_nothing_or_something_else_is_refused(render, says, tmp_path):
    env = make_env("cartpole")
    given = {name: getattr(env, name) for name in ("default_params", "reset", "step")}
    odd = type("Odd", (), {**given, **render})()
    with pytest.raises(InvalidArgumentError, match=says):
        record(odd, make_agent("random", env), tmp_path / "film.gif")
