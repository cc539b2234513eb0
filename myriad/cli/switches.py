"""The fields of a training that the switches and variables set."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from myriad.errors import InvalidArgumentError

# The one network that has attention.
ATTENTION = "attention"
# The field of a training that each switch sets. `SWITCH_OF` is the inverse.
_FIELD_OF = {
    "batch_size": "batch_size",
    "compile": "compile_mode",
    "bf16": "agent.compute_dtype",
    "flash_attention": "agent.attention",
}
# A placeholder: which implementation is right depends on the dtype, which a later layer may set.
IN_BLOCKS = "in blocks"
SWITCH_OF = {field: switch for switch, field in _FIELD_OF.items()}


def fields_of(switches: Mapping[str, Any], agent: str, network: str | None) -> dict[str, Any]:
    """Return the fields of a training that switches set, with options by dotted name.

    The value of `agent.attention` may be `IN_BLOCKS`, see `name_attention`.

    Args:
        switches: values of the fields of `Settings`.
        agent: the agent's name. Switches that it has no use for are left out.
        network: the network's name; None for the agent's default. A network without attention has
            no use for the switch of attention.
    """
    from myriad.agents import AGENTS

    options = {field.name for field in dataclasses.fields(AGENTS.load(agent))}
    fields: dict[str, Any] = {}
    if (batch_size := switches.get("batch_size")) and options & {"batch_size", "num_minibatches"}:
        fields["batch_size"] = batch_size
    if (compiles := switches.get("compile")) is not None:
        fields["compile_mode"] = "aot" if compiles else "off"
    if (bf16 := switches.get("bf16")) is not None and "compute_dtype" in options:
        fields["agent.compute_dtype"] = "bfloat16" if bf16 else "float32"
    attends = "attention" in options and network == ATTENTION
    if (flash := switches.get("flash_attention")) is not None and attends:
        fields["agent.attention"] = IN_BLOCKS if flash else "xla"
    return fields


def name_attention(fields: dict[str, Any], dtype: str) -> None:
    """Replace `IN_BLOCKS`, if a field has it, by the implementation for a dtype."""
    if fields.get("agent.attention") == IN_BLOCKS:
        from myriad.agents.networks.kernels import attention_in_blocks

        fields["agent.attention"] = attention_in_blocks(dtype)


def without_use(switches: Mapping[str, Any], fields: Mapping[str, Any]) -> set[str]:
    """Return the fields of those switches that are on although the agent has no use for them.

    Args:
        switches: values of the fields of `Settings`.
        fields: the result of `fields_of` for these switches.
    """
    return {
        _FIELD_OF[name]
        for name, value in switches.items()
        if value and _FIELD_OF[name] not in fields
    }


def require_used(given: Mapping[str, Any], fields: Mapping[str, Any], agent: str) -> None:
    """Refuse flags that turn on what an agent has no use for. Turning it off changes nothing.

    Settings from `.env` are exempt, since they may be meant for other agents.
    """
    networks = {"bf16": "a network", "flash_attention": "the network attention"}
    for name, network in networks.items():
        if given.get(name) and _FIELD_OF[name] not in fields:
            raise InvalidArgumentError(
                f"--{name.replace('_', '-')} is for agents with {network}, and this {agent} has "
                "none."
            )
    if given.get("batch_size") is not None and not fields_of({"batch_size": 1}, agent, None):
        raise InvalidArgumentError(
            f"--batch-size is for agents that learn from batches, and {agent} has none."
        )
