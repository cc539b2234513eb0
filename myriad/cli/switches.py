"""Flags that you turn on or off, and the fields of a training that they set."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import tyro

from myriad.errors import InvalidArgumentError, shown


class _Marker:
    """Marks a flag with three positions: on, off and not given."""


SWITCH = _Marker()
# None means "not given", so that a lower layer such as `.env` can still set the switch.
Switch = Annotated[bool | None, SWITCH, tyro.conf.arg(metavar="", help_behavior_hint="")]


@dataclasses.dataclass(frozen=True)
class SwitchFlags:
    """The flags of those settings that are switches."""

    compile: Switch = None
    """Compile the training.
    --no-compile runs it operation by operation, so that you can debug it at tiny sizes."""

    flash_attention: Switch = None
    """Compute attention in blocks, which never hold all attention weights at once.
    --no-flash-attention chooses plain attention."""

    bf16: Switch = None
    """Compute networks in bfloat16. --no-bf16 chooses float32."""

    def switches(self) -> dict[str, Any]:
        """Return the switches that were given."""
        named = {field.name: getattr(self, field.name) for field in dataclasses.fields(SwitchFlags)}
        return {name: value for name, value in named.items() if value is not None}

    def flag_of(self, switch: str) -> str:
        """Return the flag that turned a switch on or off, as you write it."""
        return written(switch) if getattr(self, switch) else f"--no-{written(switch)[2:]}"

    def as_given(self, name: str) -> str:
        """Return any flag as you write it, a switch in the position that was given."""
        is_switch = name.replace("_", "-") in switches_of(type(self))
        return self.flag_of(name) if is_switch else written(name)


def written(name: str) -> str:
    """Return a flag as you write it, from its name in Python."""
    return f"--{name.replace('_', '-')}"


def switches_of(command: Any) -> list[str]:
    """Return the names of a command's three-position flags, as you write them."""
    return [
        field.name.replace("_", "-")
        for field in dataclasses.fields(command)
        if any(each is SWITCH for each in getattr(field.type, "__metadata__", ()))
    ]


def spelled_out(words: Sequence[str], command: Any) -> list[str]:
    """Rewrite `--name` and `--no-name` as tyro takes them, with a value.

    Raises:
        InvalidArgumentError: you gave a value, or both positions of a flag.
    """
    positions = {}
    for name in switches_of(command):
        positions |= {f"--{name}": ["True"], f"--no-{name}": ["False"]}
    out: list[str] = []
    given: set[str] = set()
    for word in words:
        flag, equals, _ = word.partition("=")
        flag = flag.replace("_", "-")
        if flag in positions and equals:
            name = flag[2:].removeprefix("no-")
            raise InvalidArgumentError(
                f"{flag} takes no value: write --{name} or --no-{name}, but got {shown(word)}."
            )
        value = positions.get(flag)
        if value is not None:
            given.add(flag)
            name = flag[2:].removeprefix("no-")
            if {f"--{name}", f"--no-{name}"} <= given:
                raise InvalidArgumentError(
                    f"--{name} and --no-{name} contradict each other: give one of them."
                )
        out += [word] if value is None else [f"--{flag[2:].removeprefix('no-')}", *value]
    return out


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
                f"{written(name)} is for agents with {network}, and this {agent} has none."
            )
    if given.get("batch_size") is not None and not fields_of({"batch_size": 1}, agent, None):
        raise InvalidArgumentError(
            f"--batch-size is for agents that learn, and {agent} takes no gradient steps."
        )
