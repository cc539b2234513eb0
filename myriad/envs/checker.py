"""`check_env` finds the faults of an environment quickly, before a training does so slowly.

It goes through stages and stops at the first with faults, since they would cause misleading ones in
later stages. `require_trainable` runs the first three, which compile nothing, before a training.
"""

import functools
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from myriad.engine.devices import numbers_of
from myriad.engine.fusion import count_primitives
from myriad.engine.random import make_key
from myriad.envs.environment import Environment
from myriad.envs.vector import float_parameters, scalar_floats, select_reset
from myriad.envs.wrappers import nvec_of
from myriad.errors import EnvironmentWarning, FaultyEnvironmentError, MyriadError, shown
from myriad.ranges import require
from myriad.spaces import Discrete, MultiDiscrete, Space
from myriad.timing import compare

Stage = Literal["members", "reset", "step", "keys", "purity", "batches", "behaviour"]

_NUM_ENVS, _NUM_STEPS = 64, 256
# Operations of a reset that are cheap beside a network: two layers of 64 take 9,000.
_FEW_OPERATIONS = 3_000
# A program of a check runs for a moment. With these options PPO's update compiled on a CPU in 0.75
# seconds of a processor, with the first two alone in 2.5, and without any in 3.5.
_QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
_NOT_YOURS = (__file__, *(str(Path(library.__file__ or "").parent) for library in (jax, np)))


# What a stage yields: a fault as a sentence, or a warning if training works all the same.
Finding = str | UserWarning


class CallError(Exception):
    """A call of your code failed, which ends the stage. Its `__cause__` is your code's error."""


def check_env(env: Environment, *, skip: Sequence[Stage] = ()) -> None:
    """Try `env` and list its faults. It compiles: seconds for CartPole, minutes for brax.

    At the end it prints the processor time that it took to the standard error stream.

    The stages, in this order. It stops at the first with faults, and an error ends a stage:

    - members: what is missing, and what can't be hashed.
    - reset and step: results of wrong shapes and dtypes, code that JAX can't trace, and states that
      compile twice.
    - keys: random keys that are used twice or not at all.
    - purity: results that depend on more than the arguments, such as NumPy's random numbers.
    - batches: a step that can't take parameters of their own for each environment, or no float
      parameters as arguments of a program, so that another value compiles anew.
    - behaviour: 256 steps of 64 environments. It looks for numbers out of their space or not
      finite, and resets that take longer than half a step.

    Args:
        env: the environment.
        skip: stages to leave out.

    Raises:
        FaultyEnvironmentError: the environment has faults. Its `faults` lists them as sentences,
            and its `__cause__` is the error that your code raised.
        InvalidArgumentError: there is no such stage.

    Warns:
        EnvironmentWarning: the environment trains, but something is slower, or may not be what you
            want.

    Example:
        >>> from myriad import make_env
        >>> check_env(make_env("cartpole-control"))
    """
    require("skip", skip, Sequence[Stage])
    stages = (_members, _reset, _step, _keys, _purity, _batches, _behaviour)
    run_stages(type(env).__name__, env, stages, FaultyEnvironmentError, skip)


def run_stages(
    what: str,
    subject: Any,
    stages: Sequence[Callable[[Any], Iterable[Finding]]],
    fault: Callable[[str, Sequence[str]], Exception],
    skip: Sequence[str] = (),
) -> None:
    """Run the stages of a check, whose functions have their names, on what is called `what`.

    `fault` makes an error from `what` and the sentences of the first stage with faults. If none has
    any, it prints the processor time.
    """
    start = time.process_time()
    for stage in stages:
        if stage.__name__.removeprefix("_") not in skip:
            for found in _run_stage(what, subject, stage, fault):
                warnings.warn(f"{what}: {found}", type(found), stacklevel=3)
    sys.stderr.write(f"{what}: no fault, in {time.process_time() - start:.1f} s\n")


def _run_stage(
    what: str,
    subject: Any,
    stage: Callable[[Any], Iterable[Finding]],
    fault: Callable[[str, Sequence[str]], Exception],
) -> list[UserWarning]:
    """Return the warnings of a stage without faults. Otherwise raise what `fault` makes of them."""
    found: list[Finding] = []
    cause = None
    try:
        found.extend(stage(subject))
    except CallError as error:
        found.append(str(error))
        cause = error.__cause__
    if faults := [each for each in found if isinstance(each, str)]:
        raise fault(what, faults) from cause
    return [each for each in found if isinstance(each, UserWarning)]


