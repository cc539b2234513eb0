"""Libraries that step environments in plain arrays, with nothing compiled by JAX: Gymnasium's ways, EnvPool, PufferLib.

One loop for all of them, as their users write it: draw actions, step, count what ended. No Myriad
and no JAX in here: some run in a Python of their own, and processes that fork must not have started
JAX.
"""

import importlib
import time
from collections.abc import Callable
from typing import Any, Protocol

from benchmarks.harness.workloads import Workload
from benchmarks.sides.server import BURN_IN_STEPS, Reply, Totals

MAX_PROCESSES = 16
# A side whose first steps would take longer is refused: what it holds up is everybody's
# alternation.
_MAX_WARM_UP_S = 60.0
# What a call of a slow side may last; the others wait for it in every round.
_MAX_CALL_S = 0.5
_TRIAL_ENVS = 100


class Batch(Protocol):
    """All environments of one library. `idles`: the step after an episode's last one only resets."""

    idles: bool

    def sample(self) -> Any:
        """Draw the actions of the random policy."""

    def step(self, actions: Any) -> int:
        """Step every environment and return how many episodes ended."""
        ...


class VectorSide:
    """Step a batch under the random policy; `max_steps` keeps a call short enough for those who wait."""

    num_devices = 1
    compiles = False

    def __init__(self, batch: Batch, workload: Workload):
        self.batch, self.num_envs = batch, workload.num_envs
        self.num_episodes = self.num_idle_steps = self._resetting = 0
        step_s = min(_seconds(lambda: self.run(1)) for _ in range(3))
        self.max_steps: int | None = max(1, int(_MAX_CALL_S / step_s))

    def program(self) -> None:
        return None

    def run(self, num_steps: int) -> None:
        batch = self.batch
        for _ in range(num_steps):
            num_ended = batch.step(batch.sample())
            self.num_episodes += num_ended
            if batch.idles:
                self.num_idle_steps, self._resetting = (
                    self.num_idle_steps + self._resetting,
                    num_ended,
                )

    def totals(self) -> Totals:
        return Totals(self.num_episodes, None, self.num_idle_steps)


class GymnasiumLoop:
    """One environment of `gymnasium.make`, as the first example of its documentation steps it."""

    idles = False

    def __init__(self, twin: str, num_envs: int, seed: int):
        import gymnasium

        if num_envs > 1:
            raise NotImplementedError(
                f"a loop over one environment, not {num_envs:,}: gymnasium-sync has the loop"
            )
        self.env = gymnasium.make(twin)
        self.env.action_space.seed(seed)
        self.env.reset(seed=seed)

    def sample(self) -> Any:
        return self.env.action_space.sample()

    def step(self, actions: Any) -> int:
        _, _, terminated, truncated, _ = self.env.step(actions)
        if terminated or truncated:
            self.env.reset()
            return 1
        return 0


class _GymnasiumVector:
    """What Gymnasium's vector environments share; `seed` also is of the actions."""

    idles = False

    def __init__(self, twin: str, num_envs: int, seed: int):
        self.env = self.make(twin, num_envs)
        self.env.action_space.seed(seed)
        self.env.reset(seed=seed)

    def make(self, twin: str, num_envs: int) -> Any:
        """Build the vector environment."""
        raise NotImplementedError

    def sample(self) -> Any:
        return self.env.action_space.sample()

    def step(self, actions: Any) -> int:
        _, _, terminated, truncated, _ = self.env.step(actions)
        return int((terminated | truncated).sum())


class GymnasiumOwn(_GymnasiumVector):
    """The environment that Gymnasium has written over NumPy arrays; it knows no reset within the step."""

    idles = True

    def make(self, twin: str, num_envs: int) -> Any:
        import gymnasium

        return gymnasium.make_vec(twin, num_envs, vectorization_mode="vector_entry_point")


class GymnasiumSync(_GymnasiumVector):
    """Single environments one after another, in this process."""

    def make(self, twin: str, num_envs: int) -> Any:
        import gymnasium

        if num_envs > _TRIAL_ENVS:
            _refuse_slow(GymnasiumSync(twin, _TRIAL_ENVS, 0), num_envs)
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        return gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.make(twin)] * num_envs, autoreset_mode=mode
        )


