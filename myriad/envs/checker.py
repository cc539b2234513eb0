"""`check_env` finds the faults of an environment quickly, before a training does so slowly."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad.envs.environment import Environment
from myriad.envs.vector import select_reset
from myriad.errors import FaultyEnvironmentError, MyriadError
from myriad.spaces import Space
from myriad.xla import count_compilations

_MEMBERS = ("default_params", "reset", "step", "observation_space", "action_space")
_NUM_ENVS, _NUM_STEPS = 64, 256
# The errors that JAX raises when Python needs the concrete value of a traced array.
_TRACING_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    TypeError,
    ValueError,
)


def check_env(env: Environment) -> None:
    """Try `env` and list all its faults. This takes a few seconds, mostly for compilation.

    It checks the members and the shapes and dtypes of their results, random keys that are used
    twice or not at all, observations outside their space or not finite, batched parameters, time
    limits that are reported as terminations, and steps that recompile.

    Raises:
        FaultyEnvironmentError: the environment has faults. Its `faults` lists them as sentences.

    Example:
        >>> from myriad import make_env
        >>> check_env(make_env("cartpole-control"))
    """
    # Stop at the first stage with faults, since they would cause misleading ones in later stages.
    for stage in (_members, _reset, _step, _keys, _batches, _behaviour):
        if faults := list(stage(env)):
            raise FaultyEnvironmentError(type(env).__name__, faults)


def _members(env: Any) -> Iterator[str]:
    for name in _MEMBERS:
        if not hasattr(env, name):
            yield f"{name} is missing."
            return
    try:
        hash(env)
    except TypeError:
        yield (
            "the environment must be hashable, as a dataclass with frozen=True and its "
            "parameters in default_params is."
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(env.default_params):
        if not isinstance(leaf, int | float | np.ndarray | np.generic | jax.Array):
            yield f"default_params{_at(path)} must be a number or an array, but is {leaf!r}."
    if dataclasses.is_dataclass(env.default_params) and jax.tree.leaves(env.default_params) == [
        env.default_params
    ]:
        yield (
            "default_params must be a pytree: decorate its class with "
            "jax.tree_util.register_dataclass."
        )


def _reset(env: Environment) -> Iterator[str]:
    params = env.default_params
    try:
        result = jax.eval_shape(env.reset, jax.random.key(0), params)
    except _TRACING_ERRORS as error:
        yield _untraceable("reset", error)
        return
    if not (isinstance(result, tuple) and len(result) == 2):
        yield f"reset must return (obs, state), but returns {_kind(result)}."
        return
    obs, state = result
    yield from _array_faults("obs of reset", obs, env.observation_space(params))
    yield from _weak_faults("reset", state)


def _step(env: Environment) -> Iterator[str]:
    params = env.default_params
    key = jax.random.key(0)
    state = jax.eval_shape(env.reset, key, params)[1]
    space = env.action_space(params)
    action = jax.ShapeDtypeStruct(space.shape, space.dtype)
    try:
        result = jax.eval_shape(env.step, key, state, action, params)
    except _TRACING_ERRORS as error:
        yield _untraceable("step", error)
        return
    if not (isinstance(result, tuple) and len(result) == 6):
        yield (
            "step must return (obs, state, reward, terminated, truncated, info), but returns "
            f"{_kind(result)}."
        )
        return
    obs, next_state, reward, terminated, truncated, info = result
    yield from _array_faults("obs of step", obs, env.observation_space(params))
    yield from _scalar_faults("reward", reward, np.float32)
    yield from _scalar_faults("terminated", terminated, np.bool_)
    yield from _scalar_faults("truncated", truncated, np.bool_)
    if not isinstance(info, dict):
        yield f"info must be a dict, but is {_kind(info)}."
    yield from _state_faults(state, next_state)


def _keys(env: Environment) -> Iterator[str]:
    """Trace with JAX's checker of key reuse, which follows only JAX's own kinds of keys."""
    params = env.default_params
    key = jax.random.key(0)
    state = jax.eval_shape(env.reset, key, params)[1]
    space = env.action_space(params)
    action = jax.ShapeDtypeStruct(space.shape, space.dtype)
    calls = {"reset": (env.reset, (key, params)), "step": (env.step, (key, state, action, params))}
    for name, (function, arguments) in calls.items():
        with jax.debug_key_reuse(new_val=True):
            try:
                jax.jit(lambda *arguments, function=function: function(*arguments)).lower(
                    *arguments
                )
            except jax.errors.KeyReuseError:
                yield (
                    f"{name} uses one random key for several draws, which makes them equal or "
                    "dependent: split it."
                )
    program = str(jax.make_jaxpr(env.reset)(key, params))
    if "random_" in program:
        keys = jax.random.split(key, _NUM_ENVS)
        states = jax.tree.leaves(jax.vmap(env.reset, in_axes=(0, None))(keys, params))
        if all(bool((leaf == leaf[0]).all()) for leaf in states):
            yield (
                f"reset draws, but {_NUM_ENVS} resets with different keys are all equal: draw "
                "from the key it gets."
            )


def _batches(env: Environment) -> Iterator[str]:
    params = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (_NUM_ENVS, *np.shape(leaf))), env.default_params
    )
    keys = jax.random.split(jax.random.key(0), _NUM_ENVS)
    space = env.action_space(env.default_params)
    action = jax.vmap(space.sample)(keys)
    try:
        jax.eval_shape(
            lambda: jax.vmap(env.step)(keys, jax.vmap(env.reset)(keys, params)[1], action, params)
        )
    except _TRACING_ERRORS as error:
        yield (
            f"{_untraceable('step', error)} Each environment had its own parameters, as in "
            "domain randomisation."
        )


def _behaviour(env: Environment) -> Iterator[str]:
    """Step `_NUM_ENVS` environments with random actions and check all results."""
    params = env.default_params
    key = jax.random.key(0)
    space = env.action_space(params)
    obs_space = env.observation_space(params)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
    sample = jax.jit(jax.vmap(space.sample))
    replace_done = jax.jit(select_reset)
    _, state = reset(jax.random.split(key, _NUM_ENVS), params)
    trace = []
    with count_compilations() as compilations:
        for index in range(_NUM_STEPS):
            keys = jax.random.split(jax.random.fold_in(key, index), (3, _NUM_ENVS))
            after = step(keys[0], state, sample(keys[1]), params)
            trace.append(jax.device_get((state, after[:5])))
            state = replace_done(after[3] | after[4], reset(keys[2], params)[1], after[1])
    if compilations.names.count("jit(step)") > 1:
        yield (
            "step compiles again for the state that it returned itself: its leaves must keep "
            "shape and dtype."
        )
        return
    before, after = jax.tree.map(lambda *rows: np.stack(rows), *trace)
    obs, after_state, reward, terminated, truncated = after
    for name, values in (("obs", obs), ("reward", reward)):
        if not np.isfinite(values).all():
            yield (
                f"{name} is not finite after step {_first(~np.isfinite(values))} of random actions."
            )
    obs_fits = np.asarray(jax.vmap(jax.vmap(obs_space.contains))(obs))
    if not obs_fits.all():
        value = np.array2string(obs[tuple(np.argwhere(~obs_fits)[0])])
        yield (
            f"obs leaves observation_space after step {_first(~obs_fits)} of random actions: "
            f"{value}."
        )
    yield from _time_limit_faults(env, step, before, after_state, terminated | truncated)


def _time_limit_faults(
    env: Environment, step: Any, before: Any, after: Any, done: np.ndarray
) -> Iterator[str]:
    """Set the state's clocks far ahead, and check whether every state is then terminated."""
    leaves, structure = jax.tree.flatten(after)
    is_clock = [
        _is_clock(old, new, done) for old, new in zip(jax.tree.leaves(before), leaves, strict=True)
    ]
    if not any(is_clock) or (~done).sum() < _NUM_ENVS:
        return
    going = np.random.default_rng(0).permutation(np.argwhere(~done))[:_NUM_ENVS]
    picked = [np.stack([leaf[step, env_index] for step, env_index in going]) for leaf in leaves]
    late = [
        np.full_like(leaf, 1_000_000) if clock else leaf
        for leaf, clock in zip(picked, is_clock, strict=True)
    ]
    space = env.action_space(env.default_params)
    params = env.default_params
    keys = jax.random.split(jax.random.key(1), _NUM_ENVS)
    action = jax.vmap(space.sample)(keys)
    now = step(keys, jax.tree.unflatten(structure, picked), action, params)
    then = step(keys, jax.tree.unflatten(structure, late), action, params)
    # If most states end at the next step anyway, the clock proves nothing. A number that the agent
    # sees, such as the height of a falling object, is part of the task and not a clock.
    is_seen = bool((then[0] != now[0]).any())
    ends = bool(then[3].all()) and not bool(then[4].any())
    if ends and not is_seen and float(np.mean(now[3])) < 0.5:
        yield (
            "step reports a time limit as terminated: with the state's clock far ahead "
            "every episode terminates. Return it "
            "as truncated, so that a learner still bootstraps from the last value."
        )