def quickly(function: Callable[..., Any]) -> Any:
    """Return `jax.jit(function)`, which compiles in less time and to a slower program."""
    return jax.jit(function, compiler_options=_quick_options())


@functools.cache
def _quick_options() -> dict[str, Any]:
    try:
        jax.jit(lambda: 0, compiler_options=_QUICK)()
    except jax.errors.JaxRuntimeError:  # jaxlib 0.11 doesn't know all of them.
        return {}
    return _QUICK


@functools.lru_cache(maxsize=64)
def require_trainable(env: Environment) -> None:
    """Raise FaultyEnvironmentError if an environment lacks something that a training needs."""
    for stage in (_members, _reset, _step):
        _run_stage(type(env).__name__, env, stage, FaultyEnvironmentError)


@functools.lru_cache(maxsize=64)
def never_ends(env: Environment) -> bool:
    """Return whether no step of an environment ends an episode, in whatever state."""
    reset, step = _functions(env)

    def ends(key: jax.Array, state: Any, action: Any) -> jax.Array:
        return jnp.logical_or(*step(key, state, action)[3:5])

    def batch(keys: jax.Array) -> jax.Array:
        actions = jax.vmap(env.action_space(env.default_params).sample)(keys)
        # It raises ValueError unless the result is the same for all.
        return jax.vmap(ends, out_axes=None)(keys, jax.vmap(reset)(keys)[1], actions)

    try:
        program = jax.jit(batch).lower(_split(fixed_key()))
    except ValueError:
        return False
    # The result is a constant: False, or in a bandit True.
    return not program.compile()(_split(fixed_key()))


def _functions(env: Environment) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `reset` and `step` with the parameters as constants, with which every one trains."""
    params = env.default_params

    def reset(key: jax.Array) -> Any:
        return env.reset(key, params)

    def step(key: jax.Array, state: Any, action: jax.Array) -> Any:
        return env.step(key, state, action, params)

    return reset, step


def _members(env: Any) -> Iterator[Finding]:
    for name in ("default_params", "reset", "step", "observation_space", "action_space"):
        if not hasattr(env, name):
            yield f"{name} is missing."
            return
    for path, leaf in jax.tree_util.tree_leaves_with_path(env.default_params):
        if leaf is env.default_params:
            yield (
                "default_params must be a pytree: decorate its class with "
                "jax.tree_util.register_dataclass."
            )
        elif not isinstance(leaf, int | float | np.ndarray | np.generic | jax.Array):
            yield f"default_params{at(path)} must be a number or an array, but is {shown(leaf)}."
    try:
        hash(env)
    except TypeError as error:
        raise CallError(
            f"the environment must be hashable, but is not: {error}. Make it a dataclass with "
            "frozen=True, keep its parameters in default_params and a table in a NumPy array of "
            "the module, used as jnp.asarray(TABLE)[index]."
        ) from error
    for name in ("observation_space", "action_space"):
        space = called(name, lambda name=name: getattr(env, name)(env.default_params))
        # An observation may be a dict or a tuple of spaces.
        for each in jax.tree.leaves(space) if name == "observation_space" else [space]:
            if missing := [x for x in ("shape", "dtype", "sample") if not hasattr(each, x)]:
                yield (
                    f"{name} must return a space of myriad.spaces, but returns {kind_of(each)}, "
                    f"which has no {missing[0]}."
                )


def _reset(env: Any) -> Iterator[Finding]:
    reset, _ = _functions(env)
    result = traced("reset", reset, fixed_key())
    if not (isinstance(result, tuple) and len(result) == 2):
        yield f"reset must return (obs, state), but returns {kind_of(result)}."
        return
    obs, state = result
    yield from _array_faults("obs of reset", obs, env.observation_space(env.default_params))
    mask = traced("action_mask", env.action_mask, state) if hasattr(env, "action_mask") else None
    if mask is not None:
        space = env.action_space(env.default_params)
        is_choice = isinstance(space, Discrete | MultiDiscrete)
        expected = (sum(nvec_of(space)),) if is_choice else None
        if getattr(mask, "shape", None) != expected or mask.dtype != bool:
            yield (
                "action_mask must return a boolean for each action of a Discrete or for each "
                f"choice of a MultiDiscrete, but returns {kind_of(mask)} for {space}."
            )
    if hasattr(env, "privileged_observation"):
        name = "privileged_observation"
        traced(name, env.privileged_observation, state, env.default_params)


def _step(env: Environment) -> Iterator[Finding]:
    reset, step = _functions(env)
    state = jax.eval_shape(reset, fixed_key())[1]
    result = traced("step", step, fixed_key(), state, _action(env))
    if not (isinstance(result, tuple) and len(result) == 6):
        yield (
            "step must return (obs, state, reward, terminated, truncated, info), but returns "
            f"{kind_of(result)}."
        )
        return
    obs, next_state, reward, terminated, truncated, info = result
    yield from _array_faults("obs of step", obs, env.observation_space(env.default_params))
    for name, value, dtype in (
        ("reward", reward, np.float32),
        ("terminated", terminated, np.bool_),
        ("truncated", truncated, np.bool_),
    ):
        if getattr(value, "shape", None) != () or value.dtype != dtype:
            yield f"{name} must be a scalar of {np.dtype(dtype).name}, but is {kind_of(value)}."
    if not isinstance(info, dict):
        yield f"info must be a dict, but is {kind_of(info)}."
    faults = list(tree_faults("state", "reset", state, "step", next_state))
    yield from faults
    if faults:
        return
    leaves = jax.tree_util.tree_leaves_with_path(state)
    for (path, first), after in zip(leaves, jax.tree.leaves(next_state), strict=True):
        # A parameter that is kept in the state is as weakly typed after a step.
        if first.weak_type and not after.weak_type:
            yield EnvironmentWarning(
                f"state{at(path)} of reset is of a weak type, so that a chunk would "
                f"compile twice: make it jnp.{first.dtype}(...)."
            )


def _keys(env: Environment) -> Iterator[Finding]:
    reset, step = _functions(env)
    state = jax.eval_shape(reset, fixed_key())[1]
    trace_with_keys("reset", reset, fixed_key())
    trace_with_keys("step", step, fixed_key(), state, _action(env))
    program = str(jax.make_jaxpr(reset)(fixed_key()))
    if "random_" in program:
        states = numbers(_programs(env)[0](_split(fixed_key())))
        if all((leaf == leaf[0]).all() for leaf in states):
            yield (
                f"reset draws, but {_NUM_ENVS} resets with different keys are all equal: draw "
                "from the key it gets."
            )


def trace_with_keys(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Trace with JAX's checker of key reuse, which follows only JAX's own kinds of keys."""
    with jax.debug_key_reuse(new_val=True):
        called(name, lambda: jax.jit(function).trace(*arguments))


