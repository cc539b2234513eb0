"""Videos of an episode: play one instance on the host, draw each step, and write GIF or MP4."""

import contextlib
import dataclasses
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from myriad.agents import Agent
from myriad.agents.controller import AnyAgent, Controller, controller_of
from myriad.engine.random import make_key
from myriad.envs.environment import AnyEnvironment, Environment
from myriad.errors import InvalidArgumentError, NotInstalledError
from myriad.files import replacing, user_path
from myriad.ranges import FramesPerSecond, Seed, VideoSteps, checked

__all__ = ["Recording", "record"]

# Viewers slow down a GIF with a higher rate: its unit of time is 10 ms, and one unit counts as
# none.
_MAX_FPS = {".gif": 50, ".mp4": 120}


@dataclasses.dataclass(frozen=True)
class Recording:
    """A recording. `end` is `terminated`, `truncated`, or `running` if the steps ran out."""

    path: Path
    num_steps: int
    episode_return: float
    end: str


@checked
def record(
    env: AnyEnvironment,
    agent: AnyAgent,
    path: str | Path,
    *,
    num_steps: VideoSteps = 500,
    seed: Seed = 0,
    fps: FramesPerSecond = 30,
) -> Recording:
    """Play one episode and write a picture of the state after each of its steps.

    Args:
        env: the environment. It needs `render(state)`, which Myriad's own have.
        agent: the agent, as `make_agent` builds it.
        path: the file, `.gif` or `.mp4`. It appears, or replaces an older one, once it is complete.
        num_steps: steps after which to stop if the episode has not ended.
        seed: seed of the first state, the actions and the dynamics.
        fps: steps shown per second, 1 to 50 in a GIF.

    Raises:
        InvalidArgumentError: an argument can't be used, or the file can't be written.
        NotInstalledError: an MP4 needs imageio-ffmpeg, which is not installed.

    Example (of a script)::

        env = myriad.make_env("snake")
        print(record(env, myriad.make_agent("random", env), "snake.gif", num_steps=200))
    """
    path = user_path(path)
    require_recordable(env, path, fps)
    rewards, end = [], "running"

    def pictures() -> Iterator[np.ndarray]:
        nonlocal end
        for state, reward, terminated, truncated in play(env, agent, num_steps, seed):
            rewards.append(reward)
            end = "terminated" if terminated else "truncated" if truncated else "running"
            picture = np.asarray(env.render(state))  # pyright: ignore[reportAttributeAccessIssue]
            if picture.dtype != np.uint8 or picture.shape[2:] != (3,):
                got = f"{picture.dtype} {list(picture.shape)}"
                raise InvalidArgumentError("render", "must return uint8 [height, width, 3]", got)
            yield picture

    write(path, pictures(), num_steps, fps)
    return Recording(path, len(rewards), sum(rewards), end)


def play(
    env: Environment, agent: Agent | Controller, num_steps: int, seed: int
) -> Iterator[tuple[Any, float, bool, bool]]:
    """Step one instance until its episode ends or `num_steps` are over.

    Yields:
        state, reward, terminated and truncated after each step.
    """
    params = env.default_params
    # Parameters are constants of the program, as in a rollout. As arguments they would be rounded
    # and folded in differently.
    controller = controller_of(agent)
    reset = jax.jit(lambda key: env.reset(key, params))
    control = jax.jit(controller.control)
    step = jax.jit(lambda key, state, action: env.step(key, state, action, params))
    reset_key, run_key = jax.random.split(make_key(seed))
    obs, state = reset(reset_key)
    memory = controller.first_memory()
    for i in range(num_steps):
        act_key, step_key = jax.random.split(jax.random.fold_in(run_key, i))
        action, memory = control(memory, act_key, obs)
        obs, state, reward, terminated, truncated, _ = step(step_key, state, action)
        yield state, float(reward), bool(terminated), bool(truncated)
        if terminated or truncated:
            return


def write(path: Path, pictures: Iterator[np.ndarray], most: int, fps: int) -> None:
    """Write at most `most` pictures, uint8 `[H, W, 3]`, to a GIF or MP4 that appears when whole."""
    with replacing(path) as new:
        if path.suffix.lower() == ".gif":
            _write_gif(new, pictures, most, fps)
        else:
            _write_mp4(new, pictures, fps)


def _write_gif(path: Path, pictures: Iterator[np.ndarray], most: int, fps: int) -> None:
    from PIL import Image

    # Reduce pictures to 256 colours one by one, so that only one is held in full.
    frames = (
        Image.fromarray(picture).quantize(kmeans=1, dither=Image.Dither.NONE)
        for picture in pictures
    )
    # Durations are whole units of 10 ms, whose sum matches the rate.
    ends = [round(100 * (i + 1) / fps) for i in range(most)]
    durations = [10 * (end - start) for start, end in zip([0, *ends], ends, strict=False)]
    next(frames).save(path, save_all=True, append_images=frames, duration=durations, loop=0)


def _write_mp4(path: Path, pictures: Iterator[np.ndarray], fps: int) -> None:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ImportError as error:
        raise NotInstalledError("an MP4", "imageio-ffmpeg", "video") from error
    first = next(pictures)
    height, width, _ = first.shape
    source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps} -i -"
    # The colour format needs even sides. The index comes first, so that a browser need not wait for
    # the whole file.
    film = "-c:v libx264 -crf 18 -vf pad=ceil(iw/2)*2:ceil(ih/2)*2 -pix_fmt yuv420p"
    film += " -movflags +faststart"
    command = [get_ffmpeg_exe(), "-y", "-loglevel", "error", *source.split(), *film.split(), path]
    # Start it here and not by imageio-ffmpeg, which forks a process in which JAX's threads run.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as ffmpeg:  # noqa: S603  (ours)
        assert ffmpeg.stdin
        # If ffmpeg gives up, its output says why.
        with contextlib.suppress(BrokenPipeError):
            for picture in itertools.chain([first], pictures):
                ffmpeg.stdin.write(np.ascontiguousarray(picture).data)
        _, said = ffmpeg.communicate()
    if ffmpeg.returncode:
        raise OSError(
            said.decode(errors="replace").strip() or f"ffmpeg ended with code {ffmpeg.returncode}"
        )


def require_recordable(env: Any, path: Path, fps: int) -> None:
    """Raise unless the environment can be drawn into such a file."""
    if path.suffix.lower() not in _MAX_FPS:
        raise InvalidArgumentError("output", f"must end in {' or '.join(_MAX_FPS)}", path)
    most = _MAX_FPS[path.suffix.lower()]
    if fps > most:
        raise InvalidArgumentError("fps", f"must be 1 to {most} for a {path.suffix} file", fps)
    if not callable(getattr(env, "render", None)):
        raise InvalidArgumentError(f"{type(env).__name__} has no method render(state) to record.")
