"""Pictures of environments, moving pictures of episodes, and the command line that writes them."""

import dataclasses
import sys

import jax
import numpy as np
import pytest
from PIL import Image

from myriad import cli, list_envs, make_agent, make_env, make_key
from myriad.canvas import BLUE, ORANGE, PAPER, VERMILLION, Canvas
from myriad.envs import ENVIRONMENTS
from myriad.errors import InvalidArgumentError, NotInstalledError
from myriad.rendering.video import play, record, write

DRAWN = [name for name in list_envs() if hasattr(ENVIRONMENTS.load(name), "render")]


def first_state(name, seed=0, **overrides):
    env = make_env(name, **overrides)
    return env, env.reset(make_key(seed), env.default_params)[1]


def holds(image, colour):
    return (image == np.array(colour, np.uint8)).all(-1).any()


def changed(state, **leaves):
    return dataclasses.replace(state, **{name: np.asarray(value) for name, value in leaves.items()})


# One picture.


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_uint8_rgb_and_shows_that_the_state_has_changed(name):
    env, state = first_state(name)
    first = env.render(state)
    assert first.shape == (400, 600, 3)
    assert first.dtype == np.uint8
    moment = next(iter(play(env, make_agent("random", env), num_steps=1, seed=0)))
    assert (env.render(moment.state) != first).any()


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_the_same_from_numpy_and_from_jax(name):
    env, state = first_state(name)
    assert (env.render(state) == env.render(jax.device_get(state))).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["snake", "pendulum-control"])
def test_a_batch_is_refused_in_a_sentence(name):
    env = make_env(name)
    keys = jax.random.split(make_key(0), 3)
    _, states = jax.vmap(env.reset, in_axes=(0, None))(keys, env.default_params)
    with pytest.raises(
        InvalidArgumentError,
        match=r"^render draws one instance, but state\S+ has shape \(3,\); .*\.$",
    ):
        env.render(states)
    assert env.render(jax.tree.map(lambda leaf: leaf[1], states)).any()


def test_the_cart_is_to_scale_and_the_pole_turns_red_when_it_has_fallen():
    env, state = first_state("cartpole")
    # 260 pixels to the limit of 2.4 m on each side of the middle; the cart's body is under the
    # axle.
    for x in (-1.2, 0.0, 2.0):
        upright = env.render(changed(state, x=x, theta=0.0))
        middle = round(300 + 260 / 2.4 * x)
        assert tuple(upright[270, middle]) == BLUE
        assert tuple(upright[180, middle]) == ORANGE
    assert not holds(upright, VERMILLION)
    assert holds(env.render(changed(state, x=0.0, theta=0.3)), VERMILLION)


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


# The canvas.


def test_a_shape_outside_the_picture_or_without_a_place_leaves_it_as_it_is():
    canvas = Canvas()
    canvas.disc(-100, 50, 20, BLUE)
    canvas.line([(700, 500), (900, 500)], 5, BLUE)
    canvas.rectangle(5, 5, 5, 9, BLUE)
    canvas.disc(np.nan, 50, 20, BLUE)
    canvas.text(-300, 200, "out", colour=BLUE)
    canvas.text(900, -90, "out", colour=BLUE)
    assert (canvas.image() == PAPER).all()


# Moving pictures.


def frames_of(path):
    with Image.open(path) as film:
        shown = []
        for i in range(film.n_frames):
            film.seek(i)
            shown.append((np.asarray(film.convert("RGB")), film.info["duration"]))
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bucket-brigade", "pendulum-control"])
def test_a_gif_has_as_many_frames_as_steps_and_shows_the_pictures(name, tmp_path):
    env = make_env(name)
    agent = make_agent("random", env)
    recording = record(env, agent, tmp_path / "film.gif", num_steps=6, seed=3)
    frames = frames_of(tmp_path / "film.gif")
    assert len(frames) == recording.num_steps == 6
    assert recording.end == "running"
    pictures = [env.render(moment.state) for moment in play(env, agent, num_steps=6, seed=3)]
    for (frame, _), picture in zip(frames, pictures, strict=True):
        # 256 colours: none is far off, and the most are exact.
        assert np.abs(frame.astype(int) - picture).max() < 80
        assert (frame == picture).all(-1).mean() > 0.95
    assert list(tmp_path.iterdir()) == [tmp_path / "film.gif"]