def _purity(env: Environment) -> Iterator[Finding]:
    """Call `reset` and `step` operation by operation, twice."""
    reset, step = _functions(env)
    key = fixed_key()
    state = reset(key)[1]
    action = jax.jit(env.action_space(env.default_params).sample)(key)
    calls = (("reset", lambda: reset(key)), ("step", lambda: step(key, state, action)))
    for name, call in calls:
        results = called(name, lambda call=call: (call(), call()))
        pairs = zip(*map(numbers, results), strict=True)
        if not all(np.array_equal(*pair, equal_nan=True) for pair in pairs):
            yield (
                f"{name} returns something else when it is called again with the same arguments: "
                "draw from the key with jax.random, not from Python's or NumPy's generators, and "
                "keep what changes in the state."
            )


def _batches(env: Environment) -> Iterator[Finding]:
    sample = env.action_space(env.default_params).sample

    def batch() -> Any:
        params = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (_NUM_ENVS, *np.shape(leaf))), env.default_params
        )
        keys = jax.random.split(fixed_key(), _NUM_ENVS)
        action = jax.vmap(sample)(keys)
        return jax.vmap(env.step)(keys, jax.vmap(env.reset)(keys, params)[1], action, params)

    try:
        traced("step", batch)
    except CallError as error:
        yield EnvironmentWarning(
            f"{error} Each environment had its own parameters, as in domain randomisation."
        )
    if (names := scalar_floats(env)) and not float_parameters(env):
        yield EnvironmentWarning(
            "reset or step can't take float parameters as float32 arrays, or returns other dtypes "
            f"for them: another value of {', '.join(names)} compiles programs anew."
        )


