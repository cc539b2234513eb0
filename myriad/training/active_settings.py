"""Which settings of a training are active on this machine, and why."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from myriad.agents.networks import NetworkSpec
from myriad.agents.precision import Precision
from myriad.hardware import resolve_platform
from myriad.settings import FLAG
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

    Args:
        config: the training.
        sources: where values were set, by their names; by default all come from `config` itself.
    """
    of_preset = config.from_preset()

    def source(*names: str) -> str:
        for name in names:
            if sources is not None and name in sources:
                is_flag = sources[name] == FLAG
                return f"--{name.replace('_', '-')}" if is_flag else sources[name]
            if sources is None and name in config.given:
                return "given"
            if name in of_preset:
                return f"preset {config.given['preset']}"
        return "default"

    # A setting that the training has no use for has a source but no value.
    denied = set() if sources is None else sources.keys() - config.given.keys()
    mode = config.compile_mode
    settings = [
        _batch(config, source("batch_size", "agent.num_minibatches")),
        ActiveSetting(
            "compile",
            mode,
            source("compile_mode"),
            mode != "off",
            _COMPILED[mode],
            "--compile-mode",
        ),
        _precision(config.learner, source("agent.compute_dtype")),
        _attention(config.learner, source("agent.attention")),
        _products(),
    ]
    fields = {
        "batch": "batch_size",
        "precision": "agent.compute_dtype",
        "attention": "agent.attention",
    }
    return [dataclasses.replace(each, denied=fields.get(each.name) in denied) for each in settings]


def in_short(settings: Sequence[ActiveSetting]) -> str:
    """Return the settings of a run in one line, with the source of each that isn't a default."""
    parts = []
    for each in settings:
        # The default of attention depends on the network's shape and the device, so say why.
        beside = each.reason if each.name == "attention" else ""
        beside = beside if each.source == "default" else each.source
        beside = f" ({beside})" if beside else ""
        if each.denied:
            parts.append(f"no {each.name}{beside}, since {each.reason}")
        elif each.active or each.value != "none":
            parts.append(f"{each.name} {each.value}{beside}")
    return "settings: " + "; ".join(parts)


def gradient_rows(config: TrainingConfig) -> int | None:
    """Return the rows of a training's gradient steps, or None if it takes none."""
    options = config.agent_options
    if "num_minibatches" not in options:
        return config.batch_size
    return config.num_envs * config.learner.steps_per_update // options["num_minibatches"]


def _batch(config: TrainingConfig, source: str) -> ActiveSetting:
    rows = gradient_rows(config)
    reason = "rows of replay in a gradient step"
    num_minibatches = config.agent_options.get("num_minibatches")
    if rows is not None and num_minibatches is not None:
        reason = f"{rows * num_minibatches:,} rows in {num_minibatches} minibatches"
    if rows is None:
        reason = f"{config.agent} learns from no batches"
        return _without("batch", source, reason, "--batch-size")
    return ActiveSetting(
        "batch", f"{rows:,} rows", source, active=True, reason=reason, flag="--batch-size"
    )


def _without(name: str, source: str, reason: str, flag: str) -> ActiveSetting:
    """Return a setting that has no effect, whoever set it."""
    return ActiveSetting(name, "none", source, active=False, reason=reason, flag=flag)


def _products() -> ActiveSetting:
    value = matmul_precision()
    platform = resolve_platform()
    reason = "chosen by jax_default_matmul_precision"
    if value == "default":
        reason = _PRODUCTS.get(platform, f"products are as {platform} has them")
        reason += f", on {jax.local_devices()[0].device_kind}" if platform != "cpu" else ""
    return ActiveSetting("matmul precision", value, "JAX", active=True, reason=reason, flag="")


def _precision(learner: Any, source: str) -> ActiveSetting:
    value = getattr(learner, "compute_dtype", None)
    if value is None:
        return _without("precision", source, "this agent has no network", "--bf16")
    reason = "networks compute in it; losses, reductions and the optimiser in float32"
    others = [(name, getattr(learner, f"{name}_dtype")) for name in ("param", "output")]
    reason += "".join(f"; {name} dtype {of}" for name, of in others if of != "float32")
    if Precision.of(learner).needs_loss_scale:
        reason += "; the loss is scaled, and a step whose gradient is not finite is skipped"
    return ActiveSetting("precision", value, source, active=True, reason=reason, flag="--bf16")


def _attention(learner: Any, source: str) -> ActiveSetting:
    network = getattr(learner, "network", None)
    if network != "attention":
        what = "this agent has no network" if network is None else f"network {network} has none"
        return _without("attention", source, what, "--flash-attention")
    from myriad.agents.networks.attention import chosen_attention

    value, reason = chosen_attention(NetworkSpec.of(learner))
    return ActiveSetting(
        "attention", value, source, active=True, reason=reason, flag="--flash-attention"
    )
