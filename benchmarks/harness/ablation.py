"""An ablation from a host loop to one compiled program: equal updates in ever fewer calls."""

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

_Update = Callable[[Any], Any]


class Ablation:
    """A learner's updates as calls, with one function for each step of the ablation.

    Args:
        config: the training.
        num_updates: updates in a call.

    Attributes:
        steps: of all environments together in a call.
    """

    def __init__(self, config: Any, num_updates: int):
        from myriad import make_key
        from myriad.programs import functions

        loop = functions(config)
        learner = loop.learner
        self.steps = num_updates * learner.steps_per_update * loop.num_envs
        one_step = {"rollout_steps": 1} if hasattr(learner, "rollout_steps") else {}
        self._single = functions(config, **one_step)
        self._num_updates = num_updates
        self._steps_per_update = learner.steps_per_update // self._single.learner.steps_per_update
        # A call donates its state's buffers, so each one must get the state that the last one
        # returned.
        self._collect: Any = jax.jit(loop.collect, donate_argnums=0)
        self._collect_one: Any = jax.jit(self._step, donate_argnums=0)
        self._learn: Any = jax.jit(loop.learn, donate_argnums=0)
        self._run: Any = jax.jit(loop.run, donate_argnums=0)
        self._init: Any = jax.jit(loop.init)
        # A replay buffer must be filled before an agent learns from it.
        self._before = np.int32(learner.first_learning_update(loop.num_envs))
        self._key = make_key(config.seed)

    def state(self) -> Any:
        """Return a state from which every update learns."""
        return self._run(self._init(self._key), self._before, np.bool_(True))[0]  # noqa: FBT003

    def variants(self) -> dict[str, _Update]:
        """Return a function from state to state for each step of the ablation.

        A learner with one step per update has no rollout to scan.
        """
        found: dict[str, _Update] = {
            "host loop": lambda state: self._stepwise(state, self._step_by_hand, _fetched),
            "jitted step": lambda state: self._stepwise(state, self._collect_one, _fetched),
            "no sync": lambda state: self._stepwise(state, self._collect_one, lambda kept: kept),
        }
        if self._steps_per_update > 1:
            found["scanned rollout"] = self._scanned
        return found | {"one program": self._one_program, "chunk of updates": self._chunk}

    def _stepwise(self, state: Any, step: Any, keep: Callable[[Any], Any]) -> Any:
        """Take single steps, keep the result of `keep` for each, and call one program to learn."""
        for _ in range(self._num_updates):
            steps = []
            for t in range(self._steps_per_update):
                state, experience = step(state, np.uint32(t))
                steps.append(keep(experience))
            state = self._learn(state, _joined(steps))
        return state

    def _scanned(self, state: Any) -> Any:
        """Call one program to collect and one to learn."""
        for _ in range(self._num_updates):
            state, experience = self._collect(state)
            state = self._learn(state, experience)
        return state

    def _one_program(self, state: Any) -> Any:
        """Call one program per update, and read its report."""
        for _ in range(self._num_updates):
            state, report = self._run(state, np.int32(1), np.bool_(False))  # noqa: FBT003
            jax.device_get(report)
        return state

    def _chunk(self, state: Any) -> Any:
        """Call one program for all updates."""
        state, report = self._run(state, np.int32(self._num_updates), np.bool_(False))  # noqa: FBT003
        jax.device_get(report)
        return state

    def _step_by_hand(self, state: Any, t: Any) -> tuple[Any, Any]:
        """Run `_step` operation by operation, in Python loops."""
        with _loops_of_python():
            return self._step(state, t)

    def _step(self, state: Any, t: Any) -> tuple[Any, Any]:
        """Collect step `t` of an update, with a key of its own."""
        own = dataclasses.replace(state, key=jax.random.fold_in(state.key, t))
        stepped, experience = self._single.collect(own)
        return dataclasses.replace(stepped, key=state.key), experience


@contextlib.contextmanager
def _loops_of_python() -> Iterator[None]:
    """Run JAX's loops in Python, one operation after another.

    Outside of a compiled program, each call of such a loop would compile it anew. `jax.disable_jit`
    would also take apart functions that JAX itself compiles, such as drawing random numbers.
    """

    def scan(f: Any, init: Any, xs: Any, **_: Any) -> tuple[Any, Any]:
        carry = init
        outputs = []
        for i in range(jax.tree.leaves(xs)[0].shape[0]):
            carry, output = f(carry, jax.tree.map(operator.itemgetter(i), xs))
            outputs.append(output)
        return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)

    def while_loop(condition: Any, body: Any, carry: Any) -> Any:
        while condition(carry):
            carry = body(carry)
        return carry

    def fori_loop(lower: int, upper: int, body: Any, carry: Any, **_: Any) -> Any:
        for i in range(lower, upper):
            carry = body(np.int32(i), carry)
        return carry

    ours = {"scan": scan, "while_loop": while_loop, "fori_loop": fori_loop}
    with mock.patch.multiple(jax.lax, **ours):
        yield


def _fetched(experience: Any) -> Any:
    """Wait for a step and copy it, like a loop that reads every step."""
    return jax.tree.map(np.array, experience)


def _joined(steps: list[Any]) -> Any:
    """Join steps along the time axis, on the host if they are there."""

    def join(*leaves: Any) -> Any:
        on_host = isinstance(leaves[0], np.ndarray)
        return np.concatenate(leaves) if on_host else jnp.concatenate(leaves)

    return steps[0] if len(steps) == 1 else jax.tree.map(join, *steps)