def _behaviour(env: Environment) -> Iterator[Finding]:
    """Step `_NUM_ENVS` environments with random actions and check all results."""
    params = env.default_params
    sample = jax.vmap(env.action_space(params).sample)
    reset, step = _programs(env)

    @quickly
    def draw(index: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
        """Return the keys of a step, actions, and the keys of the resets that follow."""
        keys = jax.random.split(jax.random.fold_in(fixed_key(), index), (3, _NUM_ENVS))
        return keys[0], sample(keys[1]), keys[2]

    @quickly
    def replace_done(result: Any, first: Any) -> Any:
        return select_reset(result[3] | result[4], first, result[1])

    first_obs, state = reset(_split(fixed_key()))
    for name, space, part in _parts("obs", env.observation_space(params), first_obs):
        yield from _bound_faults(name, np.asarray(part)[None], space, "reset")
    after = []
    for index in range(_NUM_STEPS):
        step_keys, action, reset_keys = draw(np.uint32(index))
        result = step(step_keys, state, action)
        after.append((result[0], result[2]))
        state = replace_done(result, reset(reset_keys)[1])
    # On the host, since a stack of so many arrays takes long to compile.
    obs, reward = jax.tree.map(lambda *rows: np.stack(rows), *after)
    parts = list(_parts("obs", env.observation_space(params), obs))
    for name, values in [*((name, part) for name, _, part in parts), ("reward", reward)]:
        if not (is_finite := np.isfinite(values)).all():
            yield f"{name} is not finite after step {_first(~is_finite)} of random actions."
    for name, space, part in parts:
        yield from _bound_faults(name, np.asarray(part), space, "step {} of random actions")
    # A rollout computes a reset in each step, so one that takes long slows every step down.
    step_keys, action, reset_keys = draw(np.uint32(0))
    programs = [reset.trace(reset_keys), step.trace(step_keys, state, action)]
    reset_flops, step_flops = (
        (each.lower().compile().cost_analysis() or {}).get("flops", 0) / _NUM_ENVS
        for each in programs
    )
    # XLA counts no operations in a sort.
    sorts = count_primitives(programs[0].jaxpr.jaxpr)["sort"]
    if not sorts and reset_flops < max(_FEW_OPERATIONS, step_flops / 2):
        return
    # XLA counts the body of a loop once, so the clock decides.
    reset, step = (jax.jit(jax.vmap(each)) for each in _functions(env))
    calls = (lambda: step(step_keys, state, action), lambda: reset(reset_keys))
    ratio = compare(*calls, num_pairs=9)
    if ratio.b_over_a_low >= 0.5:
        yield EnvironmentWarning(
            f"a step that also resets takes {1 + ratio.b_over_a_low:.2g} to "
            f"{1 + ratio.b_over_a_high:.2g} times as long as one that doesn't, in {_NUM_ENVS} "
            f"environments, and each step of a rollout resets: reset_pool=64 draws 64 "
            "first states once, and reset picks one of them."
        )


def _bound_faults(name: str, obs: np.ndarray, space: Space, when: str) -> Iterator[Finding]:
    """Name the first number of an observation, `[T, N, *O]`, that lies outside its space.

    `when` says after what, with the number of the step in place of braces.
    """
    if not hasattr(space, "low"):
        fits = np.asarray(jax.vmap(jax.vmap(space.contains))(jnp.asarray(obs)))
        if not fits.all():
            value = shown(obs[tuple(np.argwhere(~fits)[0])].tolist())
            yield (
                f"{name} leaves observation_space after {when.format(_first(~fits))}: "
                f"{value} is not in {space}."
            )
        return
    box: Any = space
    low, high = (np.broadcast_to(np.asarray(x), box.shape) for x in (box.low, box.high))
    outside = (obs < low) | (obs > high)
    if outside.any():
        first = np.argwhere(outside)[0]
        element = tuple(int(index) for index in first[2:])
        value = obs[tuple(first)]
        side, bound = ("below", low) if value < low[element] else ("above", high)
        yield (
            f"{name} leaves observation_space after {when.format(first[0] + 1)}: "
            f"{name}[{', '.join(map(str, element))}] is {value}, {side} its bound of "
            f"{bound[element]}."
        )


def _array_faults(name: str, value: Any, space: Any) -> Iterator[Finding]:
    if jax.tree.structure(value) != jax.tree.structure(space):
        yield (
            f"{name} must have the structure of observation_space, {jax.tree.structure(space)}, "
            f"but is {kind_of(value)}."
        )
        return
    for part_name, part_space, part in _parts(name, space, value):
        for kind in ("shape", "dtype"):
            if getattr(part, kind) != getattr(part_space, kind):
                yield (
                    f"{part_name} must have the {kind} of observation_space, "
                    f"{getattr(part_space, kind)}, but has {getattr(part, kind)}."
                )
                break


def _parts(name: str, space: Any, value: Any) -> Iterator[tuple[str, Space, Any]]:
    """Yield the name of each part of an observation, its space and its value."""
    for (path, part_space), part in zip(
        jax.tree_util.tree_leaves_with_path(space), jax.tree.leaves(value), strict=True
    ):
        yield name + jax.tree_util.keystr(path), part_space, part


def tree_faults(name: str, first: str, before: Any, then: str, after: Any) -> Iterator[Finding]:
    """Yield where the shapes that `then` returned for `name` differ from those of `first`."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        yield (
            f"{then} must return a {name} of the same structure as {first}, but returns "
            f"{kind_of(after)}."
        )
        return
    for (path, old), new in zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
    ):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            yield (
                f"{name}{at(path)} is {kind_of(old)} after {first}, but {kind_of(new)} after "
                f"{then}."
            )


def traced(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the shapes of a function's results, or raise CallError if JAX can't trace it."""
    return called(name, lambda: jax.eval_shape(function, *arguments))


def called(name: str, call: Callable[[], Any]) -> Any:
    """Return the result of a call of your code, or raise CallError."""
    try:
        return call()
    except MyriadError as error:
        raise CallError(f"{name} refused what it was given: {error}") from error
    except Exception as error:
        remedy = next((text for kind, text in _REMEDIES.items() if isinstance(error, kind)), None)
        reason = str(error).strip().partition("\n")[0].removesuffix(".")
        sentence = f"{name} raises {type(error).__name__}{_where(error)}: {reason}."
        raise CallError(f"{sentence} {remedy}" if remedy else sentence) from error


# What to do about the errors that JAX raises for traced arrays, from the most special one on.
_REMEDIES: dict[type[Exception], str] = {
    jax.errors.UnexpectedTracerError: (
        "An array that was made while JAX traced was kept, as a cache or an import inside reset "
        "does: make it when you build the environment."
    ),
    jax.errors.TracerBoolConversionError: "Use jnp.where in place of if, and & in place of and.",
    jax.errors.TracerIntegerConversionError: (
        "Use jnp.asarray(table)[index] in place of a list that is indexed."
    ),
    jax.errors.TracerArrayConversionError: (
        "Use jnp in place of numpy, and jnp.asarray(TABLE)[index] for a NumPy array."
    ),
    jax.errors.KeyReuseError: (
        "It uses one random key for several draws, which makes them equal or dependent: split it, "
        "or fold a number into it."
    ),
    jax.errors.ConcretizationTypeError: "Use jnp in place of math and of float() and int().",
}


def _where(error: Exception) -> str:
    """Return the last line of your own code that an error went through."""
    yours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NOT_YOURS)
    ]
    return f" in {yours[-1].filename}, line {yours[-1].lineno}" if yours else ""


