"""One side of a comparison: a library that steps a workload, alone in its process since XLA's options are per process.

harness/interleave.py starts `python -m benchmarks.sides <side>`; server.py is what a side then
does. A peer that has a Python of its own takes this process over (harness/peers.py).
"""

import importlib
import os
import sys
from dataclasses import asdict
from typing import Any

from benchmarks.harness import peers
from benchmarks.harness.workloads import Workload, library_of
from benchmarks.sides import array_libraries as vector_peers
from benchmarks.sides import training as training_peers
from benchmarks.sides.jax_scan import ScannedSide
from benchmarks.sides.network_policy import NetworkPolicy, is_network
from benchmarks.sides.server import Reply, Side, Totals, serve


class MyriadSide:
    """The rollout engine of this package."""

    compiles = True

    max_steps: int | None = None

    def __init__(self, workload: Workload, *, record: bool, seed: int):
        import myriad
        from myriad import timing
        from myriad.rollout import Rollout

        env = myriad.make_env(workload.env)
        agent = (
            _network_for(workload.agent, env)
            if is_network(workload.agent)
            else myriad.make_agent(workload.agent, env)
        )
        self.record, self._block = record, timing.block_until_ready
        self.rollout = Rollout(env, agent, workload.num_envs, workload.scan_chunk_size)
        self.num_devices = self.rollout.layout.num_devices
        self.state = self.rollout.init(seed)

    def program(self) -> Any:
        return None if self.record else self.rollout.compile(self.state)

    def run(self, num_steps: int) -> None:
        trajectory = None
        if self.record:
            for start in range(0, num_steps, self.rollout.scan_chunk_size):
                chunk = min(self.rollout.scan_chunk_size, num_steps - start)
                self.state, trajectory = self.rollout.record_chunk(self.state, chunk)
        else:
            self.state = self.rollout.run(self.state, num_steps)
        self._block((self.state, trajectory))

    def totals(self) -> Totals:
        found = self.rollout.summary(self.state)
        return Totals(
            found.num_episodes,
            found.num_episodes * found.mean_episode_return if found.num_episodes else 0.0,
        )


class GymnaxBatch:
    """gymnax's own step under vmap; it resets inside. `twin`: a name of `gymnax.make`, or `module:Class`."""

    def __init__(self, twin: str):
        import gymnax

        if ":" in twin:
            self.env = _imported(twin)()
            self.params = self.env.default_params
        else:
            self.env, self.params = gymnax.make(twin)
        self.num_actions = getattr(self.env.action_space(self.params), "n", None)

    def reset(self, keys: Any) -> tuple[Any, Any]:
        import jax

        return jax.vmap(self.env.reset, in_axes=(0, None))(keys, self.params)

    def sample(self, keys: Any) -> Any:
        import jax

        return jax.vmap(self.env.action_space(self.params).sample)(keys)

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        import jax

        return jax.vmap(self.env.step, in_axes=(0, 0, 0, None))(keys, state, action, self.params)[
            :5
        ]


class NumpySide:
    """Games in plain Python, one after another. `twin`: `module:Class` of a game that is made from a generator."""

    num_devices = 1
    compiles = False
    max_steps: int | None = None

    def __init__(self, workload: Workload, *, twin: str, seed: int):
        import numpy as np

        if workload.agent != "random":
            raise NotImplementedError(
                f"beside NumPy only the random agent is measured, not {workload.agent!r}"
            )
        rng, kind = np.random.default_rng(seed), _imported(twin)
        self.games = [kind(rng) for _ in range(workload.num_envs)]
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
                    num_episodes, return_sum, episode_return = (
                        num_episodes + 1,
                        return_sum + episode_return,
                        0.0,
                    )
            self.returns[number] = episode_return
        self.ended = Totals(num_episodes, return_sum)

    def totals(self) -> Totals:
        return self.ended


def _network_for(agent: str, env: Any) -> NetworkPolicy:
    """Return the network of a workload's agent.

    Raises:
        NotImplementedError: the environment has no observations or actions for a network.
    """
    params = env.default_params
    shape, num_actions = (
        env.observation_space(params).shape,
        getattr(env.action_space(params), "n", None),
    )
    if num_actions is None or len(shape) != 1:
        raise NotImplementedError(
            "the networks measured here choose among a few actions from a vector of numbers"
        )
    return NetworkPolicy(agent, shape[0], num_actions)


def _imported(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _start(name: str) -> Reply:
    """Start JAX's backend with the side's options, import its library and say which machine and versions it runs on."""
    library = library_of(name)
    if library in peers.declared():
        raise ImportError(peers.how_to_install(library))
    if library in vector_peers.BATCHES:
        return vector_peers.hello(library)
    if name == "numpy":
        os.environ["JAX_PLATFORMS"] = "cpu"  # where NumPy runs, so that the row says so
    import myriad
    from myriad import hardware

    if name == "myriad":
        myriad.configure()
    elif name.endswith("-configured"):
        myriad.configure(cpu_devices=1)
    machine = asdict(
        hardware.fingerprint()
    )  # first, as a missing device need not wait for the library
    importlib.import_module(library)
    versions = {"myriad": myriad.__version__} | hardware.package_versions()
    return {
        "hardware": machine,
        "versions": versions,
        "library": library,
        "library_version": versions.get(library, ""),
    }


def _make_side(
    name: str, workload: Workload, *, record: bool, seed: int, twin: str, returns: bool
) -> Side:
    library = library_of(name)
    if library == "myriad" and workload.agent == training_peers.AGENT:
        return training_peers.MyriadTraining(workload, seed=seed)
    if library == "myriad":
        return MyriadSide(workload, record=record, seed=seed)
    if library in vector_peers.BATCHES:
        return vector_peers.make_side(
            library, workload, record=record, seed=seed, twin=twin, returns=returns
        )
    if not twin:
        raise NotImplementedError(
            f"suite.toml names no twin of {workload.env} in [twins.{library}]"
        )
    if library == "numpy":
        return NumpySide(workload, twin=twin, seed=seed)
    return ScannedSide(GymnaxBatch(twin), workload, record=record, seed=seed, returns=returns)


def main() -> None:
    """Serve as the side that the command line names."""
    name = sys.argv[1]
    library = library_of(name)
    if library in peers.declared() and peers.is_installed(library):
        if name != library:
            from myriad import configure

            configure(cpu_devices=1)  # sets what the next program in this process inherits
        peers.enter(library)

    def make_side(workload: Workload, **of_side: Any) -> Side:
        return _make_side(name, workload, **of_side)

    refusals: tuple[type[Exception], ...] = ()
    if (
        library not in vector_peers.BATCHES
    ):  # those fork, and in a process where JAX is loaded they should not
        from myriad.errors import MyriadError

        refusals = (MyriadError,)
    serve(lambda: _start(name), make_side, refusals)


if __name__ == "__main__":
    main()