def _is_clock(old: np.ndarray, new: np.ndarray, done: np.ndarray) -> bool:
    if old.ndim != 2 or not np.issubdtype(old.dtype, np.number):
        return False
    change = (new - old)[~done]
    return (
        change.size > 0
        and bool(change[0] != 0)
        and bool(np.allclose(change, change[0], rtol=1e-3, atol=0))
    )


def _array_faults(name: str, value: Any, space: Space) -> Iterator[str]:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        yield f"{name} must be an array, but is {_kind(value)}."
    elif value.shape != space.shape:
        yield (
            f"{name} must have the shape of observation_space, {space.shape}, but has "
            f"{value.shape}."
        )
    elif value.dtype != space.dtype:
        yield (
            f"{name} must have the dtype of observation_space, {space.dtype}, but has "
            f"{value.dtype}."
        )


def _scalar_faults(name: str, value: Any, dtype: type) -> Iterator[str]:
    value = jax.eval_shape(lambda: value) if isinstance(value, bool | int | float) else value
    if getattr(value, "shape", None) != () or value.dtype != dtype:
        yield f"{name} must be a scalar of {np.dtype(dtype).name}, but is {_kind(value)}."


def _weak_faults(function: str, state: Any) -> Iterator[str]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if getattr(leaf, "weak_type", False):
            yield (
                f"state{_at(path)} of {function} is of a weak type, so that a chunk would "
                "compile twice: make it "
                f"jnp.{leaf.dtype}(...)."
            )


def _state_faults(state: Any, next_state: Any) -> Iterator[str]:
    if jax.tree.structure(state) != jax.tree.structure(next_state):
        yield (
            "step must return a state of the same structure as reset, but returns "
            f"{_kind(next_state)}."
        )
        return
    for (path, old), new in zip(
        jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(next_state), strict=True
    ):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            yield f"state{_at(path)} is {_kind(old)} after reset, but {_kind(new)} after step."


def _untraceable(function: str, error: Exception) -> str:
    if isinstance(error, MyriadError):
        return f"{function} refused its own action space's action: {error}"
    reason = str(error).strip().splitlines()[0]
    return (
        f"{function} can't be compiled: {reason} Use jnp.where in place of if, and jnp in "
        "place of math and numpy."
    )


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


def _at(path: Any) -> str:
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return f".{name}" if name else ""


def _first(mask: np.ndarray) -> int:
    return int(np.argwhere(mask)[0][0]) + 1
