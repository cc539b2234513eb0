"""`check_agent` finds the faults of an agent quickly, before a training does so slowly."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.adapters import make_env
from myriad.agents import make_learner
from myriad.envs.checker import (
    Finding,
    at,
    fixed_key,
    kind_of,
    numbers,
    quickly,
    run_stages,
    trace_with_keys,
    traced,
    tree_faults,
)
from myriad.envs.environment import AnyEnvironment
from myriad.envs.wrappers import Wrapper, for_learner
from myriad.errors import AgentWarning, FaultyAgentError
from myriad.ranges import checked
from myriad.training.loop import PARTS, LearningLoop

_NUM_ENVS = 8
_NUM_UPDATES = 3


@checked
def check_agent(agent: str, env: str | AnyEnvironment = "cartpole", **options: Any) -> None:
    """Try a learner and list its faults. It compiles and trains for a few updates.

    At the end it prints the processor time that it took to the standard error stream.

    The stages, in this order. It stops at the first with faults, and an error ends a stage:

    - shapes and actions: results of `init`, `update` and `act` of wrong shapes and dtypes, metrics
      that `metric_names` doesn't name, and code that JAX can't trace.
    - keys: random keys that are used twice.
    - seeds: a learner that `jax.vmap` can't train with many seeds at once.
    - behaviour: some updates. It looks for another number of steps than `steps_per_update`, for
      numbers that are not finite, for actions out of their space and for parameters that never
      change.

    Args:
        agent: a name in `list_agents()`, or `package.module:Class` of your own.
        env: the environment that it acts in, or its name.
        **options: fields of the agent that differ from their defaults.

    Raises:
        FaultyAgentError: the agent has faults. Its `faults` lists them as sentences, and its
            `__cause__` is the error that your code raised.
        UnknownNameError: there is no such agent, environment or field.
        InvalidArgumentError: the agent can't act in this environment.

    Warns:
        AgentWarning: the agent trains, but something may not be what you want.

    Example:
        >>> check_agent("pqn", rollout_steps=8, num_minibatches=2)
    """
    task = for_learner(make_env(env))
    learner = make_learner(agent, task, _NUM_ENVS, **options)
    num_envs = learner.num_envs_multiple * math.ceil(_NUM_ENVS / learner.num_envs_multiple)
    loop = LearningLoop(task, learner, num_envs)
    stages = (_shapes, _actions, _keys, _seeds, _behaviour)
    run_stages(agent, loop, stages, FaultyAgentError)


def _shapes(loop: LearningLoop) -> Iterator[Finding]:
    learner: Any = loop.learner
    state = traced("init", loop.init, fixed_key())
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.agent):
        if leaf.weak_type:
            yield AgentWarning(
                f"state{at(path)} of init is of a weak type, so that an update would compile "
                f"twice: make it jnp.{leaf.dtype}(...)."
            )
    result = traced("update", functools.partial(_update, loop), state)
    if not (isinstance(result, tuple) and len(result) == 3):
        yield f"update must return (state, batch_state, metrics), but returns {kind_of(result)}."
        return
    agent, batch_state, metrics = result
    yield from tree_faults("state", "init", state.agent, "update", agent)
    yield from tree_faults("batch_state", "reset", state.batch_state, "update", batch_state)
    if not isinstance(metrics, dict) or set(metrics) != set(learner.metric_names):
        named = ", ".join(learner.metric_names) or "none"
        given = ", ".join(metrics) if isinstance(metrics, dict) else kind_of(metrics)
        yield f"update must report the metrics of metric_names, {named}, but has {given}."
        return
    for name, value in metrics.items():
        if getattr(value, "shape", None) != () or value.dtype != np.float32:
            yield f"metric {name} must be a scalar of float32, but is {kind_of(value)}."


def _actions(loop: LearningLoop) -> Iterator[Finding]:
    state = jax.eval_shape(loop.init, fixed_key())
    space = loop.env.action_space(loop.env.default_params)
    for greedy in (True, False):
        call = functools.partial(loop.learner.act, greedy=greedy)
        action = traced("act", call, state.agent, fixed_key(), state.batch_state.obs)
        expected = (loop.num_envs, *space.shape)
        if (getattr(action, "shape", None), action.dtype) != (expected, space.dtype):
            yield (
                f"act with greedy={greedy} must return actions of {space.dtype} and shape "
                f"{expected}, but returns {kind_of(action)}."
            )


def _keys(loop: LearningLoop) -> Iterable[Finding]:
    learner: Any = loop.learner
    key = jax.random.key(0)
    state = jax.eval_shape(loop.init, key)

    def update(key: jax.Array, agent: Any, batch_state: Any) -> Any:
        return learner.update(key, agent, batch_state, loop)

    act = functools.partial(learner.act, greedy=False)
    trace_with_keys("init", lambda key: learner.init(key, loop.num_envs), key)
    trace_with_keys("update", update, key, state.agent, state.batch_state)
    trace_with_keys("act", act, state.agent, key, state.batch_state.obs)
    return ()


def _seeds(loop: LearningLoop) -> Iterable[Finding]:
    def trained(key: jax.Array) -> Any:
        return loop.run(loop.init(key), jnp.int32(1), jnp.ones((), bool))

    keys = jax.eval_shape(lambda: jax.random.split(fixed_key(), 2))
    traced("update of two seeds at once, by jax.vmap,", jax.vmap(trained), keys)
    return ()


@dataclasses.dataclass(frozen=True)
class _Endless(Wrapper):
    """The environment without ends, so that an episode's length counts the steps of an update."""

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Any:
        obs, state, reward, done, _, info = self.env.step(key, state, action, params)
        never = jnp.zeros_like(done)
        return obs, state, reward, never, never, info


