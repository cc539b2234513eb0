"""Run one side of a comparison: a library that steps a workload in its own process.

XLA's options are per process, so each side has its own. harness/interleave.py starts `python -m
benchmarks.sides <side>`, which then runs server.py. A peer with its own Python replaces this
process (harness/peers.py).
"""

import importlib
import os
import sys
from dataclasses import asdict
from typing import Any

from benchmarks.harness import peers
from benchmarks.harness.libraries import OURS, library_of
from benchmarks.harness.workloads import Workload
from benchmarks.sides import array_libraries, ours, training
from benchmarks.sides.jax_scan import ScanStepper
from benchmarks.sides.server import Reply, Stepper, Totals, no_env_id, serve


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


class NumpyStepper:
    """Games in plain Python, one after another.

    Args:
        workload: the workload to step.
        env_id: `module:Class` of a game that takes a NumPy generator.
        seed: the generator's seed.
    """

    num_devices = 1
    compiles = False
    max_steps: int | None = None

    def __init__(self, workload: Workload, *, env_id: str, seed: int):
        import numpy as np

        if workload.agent != "random":
            raise NotImplementedError(
                f"beside NumPy only the random agent is measured, not {workload.agent!r}"
            )
        rng = np.random.default_rng(seed)
        game = _imported(env_id)
        self.games = [game(rng) for _ in range(workload.num_envs)]
        self.returns = [0.0] * workload.num_envs
        self.ended = Totals(0, 0.0)

    def program(self) -> None:
        return None

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


def _start(name: str) -> Reply:
    """Start JAX's backend with the side's options, import its library, and describe both."""
    library = library_of(name)
    if library in peers.declared():
        raise ImportError(peers.how_to_install(library))
    if library in array_libraries.ENVS:
        return array_libraries.hello(library)
    if name == "numpy":
        os.environ["JAX_PLATFORMS"] = "cpu"  # NumPy runs on the CPU, and the row must say so
    import jax

    import myriad
    from myriad import hardware

    if name == OURS:
        myriad.configure()
    elif name.endswith("-configured"):
        myriad.configure(cpu_devices=1)
    # The backend starts first, so that a missing device is reported before the library loads.
    machine = asdict(hardware.fingerprint())
    importlib.import_module(library)
    versions = {"myriad": myriad.__version__} | hardware.package_versions()
    return {
        "hardware": machine,
        "devices": jax.local_device_count(),
        "versions": versions,
        "library": library,
        "library_version": versions.get(library, ""),
    }


def _make_stepper(
    name: str, workload: Workload, *, record: bool, seed: int, env_id: str, returns: bool
) -> Stepper:
    library = library_of(name)
    if library == OURS and workload.num_seeds:
        return ours.MyriadSeeds(workload, seed=seed)
    if library == OURS and workload.agent == training.AGENT:
        return ours.MyriadTraining(workload, seed=seed)
    if library == OURS:
        return ours.MyriadStepper(workload, record=record, seed=seed)
    if library in array_libraries.ENVS:
        return array_libraries.make_stepper(
            library, workload, record=record, seed=seed, env_id=env_id, returns=returns
        )
    if not env_id:
        raise NotImplementedError(no_env_id(workload.env, library))
    if library == "numpy":
        return NumpyStepper(workload, env_id=env_id, seed=seed)
    return ScanStepper(GymnaxEnvs(env_id), workload, record=record, seed=seed, returns=returns)


def main() -> None:
    """Run the side that the command line names."""
    name = sys.argv[1]
    library = library_of(name)
    if library in peers.declared() and peers.is_installed(library):
        if name != library:
            from myriad import configure

            # sets the environment variables for a program that replaces this process
            configure(cpu_devices=1)
        peers.enter(library)

    def make_stepper(workload: Workload, **options: Any) -> Stepper:
        return _make_stepper(name, workload, **options)

    refusals: tuple[type[Exception], ...] = ()
    # Array libraries fork, and a process that has loaded JAX should not fork.
    if library not in array_libraries.ENVS:
        from myriad.errors import MyriadError

        refusals = (MyriadError,)
    serve(lambda: _start(name), make_stepper, refusals)


if __name__ == "__main__":
    main()