class GymnasiumAsync(_GymnasiumVector):
    """Each environment in a process of its own; they end with the side, whose process group they are in."""

    def make(self, twin: str, num_envs: int) -> Any:
        import gymnasium

        if num_envs > MAX_PROCESSES:
            raise NotImplementedError(
                f"a process for each of {num_envs:,} environments is more than the {MAX_PROCESSES} that are measured"
            )
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        return gymnasium.vector.AsyncVectorEnv(
            [lambda: gymnasium.make(twin)] * num_envs, autoreset_mode=mode
        )


class EnvPool:
    """EnvPool's threads, all environments in every step; its own step after an episode resets."""

    idles = True

    def __init__(self, twin: str, num_envs: int, seed: int):
        import envpool  # type: ignore[import-not-found]
        import numpy as np

        self.env = envpool.make(twin, env_type="gymnasium", num_envs=num_envs, seed=seed)
        self.num_actions, self.num_envs, self.rng = (
            self.env.action_space.n,
            num_envs,
            np.random.default_rng(seed),
        )
        self.env.reset()

    def sample(self) -> Any:
        return self.rng.integers(0, self.num_actions, self.num_envs, dtype="int32")

    def step(self, actions: Any) -> int:
        _, _, terminated, truncated, _ = self.env.step(actions)
        return int((terminated | truncated).sum())


class PufferLib:
    """PufferLib's environment in C, on one thread; its report, which Python reads, is left out of most steps."""

    idles = False

    def __init__(self, twin: str, num_envs: int, seed: int):
        import numpy as np
        from pufferlib.ocean import env_creator  # type: ignore[import-not-found]

        self.env = env_creator(twin)(num_envs=num_envs, report_interval=128, seed=seed)
        self.num_actions, self.num_envs = self.env.single_action_space.n, num_envs
        self.rng = np.random.default_rng(seed)
        self.env.reset(seed)

    def sample(self) -> Any:
        return self.rng.integers(0, self.num_actions, self.num_envs, dtype="int32")

    def step(self, actions: Any) -> int:
        _, _, terminals, truncations, _ = self.env.step(actions)
        return int((terminals | truncations).astype(bool).sum())


BATCHES: dict[str, Callable[[str, int, int], Batch]] = {
    "gymnasium": GymnasiumLoop,
    "gymnasium-vector": GymnasiumOwn,
    "gymnasium-sync": GymnasiumSync,
    "gymnasium-async": GymnasiumAsync,
    "envpool": EnvPool,
    "pufferlib": PufferLib,
}


def hello(library: str) -> Reply:
    """Import the library and say what it is; the parent knows the machine, and these run on its processor."""
    package = library.partition("-")[0]
    try:
        importlib.import_module(package)
    except ImportError as missing:
        raise ImportError(f"`pip install {package}` installs it: {missing}") from missing
    version = importlib.import_module("importlib.metadata").version(package)
    return {
        "hardware": {"device_kind": "cpu"},
        "versions": {},
        "library": library,
        "library_version": version,
    }


def make_side(
    library: str, workload: Workload, *, record: bool, seed: int, twin: str, returns: bool
) -> VectorSide:
    """Build the side of a library.

    Raises:
        NotImplementedError: the library does not step this workload, or not within the time that
            the others wait.
    """
    if not twin:
        raise NotImplementedError(
            f"suite.toml names no twin of {workload.env} in [twins.{library}]"
        )
    if workload.agent != "random":
        raise NotImplementedError(
            f"only random actions are measured with {library}, not the policy {workload.agent!r}"
        )
    if record or returns:
        raise NotImplementedError(
            f"with {library} neither trajectories nor returns of episodes are kept"
        )
    return VectorSide(BATCHES[library](twin, workload.num_envs, seed), workload)


def _refuse_slow(trial: Batch, num_envs: int) -> None:
    """Refuse what steps one environment after another where so many would hold up the others for minutes."""
    step_s = (
        min(_seconds(lambda: trial.step(trial.sample())) for _ in range(5)) * num_envs / _TRIAL_ENVS
    )
    if step_s * BURN_IN_STEPS > _MAX_WARM_UP_S:
        raise NotImplementedError(
            f"its first {BURN_IN_STEPS} steps of {num_envs:,} environments would take some "
            f"{step_s * BURN_IN_STEPS:.0f} s, longer than the {_MAX_WARM_UP_S:.0f} s that the others wait"
        )


def _seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
