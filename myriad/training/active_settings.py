"""Which settings of a training are active on this machine, and why."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from myriad.agents.agent import Learner
from myriad.engine.machine import resolve_platform
from myriad.errors import shown
from myriad.training.config import TrainingConfig
from myriad.xla import matmul_precision


@dataclasses.dataclass(frozen=True)
class ActiveSetting:
    """A setting, and whether it has an effect on this machine.

    Attributes:
        name: the setting's name.
        value: its value in this training.
        source: where it was set: a flag, a file, a variable, a preset, or "default".
        active: whether it has an effect here.
        reason: what it does, or why it does nothing.
        flag: the flag that overrides it; empty if there is none.
        denied: whether you asked for it and can't have it; `reason` says why.
    """

    name: str
    value: str
    source: str
    active: bool
    reason: str
    flag: str
    denied: bool = False


_COMPILED = {
    "aot": "programs compile before the first step; the cache keeps them, unless it is off",
    "cached": "programs compile at their first call; the cache keeps them, unless it is off",
    "jit": "programs compile at their first call and are not kept",
    "off": "every operation runs by itself, for debugging",
}
# What JAX's default precision of matrix products means on each platform.
_PRODUCTS = {
    "cpu": "products of float32 are exact to float32",
    "gpu": "products of float32 may round their factors to TensorFloat-32, 10 bits of fraction",
    "tpu": "products of float32 round their factors to bfloat16, 7 bits of fraction",
}


def active_settings(
    config: TrainingConfig, sources: Mapping[str, str] | None = None
) -> list[ActiveSetting]:
    """Return the settings of a training.

    `sources` says where values were set, by their names. By default all come from `config` itself.
    """
    where = dict.fromkeys(config.given, "given") if sources is None else sources
    of_preset = dict.fromkeys(config.from_preset(), f"preset {config.given.get('preset')}")
    # A setting that the training has no use for has a source but no value.
    denied = where.keys() - config.given.keys()

    def setting(
        name: str, field: str, chosen: tuple[str | None, str], flag: str, *others: str
    ) -> ActiveSetting:
        value, reason = chosen
        is_denied = field in denied
        is_active = value not in (None, "off") and not is_denied
        said = [each[of] for of in (field, *others) for each in (where, of_preset) if of in each]
        origin = said[0] if said else "default"
        return ActiveSetting(name, value or "none", origin, is_active, reason, flag, is_denied)

    mode, learner = config.compile_mode, config.learner
    batch, reason = _batch(config)
    if batch and "batch_size" in denied:
        batch, reason = None, f"its rows don't fit this training, which has batches of {batch}"
    attention = _attention(learner)
    # It asks for cuDNN's kernel. Where nobody says so, it is the default.
    if config.given.get("agent.attention") == "auto" and attention[0] not in (None, "cudnn"):
        denied |= {"agent.attention"}
    return [
        setting("batch", "batch_size", (batch, reason), "--batch-size", "agent.num_minibatches"),
        setting("compile", "compile_mode", (mode, _COMPILED[mode]), "--compile-mode"),
        setting("precision", "agent.compute_dtype", _precision(learner), "--bf16"),
        setting("attention", "agent.attention", attention, "--flash-attention"),
        ActiveSetting(
            "matmul precision", matmul_precision(), "JAX", active=True, reason=_products(), flag=""
        ),
    ]


def in_short(config: TrainingConfig, settings: Sequence[ActiveSetting]) -> str:
    """Return the settings of a run in one line, with the source of each that isn't a default.

    What most runs are told apart by comes first: their length, learning rate and seed.
    """
    rate = config.agent_options.get("learning_rate")
    of_run = {"learning rate": rate, "seed": config.seed}
    steps = f"{config.num_envs * config.steps_per_env:,} steps"
    if config.seeds is not None:
        of_run, steps = {"learning rate": rate, "seeds": shown(config.seeds)}, f"{steps} each"
    for name, values in (config.grid or {}).items():
        of_run["learning rate" if name == "agent.learning_rate" else name] = shown(values)
    parts = [steps, *(f"{name} {each}" for name, each in of_run.items() if each is not None)]
    for each in settings:
        if each.value == "aot":
            continue  # The line before says so, and how long it took.
        beside = "" if each.source == "default" else each.source
        if each.value != "none":
            parts.append(f"{each.name} {each.value}" + (f" ({beside})" if beside else ""))
        elif each.denied:
            parts.append(f"no {each.name} ({beside}), since {each.reason}")
    return "settings: " + "; ".join(parts)


# Each of these returns the value of a setting, None if the training has no use for it, and why.


def _batch(config: TrainingConfig) -> tuple[str | None, str]:
    rows, num_minibatches = config.batch_size, config.agent_options.get("num_minibatches")
    if num_minibatches is not None:
        steps = config.num_envs * config.learner.steps_per_update
        rows = steps // num_minibatches
        return f"{rows:,} rows", f"{steps:,} rows in {num_minibatches} minibatches"
    if rows is None:
        return None, f"{config.agent} learns from no batches"
    return f"{rows:,} rows", "rows of replay in a gradient step"


def _precision(learner: Learner[Any]) -> tuple[str | None, str]:
    value = getattr(learner, "compute_dtype", None)
    if value is None:
        return None, "this agent has no network"
    reason = "networks compute in it; losses, reductions and the optimiser in float32"
    others = [(name, getattr(learner, f"{name}_dtype")) for name in ("param", "output")]
    reason += "".join(f"; {name} dtype {of}" for name, of in others if of != "float32")
    return value, reason


def _attention(learner: Learner[Any]) -> tuple[str | None, str]:
    network = getattr(learner, "network", None)
    if "attention" not in (network, getattr(learner, "critic_network", None)):
        return None, f"network {network} has none" if network else "this agent has no network"
    from myriad.agents.networks import NetworkSpec
    from myriad.agents.networks.attention import choose_attention

    spec = NetworkSpec.of(learner)
    return choose_attention(spec.attention, spec.precision)


def _products() -> str:
    if matmul_precision() != "default":
        return "chosen by jax_default_matmul_precision"
    platform = resolve_platform()
    reason = _PRODUCTS.get(platform, f"products are as {platform} has them")
    return reason if platform == "cpu" else f"{reason}, on {jax.local_devices()[0].device_kind}"
