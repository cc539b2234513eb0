"""Step libraries with plain arrays, without JAX: Gymnasium, EnvPool, PufferLib.

One loop serves all of them, written like their users' loops: draw actions, step, count ended
episodes. This module imports neither Myriad nor JAX. Some libraries run in their own Python, and a
process that forks must not have started JAX.
"""

import importlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from benchmarks.harness.worker import seconds_of
from benchmarks.harness.workload import Case, Workload
from benchmarks.libraries.server import BURN_IN_STEPS, SEED, Reply, Stepper, Totals

MAX_PROCESSES = 16
# A library whose first steps would take longer is refused, because it would hold up all others.
_MAX_WARM_UP_S = 60.0
# The longest call of a slow library, since the others wait for it in every round.
_MAX_CALL_S = 0.5
_TRIAL_ENVS = 100


class ArrayEnvs:
    """All environments of one library, given its name for them and their number.

    Attributes:
        idles: whether the step after an episode's end only resets.
    """

    idles = False
    env: Any

    def sample(self) -> Any:
        """Draw the actions of the random policy."""
        return self.env.action_space.sample()

    def step(self, actions: Any) -> int:
        """Step every environment and return how many episodes ended."""
        _, _, terminated, truncated, _ = self.env.step(actions)
        return int(((terminated | truncated) != 0).sum())


class VectorStepper(Stepper):
    """Step environments with the random policy. `max_steps` keeps a call short for the others."""

    def __init__(self, envs: ArrayEnvs, workload: Workload):
        self.envs = envs
        self.num_envs = workload.num_envs
        self.num_episodes = 0
        self.num_idle_steps = 0
        self._resetting = 0
        step_s = min(seconds_of(self.run, 1) for _ in range(3))
        self.max_steps = max(1, int(_MAX_CALL_S / step_s))

    def run(self, num_steps: int) -> None:
        envs = self.envs
        for _ in range(num_steps):
            num_ended = envs.step(envs.sample())
            self.num_episodes += num_ended
            if envs.idles:
                self.num_idle_steps += self._resetting
                self._resetting = num_ended

    def totals(self) -> Totals:
        return Totals(self.num_episodes, None, self.num_idle_steps)


class _Gymnasium(ArrayEnvs):
    """The base of Gymnasium's environments."""

    def __init__(self, env_id: str, num_envs: int):
        self.env = self.make(env_id, num_envs)
        self.env.action_space.seed(SEED)
        self.env.reset(seed=SEED)

    def make(self, env_id: str, num_envs: int) -> Any:
        """Build the environments."""
        raise NotImplementedError

    def made_of_single(self, kind: str, env_id: str, num_envs: int) -> Any:
        """Build one of Gymnasium's vectors of single environments."""
        import gymnasium

        envs = [lambda: gymnasium.make(env_id)] * num_envs
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        return getattr(gymnasium.vector, kind)(envs, autoreset_mode=mode)


class GymnasiumLoop(_Gymnasium):
    """One environment of `gymnasium.make`, stepped like the first example in its documentation."""

    def make(self, env_id: str, num_envs: int) -> Any:
        import gymnasium

        if num_envs > 1:
            raise NotImplementedError(
                f"a loop over one environment, not {num_envs:,}: gymnasium-sync has the loop"
            )
        return gymnasium.make(env_id)

    def step(self, actions: Any) -> int:
        _, _, terminated, truncated, _ = self.env.step(actions)
        if terminated or truncated:
            self.env.reset()
            return 1
        return 0


class GymnasiumOwn(_Gymnasium):
    """Gymnasium's own environment over NumPy arrays, which never resets in a step."""

    idles = True

    def make(self, env_id: str, num_envs: int) -> Any:
        import gymnasium

        return gymnasium.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point")


class GymnasiumSync(_Gymnasium):
    """Single environments one after another, in this process."""

    def make(self, env_id: str, num_envs: int) -> Any:
        if num_envs > _TRIAL_ENVS:
            trial = GymnasiumSync(env_id, _TRIAL_ENVS)
            trial_s = min(seconds_of(lambda: trial.step(trial.sample())) for _ in range(5))
            warm_up_s = BURN_IN_STEPS * trial_s * num_envs / _TRIAL_ENVS
            if warm_up_s > _MAX_WARM_UP_S:
                raise NotImplementedError(
                    f"its first {BURN_IN_STEPS} steps of {num_envs:,} environments would take some "
                    f"{warm_up_s:.0f} s, longer than the {_MAX_WARM_UP_S:.0f} s that the others "
                    "wait"
                )
        return self.made_of_single("SyncVectorEnv", env_id, num_envs)


class GymnasiumAsync(_Gymnasium):
    """Each environment in a process of its own, in the process group of this process."""

    def make(self, env_id: str, num_envs: int) -> Any:
        if num_envs > MAX_PROCESSES:
            raise NotImplementedError(
                f"{num_envs:,} environments would need as many processes, "
                f"and at most {MAX_PROCESSES} are measured"
            )
        return self.made_of_single("AsyncVectorEnv", env_id, num_envs)


class EnvPool(ArrayEnvs):
    """EnvPool's threads, with all environments in every step. The step after an episode resets."""

    idles = True

    def __init__(self, env_id: str, num_envs: int):
        import envpool  # type: ignore[import-not-found]

        self.env = envpool.make(env_id, env_type="gymnasium", num_envs=num_envs, seed=SEED)
        self.sample = _sampler(self.env.action_space.n, num_envs)
        self.env.reset()


class PufferLib(ArrayEnvs):
    """PufferLib's environment in C, on one thread. Most steps leave out its report."""

    def __init__(self, env_id: str, num_envs: int):
        from pufferlib.ocean import env_creator  # type: ignore[import-not-found]

        self.env = env_creator(env_id)(num_envs=num_envs, report_interval=128, seed=SEED)
        self.sample = _sampler(self.env.single_action_space.n, num_envs)
        self.env.reset(SEED)


def _sampler(num_actions: int, num_envs: int) -> Callable[[], Any]:
    """Return a function that draws actions, for libraries whose spaces draw one at a time."""
    import numpy as np

    rng = np.random.default_rng(SEED)
    return lambda: rng.integers(0, num_actions, num_envs, dtype="int32")


ENVS: dict[str, Callable[[str, int], ArrayEnvs]] = {
    "gymnasium": GymnasiumLoop,
    "gymnasium-vector": GymnasiumOwn,
    "gymnasium-sync": GymnasiumSync,
    "gymnasium-async": GymnasiumAsync,
    "envpool": EnvPool,
    "pufferlib": PufferLib,
}


def hello(library: str) -> Reply:
    """Import the library and describe it."""
    package = library.partition("-")[0]
    try:
        importlib.import_module(package)
    except ImportError as missing:
        raise ImportError(f"install it with `pip install {package}`: {missing}") from missing
    # The parent adds the machine, whose CPU it uses.
    return {
        "hardware": {"device_kind": "cpu"},
        "versions": {"numpy": version("numpy")},
        "library": library,
        "library_version": version(package),
    }


def make_stepper(case: Case) -> VectorStepper:
    """Build what steps with a library.

    Raises:
        NotImplementedError: the library can't step this workload, or not within the time that the
            others wait.
    """
    library = case.side
    if case.workload.agent != "random":
        raise NotImplementedError(
            f"only random actions are measured with {library}, "
            f"not the policy {case.workload.agent!r}"
        )
    if case.record or case.returns:
        raise NotImplementedError(
            f"with {library} neither trajectories nor returns of episodes are kept"
        )
    return VectorStepper(ENVS[library](case.env_id, case.workload.num_envs), case.workload)