def _behaviour(loop: LearningLoop) -> Iterator[Finding]:
    state = quickly(loop.init)(fixed_key())
    endless = LearningLoop(_Endless(loop.env), loop.learner, loop.num_envs)
    update = quickly(lambda state: _update(endless, state)[1])
    counted = int(np.max(update(state).episode_length))
    if counted != loop.learner.steps_per_update:
        yield (
            f"update takes {counted} steps of each environment, but steps_per_update is "
            f"{loop.learner.steps_per_update}."
        )
        return
    run = quickly(loop.run)
    before = numbers(state.agent)
    num_updates = loop.learner.first_learning_update(loop.num_envs) + _NUM_UPDATES
    for count in (num_updates, 1):
        state, report = run(state, np.int32(count), np.bool_(False))  # noqa: FBT003
        for part, is_bad in zip(PARTS, np.asarray(report.is_bad), strict=True):
            if is_bad:
                yield f"{part} after {num_updates} updates."
                return
    is_same = [np.array_equal(a, b) for a, b in zip(before, numbers(state.agent), strict=True)]
    if loop.learner.metric_names and all(is_same):
        yield AgentWarning(f"nothing in the state changed in {num_updates + 1} updates.")
    space: Any = loop.env.action_space(loop.env.default_params)

    def acts(state: Any) -> list[tuple[jax.Array, jax.Array]]:
        act = functools.partial(loop.learner.act, state.agent, fixed_key(), state.batch_state.obs)
        actions = [act(greedy=greedy) for greedy in (True, False)]
        return [(action, jnp.all(jax.vmap(space.contains)(action))) for action in actions]

    both = quickly(acts)(state)
    for greedy, (action, fits) in zip((True, False), both, strict=True):
        if not fits:
            yield (
                f"act with greedy={greedy} returns actions out of {space}: the first is "
                f"{np.asarray(action)[0]}."
            )


def _update(loop: LearningLoop, state: Any) -> Any:
    learner: Any = loop.learner
    return learner.update(fixed_key(), state.agent, state.batch_state, loop)