@pytest.mark.slow
def test_a_recording_stops_where_the_episode_ends(tmp_path):
    env = make_env("cartpole")
    recording = record(env, make_agent("random", env), tmp_path / "film.gif", num_steps=500, seed=0)
    assert recording.end == "terminated"
    assert (
        recording.num_steps
        == recording.episode_return
        == len(frames_of(tmp_path / "film.gif"))
        < 100
    )
    env = make_env("pendulum", max_steps=4)
    recording = record(env, make_agent("random", env), tmp_path / "film.gif", num_steps=500)
    assert (recording.end, recording.num_steps) == ("truncated", 4)


@pytest.mark.slow
@pytest.mark.parametrize("fps", [7, 50])
def test_a_gif_keeps_to_its_rate(fps, tmp_path):
    env = make_env("pendulum")
    record(env, make_agent("random", env), tmp_path / "film.gif", num_steps=21, fps=fps)
    durations = [duration for _, duration in frames_of(tmp_path / "film.gif")]
    assert sum(durations) == pytest.approx(21_000 / fps, abs=5)
    assert min(durations) >= 20


@pytest.mark.slow
def test_an_mp4_has_as_many_frames_as_steps_even_where_a_side_is_odd(tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    env = make_env("pendulum")
    record(env, make_agent("random", env), tmp_path / "film.mp4", num_steps=20, fps=10)
    assert imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "film.mp4")) == (
        20,
        pytest.approx(2, abs=0.1),
    )
    write(tmp_path / "odd.mp4", (Canvas(31, 33).image() for _ in range(5)), 5, 10)
    assert imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "odd.mp4"))[0] == 5
    assert len(list(tmp_path.iterdir())) == 2


def test_an_mp4_without_imageio_ffmpeg_names_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    env = make_env("pendulum")
    with pytest.raises(
        NotInstalledError,
        match=r"an MP4 needs imageio-ffmpeg, .*: pip install 'myriad-rl\[video\]'",
    ):
        record(env, make_agent("random", env), tmp_path / "film.mp4", num_steps=2)
    assert not list(tmp_path.iterdir())


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


def test_an_environment_that_draws_nothing_or_something_else_is_refused(tmp_path):
    cartpole = make_env("cartpole")

    class Odd:
        default_params = cartpole.default_params
        reset, step = cartpole.reset, cartpole.step

    agent = make_agent("random", cartpole)
    with pytest.raises(InvalidArgumentError, match=r"Odd has no method render\(state\)"):
        record(Odd(), agent, tmp_path / "film.gif")
    Odd.render = lambda self, state: np.zeros((4, 4))
    with pytest.raises(
        InvalidArgumentError,
        match=r"must return uint8 \[height, width, 3\], but returned float64 \[4, 4",
    ):
        record(Odd(), agent, tmp_path / "film.gif")


# The command line, as a user starts it.


@pytest.mark.slow
def test_render_writes_the_episode_and_replaces_a_file_only_by_force(tmp_path, refused, capsys):
    path = tmp_path / "it.gif"
    path.write_text("mine")
    command = ["render", "--env", "snake", "--agent", "random", "--steps", "12", "--fps", "20"]
    command += ["--output", str(path)]
    sentence = f"{path} exists: name another file, or replace it by --force.\n"
    assert refused(*command) == sentence
    assert path.read_text() == "mine"
    assert cli.main([*command, "--force"]) == 0
    assert capsys.readouterr().out == f"{path}: 12 steps, return 0, running\n"
    assert len(frames_of(path)) == 12


RENDER = ["render", "--env", "pendulum", "--output"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*RENDER[:2], "snak", "--output", "x.gif"], "'snak'; did you mean 'snake'?"),
        ([*RENDER, "x.avi"], "end in .gif or .mp4, but got 'x.avi'"),
        ([*RENDER, "."], "end in .gif or .mp4, but got '.'"),
        ([*RENDER, "x.gif", "--step", "3"], "--steps INT"),
        ([*RENDER, "x.gif", "--steps", "0"], "--steps must be"),
        ([*RENDER, "x.gif", "--fps", "60"], "--fps must be 1 to 50 for a .gif file, but got 60"),
        ([*RENDER, "x.gif", "--seed", "1" * 30], "--seed must be"),
        ([*RENDER, "x.gif", "--agent", "rnadom"], "'rnadom'; did you mean 'random'?"),
        ([*RENDER, "x.gif", "--agent", "ppo"], "ppo must be trained"),
        ([*RENDER, "none/x.gif"], "none/x.gif can't be written"),
        (
            [*RENDER, "x.gif", "--run-folder", "r", "--agent", "pid"],
            "--env, --agent can't be given",
        ),
        ([*RENDER, "x.gif", "--trust"], "--trust can't be given without --run-folder"),
    ],
)
def test_a_mistake_is_named_and_writes_nothing(arguments, named, refused):
    assert named in refused(*arguments)
