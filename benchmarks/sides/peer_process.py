"""Run the side of a peer with its own Python: `python -m benchmarks.sides.peer_process <peer>`.

harness/peers.py starts it. Nothing of our package can be imported here, because `myriad-jax` 0.2.0
is itself imported as `myriad`. So the origin of each package is checked before anything is
measured.
"""

import functools
import importlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import answer
from benchmarks.sides import array_libraries
from benchmarks.sides.jax_scan import ScanStepper
from benchmarks.sides.server import replies_to, require_env_id
from benchmarks.sides.training import RejaxTraining


class MyriadJaxEnvs:
    """myriad-jax 0.2.0, stepped like its own trainers: reset and step under vmap, then a mask."""

    module = "myriad"

    def __init__(self, env_id: str):
        self.env = importlib.import_module("myriad.envs").make_env(env_id)
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


class JumanjiEnvs:
    """jumanji with its own wrappers for batches and auto-reset. Its states hold its keys."""

    module = "jumanji"

    def __init__(self, env_id: str):
        jumanji = importlib.import_module("jumanji")
        wrappers = importlib.import_module("jumanji.wrappers")
        self.env = wrappers.VmapWrapper(wrappers.AutoResetWrapper(jumanji.make(env_id)))
        self.num_actions = self.env.action_spec.num_values

    def reset(self, keys: Any) -> tuple[Any, Any]:
        state, timestep = self.env.reset(keys)
        return timestep.observation, state

    def sample(self, keys: Any) -> Any:
        import jax

        return jax.vmap(lambda key: jax.random.randint(key, (), 0, self.num_actions))(keys)

    def step(self, keys: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        state, timestep = self.env.step(state, action)
        # dm_env's rule: at a last step, a discount of 0 means terminated, and any other means
        # truncated.
        ended = timestep.step_type == 2
        terminal = timestep.discount == 0
        return timestep.observation, state, timestep.reward, ended & terminal, ended & ~terminal


ENVS = {"myriad-jax": MyriadJaxEnvs, "jumanji": JumanjiEnvs}


def check_origin(name: str, package: str) -> None:
    """Import a peer's package, and check that it is really the peer's.

    Raises:
        RuntimeError: it came from outside of this environment.
    """
    found = Path(str(importlib.import_module(package).__file__)).resolve()
    if not found.is_relative_to(Path(sys.prefix).resolve()):
        raise RuntimeError(
            f"{package} was imported from {found}, outside the environment of {name}"
        )


def hello(name: str) -> dict[str, Any]:
    """Import a peer that runs on JAX, and describe it. The parent adds the machine."""
    import jax

    check_origin(name, ENVS[name].module if name in ENVS else name)
    return {
        "hardware": {"device_kind": jax.default_backend()},
        "devices": jax.local_device_count(),
        "versions": {each: importlib.metadata.version(each) for each in ("jax", "jaxlib", "numpy")},
        "library": name,
        "library_version": importlib.metadata.version(name),
    }


def main() -> None:
    """Run the side that the command line names."""
    name = sys.argv[1]
    if name in array_libraries.ENVS:
        check_origin(name, name)
        said = functools.partial(array_libraries.hello, name)
        answer(replies_to(sys.stdin, said, array_libraries.make_stepper))
        return

    def make_stepper(case: Any) -> Any:
        require_env_id(case, name)
        if name in ENVS:
            return ScanStepper(ENVS[name](case.env_id), case)
        return RejaxTraining(case.workload, case.env_id)

    answer(replies_to(sys.stdin, functools.partial(hello, name), make_stepper))


if __name__ == "__main__":
    main()