@functools.lru_cache(maxsize=1)
def _programs(env: Environment) -> tuple[Any, Any]:
    """Return `reset` and `step` of `_NUM_ENVS` environments, compiled once for all stages."""
    reset, step = _functions(env)
    return quickly(jax.vmap(reset)), quickly(jax.vmap(step))


@jax.jit
def _split(key: jax.Array) -> jax.Array:
    return jax.random.split(key, _NUM_ENVS)


def fixed_key() -> jax.Array:
    """Return a key as rollouts and trainings make it.

    `jax.random.poisson` takes only JAX's own keys, with which draws compile more slowly.
    """
    return make_key(0)


def _action(env: Environment) -> jax.ShapeDtypeStruct:
    space = env.action_space(env.default_params)
    return jax.ShapeDtypeStruct(space.shape, space.dtype)


def numbers(tree: Any) -> list[np.ndarray]:
    """Return the leaves of a tree as NumPy arrays, keys as their words."""
    return [np.asarray(numbers_of(jnp.asarray(leaf))) for leaf in jax.tree.leaves(tree)]


def kind_of(value: Any) -> str:
    """Describe a value of the wrong kind."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


def at(path: Any) -> str:
    """Return the path of a leaf as you would write it after the tree's name."""
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return f".{name}" if name else ""


def _first(mask: Any) -> int:
    return int(np.argwhere(mask)[0][0]) + 1
