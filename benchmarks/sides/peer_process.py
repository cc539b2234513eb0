"""The side of a peer that has a Python of its own: `python -P peer_process.py <peer>`, from an empty folder.

peers.py starts it. Nothing of Myriad can be imported here: `myriad-jax` is itself called `myriad`,
so what was imported is looked at before anything is measured.
"""

import functools
import importlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class MyriadJaxBatch:
    """myriad-jax 0.2.0, stepped as its own trainers do: reset and step under vmap, the ended ones masked."""

    module = "myriad"

    def __init__(self, twin: str):
        self.env = importlib.import_module("myriad.envs").make_env(twin)
        self.space = self.env.get_action_space(self.env.config)
        self.num_actions = getattr(self.space, "n", None)

    def reset(self, keys: Any) -> tuple[Any, Any]:
        import jax

        return jax.vmap(self.env.reset, in_axes=(0, None, None))(
            keys, self.env.params, self.env.config
        )

    def sample(self, keys: Any) -> Any:
        import jax

        return jax.vmap(self.space.sample)(keys)

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        import jax
        import jax.numpy as jnp

        step_keys, reset_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        step = jax.vmap(self.env.step, in_axes=(0, 0, 0, None, None))
        obs, state, reward, done, _ = step(
            step_keys, state, action, self.env.params, self.env.config
        )
        done = done.astype(bool)
        reset_obs, reset_state = self.reset(reset_keys)

        def choose(new: Any, old: Any) -> Any:
            return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), new, old)

        obs, state = jax.tree.map(choose, (reset_obs, reset_state), (obs, state))
        return obs, state, reward, done, jnp.zeros_like(done)


class JumanjiBatch:
    """jumanji under its own wrappers for batches and auto-reset; its states hold the keys that it draws with."""

    module = "jumanji"

    def __init__(self, twin: str):
        jumanji, wrappers = (
            importlib.import_module(name) for name in ("jumanji", "jumanji.wrappers")
        )
        self.env = wrappers.VmapWrapper(wrappers.AutoResetWrapper(jumanji.make(twin)))
        self.num_actions = self.env.action_spec.num_values

    def reset(self, keys: Any) -> tuple[Any, Any]:
        state, timestep = self.env.reset(keys)
        return timestep.observation, state

    def sample(self, keys: Any) -> Any:
        import jax

        return jax.vmap(lambda key: jax.random.randint(key, (), 0, self.num_actions))(keys)

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        state, timestep = self.env.step(state, action)
        # As dm_env has it: a discount of zero ends the process, any other at a last step the time.
        ended, terminal = timestep.step_type == 2, timestep.discount == 0
        return timestep.observation, state, timestep.reward, ended & terminal, ended & ~terminal


BATCHES = {"myriad-jax": MyriadJaxBatch, "jumanji": JumanjiBatch}


def check_origin(name: str, package: str) -> None:
    """Import the package of a peer and make sure that it is the peer's.

    Raises:
        RuntimeError: it came from elsewhere than this environment.
    """
    found = Path(str(importlib.import_module(package).__file__)).resolve()
    if not found.is_relative_to(Path(sys.prefix).resolve()):
        raise RuntimeError(
            f"{package} was imported from {found}, outside the environment of {name}"
        )


def hello(name: str) -> dict[str, Any]:
    """Import a peer that runs on JAX and say what it is; the parent knows the machine."""
    import jax

    check_origin(name, BATCHES[name].module if name in BATCHES else name)
    return {
        "hardware": {"device_kind": jax.default_backend()},
        "versions": {"jax": jax.__version__},
        "library": name,
        "library_version": importlib.metadata.version(name),
    }


def main() -> None:
    """Serve as the side that the command line names."""
    name = sys.argv[1]
    # The root only long enough to find `benchmarks`: it holds another `myriad`.
    sys.path.insert(0, str(ROOT))
    from benchmarks.sides import array_libraries as vector_peers
    from benchmarks.sides import training as training_peers
    from benchmarks.sides.jax_scan import ScannedSide
    from benchmarks.sides.server import serve

    sys.path.remove(str(ROOT))
    if name in vector_peers.BATCHES:
        check_origin(name, name)
        serve(lambda: vector_peers.hello(name), functools.partial(vector_peers.make_side, name))
        return

    def make_side(workload: Any, *, twin: str, **options: Any) -> Any:
        if not twin:
            raise NotImplementedError(
                f"suite.toml names no twin of {workload.env} in [twins.{name}]"
            )
        if name in training_peers.LIBRARIES:
            return training_peers.RejaxTraining(workload, seed=options["seed"], twin=twin)
        return ScannedSide(BATCHES[name](twin), workload, **options)

    serve(lambda: hello(name), make_side)


if __name__ == "__main__":
    main()
