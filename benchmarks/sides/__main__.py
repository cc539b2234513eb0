"""Run one side of a comparison: a library that steps a workload in its own process.

XLA's options are per process, so each side has its own. harness/interleave.py starts `python -m
benchmarks.sides <side>`, which then runs server.py. A peer with its own Python replaces this
process (harness/peers.py).
"""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from benchmarks.harness import peers
from benchmarks.harness.libraries import OURS, library_of
from benchmarks.harness.worker import answer
from benchmarks.harness.workload import Case
from benchmarks.sides import array_libraries, c_loops, ours, training
from benchmarks.sides.jax_scan import ScanStepper
from benchmarks.sides.server import SEED, Reply, Stepper, Totals, replies_to, require_env_id


class GymnaxEnvs:
    """gymnax's own step under vmap, which also resets.

    Args:
        env_id: a name that `gymnax.make` knows, or `module:Class`.
    """

    def __init__(self, env_id: str):
        # Imported here, because importing it takes 3 s and loads seaborn.
        import gymnax

        if ":" in env_id:
            self.env = _imported(env_id)()
            self.params = self.env.default_params
        else:
            self.env, self.params = gymnax.make(env_id)
        self.num_actions = getattr(self.env.action_space(self.params), "n", None)

    def reset(self, keys: Any) -> tuple[Any, Any]:
        import jax

        return jax.vmap(self.env.reset, in_axes=(0, None))(keys, self.params)

    def sample(self, keys: Any) -> Any:
        import jax

        return jax.vmap(self.env.action_space(self.params).sample)(keys)

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        import jax

        step = jax.vmap(self.env.step, in_axes=(0, 0, 0, None))
        # The sixth value is `info`, which is not used.
        return step(keys, state, action, self.params)[:5]


class NumpyStepper(Stepper):
    """Games in plain Python, one after another: `env_id` is a class that takes a generator."""

    def __init__(self, case: Case):
        import numpy as np

        workload = case.workload
        if workload.agent != "random":
            raise NotImplementedError(
                f"beside NumPy only the random agent is measured, not {workload.agent!r}"
            )
        rng = np.random.default_rng(SEED)
        game = _imported(case.env_id)
        self.games = [game(rng) for _ in range(workload.num_envs)]
        self.returns = [0.0] * workload.num_envs
        self.ended = Totals(0, 0.0)

    def run(self, num_steps: int) -> None:
        num_episodes, return_sum, _ = self.ended
        for number, game in enumerate(self.games):
            episode_return = self.returns[number]
            for _ in range(num_steps):
                reward, done = game.step(game.sample_action())
                episode_return += reward
                if done:
                    game.reset()
                    num_episodes += 1
                    return_sum += episode_return
                    episode_return = 0.0
            self.returns[number] = episode_return
        self.ended = Totals(num_episodes, return_sum)

    def totals(self) -> Totals:
        return self.ended


def _imported(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


# Libraries that run in our Python, besides those with plain arrays.
ENVS: dict[str, Callable[[Case], Stepper]] = {
    "gymnax": lambda case: ScanStepper(GymnaxEnvs(case.env_id), case),
    "numpy": NumpyStepper,
    "c": c_loops.CStepper,
}


def hello(side: str) -> Reply:
    """Start JAX's backend with the side's options, import its library, and describe both."""
    library = library_of(side)
    if library in peers.declared():
        raise ImportError(peers.how_to_install(library))
    if library in array_libraries.ENVS:
        return array_libraries.hello(library)
    if library == "c":
        return c_loops.hello()
    if side == "numpy":
        os.environ["JAX_PLATFORMS"] = "cpu"  # NumPy runs on the CPU, and the row must say so
    import jax

    import myriad
    from myriad import hardware

    if side == OURS:
        myriad.configure()
    elif side.endswith("-configured"):
        myriad.configure(cpu_devices=1)
    # The backend starts first, so that a missing device is reported before the library loads.
    machine = asdict(hardware.fingerprint())
    importlib.import_module(library)
    versions = hardware.package_versions()
    return {
        "hardware": machine,
        "devices": jax.local_device_count(),
        "versions": versions,
        "library": library,
        "library_version": versions.get(library, ""),
    }


def make_stepper(case: Case) -> Stepper:
    """Build the side of a library that runs in our Python."""
    library = library_of(case.side)
    if library == OURS and case.workload.num_seeds:
        return ours.MyriadSeeds(case.workload)
    if library == OURS and case.workload.agent == training.AGENT:
        return ours.MyriadTraining(case.workload)
    if library == OURS:
        return ours.MyriadStepper(case)
    if library in array_libraries.ENVS:
        return array_libraries.make_stepper(case)
    require_env_id(case, library)
    return ENVS[library](case)


def main() -> None:
    """Run the side that the command line names."""
    side = sys.argv[1]
    library = library_of(side)
    if library in peers.declared() and peers.is_installed(library):
        if side != library:
            from myriad import configure

            # sets the environment variables for a program that replaces this process
            configure(cpu_devices=1)
        peers.enter(library)
    refusals: tuple[type[Exception], ...] = ()
    # Array libraries fork, and a process that has loaded JAX should not fork.
    if library not in array_libraries.ENVS:
        from myriad.errors import MyriadError

        refusals = (MyriadError,)
    answer(replies_to(sys.stdin, functools.partial(hello, side), make_stepper), refusals)


if __name__ == "__main__":
    main()
