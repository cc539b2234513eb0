"""Configurations of one program that a run timed in turn, or trained to a target, or over devices.

`ci.site.measurements` reads them from a run's samples. `ci.site.pages.gains` shows their tables.
A value that is not of its kind is damage, for which pydantic raises a ValueError.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from perfgate.files import text


def _written(value: Any) -> str:
    """Write a setting's value: a switch is on or off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


Text = Annotated[str, AfterValidator(text)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Several = Annotated[int, Field(ge=1, le=10**6)]
Rate = Annotated[float, Field(ge=1e-30, le=1e60)]  # or seconds: a ratio needs values above 0
Rounds = Annotated[Sequence[Rate], Field(min_length=1)]
Setting = Annotated[Text, BeforeValidator(_written)]
Measured = Annotated[Rate | None, BeforeValidator(lambda value: None if value == "" else value)]


@dataclass(frozen=True)
class Arm:
    """A configuration and its rates.

    Attributes:
        num_envs: parallel environments.
        steps_per_s: one rate per round.
        starts_from: the arm on whose settings it is based, empty if it is based on none.
        sets: the settings that differ from that arm.
    """

    num_envs: Count
    steps_per_s: Rounds
    starts_from: Text = ""
    sets: dict[Text, Setting] = Field(default_factory=dict)


@dataclass(frozen=True)
class ArmAlternation:
    """Arms that were timed in turn. The others are compared with the first one.

    Attributes:
        env: the environment.
        agent: the agent.
        arms: the arms in the order of the run.
        is_ladder: whether each arm improves one thing over the arm before it.
    """

    env: Text
    agent: Text
    arms: dict[Text, Arm]
    is_ladder: bool = False

    def __post_init__(self) -> None:
        """Refuse arms that didn't take turns."""
        _require_turns(self.arms.values())


@dataclass(frozen=True)
class ArmTraining:
    """A training of one arm from a process's start to a target return, reached or not.

    One that broke off has neither seconds nor steps.
    """

    env: Text
    agent: Text
    target_return: Annotated[float, Field(ge=-1e60, le=1e60)]
    arm: Text
    seed: Count
    status: Text = ""
    reason: Text = ""
    run_s: Measured = None
    train_s: Measured = None
    num_steps: Measured = None

    @property
    def reached_s(self) -> float | None:
        """The seconds from the process's start to the target, None if it was missed."""
        return self.run_s if self.status == "ok" and not self.reason else None


@dataclass(frozen=True)
class DevicePoint:
    """A program on one number of devices.

    Attributes:
        devices: of one process.
        num_envs: environments of all devices together.
        steps_per_s: one rate per round.
        processes: how many there are.
        state_bytes: of each device; empty where they were not counted.
        sharded_bytes: those of them that the devices share out among them.
    """

    devices: Several
    num_envs: Several
    steps_per_s: Rounds
    processes: Several = 1
    state_bytes: Sequence[Count] = ()
    sharded_bytes: Sequence[Count] = ()

    @property
    def num_devices(self) -> int:
        """Devices of all processes."""
        return self.devices * self.processes


@dataclass(frozen=True)
class DeviceCurve:
    """A program on ever more devices that were called in turn.

    Attributes:
        env: the environment.
        scaling: what stays the same, such as `strong` or `weak`.
        points: one per number of devices.
        agent: the agent.
        arm: what else is varied, empty where nothing is.
    """

    env: Text
    scaling: Text
    points: Sequence[DevicePoint]
    agent: Text = ""
    arm: Text = ""

    def __post_init__(self) -> None:
        """Refuse points that didn't take turns."""
        _require_turns(self.points)


def _require_turns(compared: Collection[Arm] | Collection[DevicePoint]) -> None:
    if len({len(each.steps_per_s) for each in compared}) != 1:
        raise ValueError("what is compared needs as many rounds as each other, and at least one")
