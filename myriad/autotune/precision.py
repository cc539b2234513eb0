"""Measure once whether a narrower dtype is faster than float32 on this machine."""

import dataclasses
import functools
import hashlib
import math
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from myriad import settings
from myriad.agents.minibatches import block_size
from myriad.autotune.cache import Entry, ProfileCache, digest
from myriad.autotune.profiles import hardware_profile
from myriad.errors import SlowPrecisionWarning
from myriad.hardware import available_bytes, fingerprint, is_configured, package_versions
from myriad.random import make_key
from myriad.timing import compare
from myriad.training.active_settings import gradient_rows
from myriad.training.config import TrainingConfig
from myriad.training.memory import least_needs, require_fit

# Pairs of samples, and the least seconds of each. They take half a second, unless a pass is long.
_PAIRS = 9
_SAMPLE_S = 0.02
# The field in the cache's entry of this machine.
_FIELD = "precision"


@dataclasses.dataclass(frozen=True)
class DtypeSpeed:
    """The time of a forward and backward pass of a learner's networks, relative to float32.

    Attributes:
        dtype: the dtype in which networks compute.
        rows: rows of the pass, as many as a network takes at once in a gradient step on a device.
        ratio: the median of the ratios of seconds. Above 1, the dtype is slower.
        low: the lower end of the 95% interval.
        high: its upper end.
        from_cache: whether the result came from the cache.
    """

    dtype: str
    rows: int
    ratio: float
    low: float
    high: float
    from_cache: bool

    @property
    def is_slower(self) -> bool:
        """Whether the dtype is surely slower than float32."""
        return self.low > 1

    def __str__(self) -> str:
        interval = f"{self.low:.2f} to {self.high:.2f}"
        return (
            f"in {self.dtype} a pass of {self.rows:,} rows through the networks and back takes "
            f"{self.ratio:.2f} times as long as in float32 ({interval})"
        )


def dtype_speed(config: TrainingConfig, cache: ProfileCache | None = None) -> DtypeSpeed | None:
    """Return how fast a training's compute dtype is here, or None if it is float32.

    The first measurement takes about a second. The cache keeps the result for this machine and for
    the same programs and versions.

    Args:
        config: the training.
        cache: the autotuner's file; by default `~/.myriad/autotune_profiles.json`.

    Raises:
        InvalidArgumentError: the training does not fit into memory.
    """
    learner: Any = config.learner
    dtype = getattr(learner, "compute_dtype", "float32")
    num_rows = gradient_rows(config)
    if dtype == "float32" or num_rows is None:
        return None
    devices = config.num_devices
    rows = block_size(num_rows // (devices * learner.gradient_accumulation))
    cache = ProfileCache() if cache is None else cache
    hardware = fingerprint()
    arguments = pass_arguments(config, rows)
    narrow = jax.jit(gradient_pass(learner))
    key = _key(narrow.lower(*arguments))
    known = (cache.get("hardware", hardware.slug) or {}).get(_FIELD, {}).get(key)
    if known is not None:
        return DtypeSpeed(dtype, rows, known["ratio"], known["low"], known["high"], from_cache=True)
    # Refuse a training that is too large before anything runs.
    require_fit(config, least_needs(config), available_bytes())
    found = compare(
        functools.partial(jax.jit(gradient_pass(_in_float32(learner))), *arguments),
        functools.partial(narrow, *arguments),
        num_pairs=_PAIRS,
        min_sample_s=_SAMPLE_S,
    )
    speed = DtypeSpeed(
        dtype, rows, found.b_over_a, found.b_over_a_low, found.b_over_a_high, from_cache=False
    )
    measured = {name: getattr(speed, name) for name in ("dtype", "rows", "ratio", "low", "high")}
    measured["validated_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def with_speed(entry: Entry) -> Entry:
        entry = entry or hardware_profile(hardware)
        return entry | {_FIELD: entry.get(_FIELD, {}) | {key: measured}}

    cache.update("hardware", hardware.slug, with_speed)
    return speed


def warn_if_slower(config: TrainingConfig) -> None:
    """Warn of a compute dtype that is slower than float32. Raises the errors of `dtype_speed`."""
    if config.compile_mode == "off":
        return  # Uncompiled trainings are for debugging, where speed doesn't matter.
    speed = dtype_speed(config)
    if speed is not None and speed.is_slower:
        warnings.warn(
            f"{speed.dtype} is slower here: {speed}. agent.compute_dtype = 'float32' is faster.",
            SlowPrecisionWarning,
            stacklevel=4,  # The caller of the function that `checked` wraps.
        )


def _in_float32(learner: Any) -> Any:
    """Return a learner that computes in float32. cuDNN's attention does not."""
    attention = "auto" if learner.attention == "cudnn" else learner.attention
    return dataclasses.replace(learner, compute_dtype="float32", attention=attention)


def gradient_pass(learner: Any) -> Any:
    """Return a gradient of a learner's networks, of parameters and inputs `[B, D]`."""

    def loss(params: Any, inputs: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(learner.outputs(params, inputs)))

    return jax.grad(loss)


def pass_arguments(config: TrainingConfig, rows: int) -> tuple[Any, jax.Array]:
    """Return the arguments of `gradient_pass`: parameters and `rows` normalised observations."""
    learner: Any = config.learner
    state = jax.eval_shape(functools.partial(learner.init, num_envs=config.num_envs), make_key(0))
    rng = np.random.default_rng(0)

    def drawn(shape: tuple[int, ...]) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32))

    space = config.environment.observation_space(config.environment.default_params)
    params = jax.tree.map(lambda leaf: 0.1 * drawn(leaf.shape), state.params)
    return params, drawn((rows, math.prod(space.shape)))


def _key(lowered: jax.stages.Lowered) -> str:
    """Return a key for a program and everything else that its speed depends on."""
    return digest(
        {
            "program": hashlib.sha256(lowered.as_text().encode()).hexdigest(),
            "versions": {name: package_versions().get(name) for name in ("jax", "jaxlib")},
            "configured": is_configured(),
            "xla_flags": settings.xla_flags(),
        }
    )
