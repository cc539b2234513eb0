"""Arms: configurations of one program that a run timed in alternation or trained to a target.

`ci.site.measurements` reads them from a run's samples, and `ci.site.pages.settings` shows them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfgate.history.checks import array, integer, number, table, text

_LEAST = 1e-30  # for steps/s and seconds, because a ratio needs values above 0
_MOST = 10**15


@dataclass(frozen=True)
class Arm:
    """A configuration and its rates.

    Attributes:
        name: the rows' column `arm`, without the prefix of a ladder.
        starts_from: the arm on whose settings it is based; its own name if it is based on none.
        sets: the settings that differ from that arm, as texts.
        rates: steps/s, one per round.
    """

    name: str
    starts_from: str
    sets: Mapping[str, str]
    rates: Sequence[float]


@dataclass(frozen=True)
class ArmAlternation:
    """Arms that were timed in turn. The others are compared with the first one.

    Attributes:
        env: the environment.
        agent: the agent.
        num_envs: parallel environments; None if the arms differ in it.
        is_ladder: whether each arm improves one thing over the arm before it.
        arms: the arms in the order of the run.
    """

    env: str
    agent: str
    num_envs: int | None
    is_ladder: bool
    arms: Sequence[Arm]


@dataclass(frozen=True)
class ArmTraining:
    """A training of one arm from a process's start to a target return, reached or not."""

    env: str
    agent: str
    target_return: float
    arm: str
    seed: int
    is_reached: bool
    run_s: float | None
    train_s: float | None
    num_steps: float | None


def is_alternation(samples: Mapping[str, Any]) -> bool:
    """Tell whether an entry of a run's samples is an alternation of arms."""
    # A list of arms comes from a suite that the site doesn't draw.
    return "arms" in samples and not isinstance(samples["arms"], list)


def is_training(samples: Mapping[str, Any]) -> bool:
    """Tell whether an entry of a run's samples is a training of one arm."""
    return "arm" in samples and "seed" in samples


def read_alternation(samples: Mapping[str, Any]) -> ArmAlternation:
    """Read an alternation of arms."""
    arms = table(samples["arms"])
    sizes = {integer(table(each)["num_envs"], 1, _MOST) for each in arms.values()}
    found = [_arm(name, each) for name, each in arms.items()]
    if not found or len({len(arm.rates) for arm in found}) != 1 or not found[0].rates:
        raise ValueError("arms need as many rounds as each other, and at least one")
    return ArmAlternation(
        env=text(samples["env"]),
        agent=text(samples["agent"]),
        num_envs=sizes.pop() if len(sizes) == 1 else None,
        is_ladder=bool(samples.get("is_ladder")),
        arms=found,
    )


def _arm(name: str, samples: Mapping[str, Any]) -> Arm:
    sets = {text(key): _setting(value) for key, value in table(samples.get("sets", {})).items()}
    rates = [number(rate, _LEAST) for rate in array(samples["steps_per_s"])]
    return Arm(text(name), text(samples.get("starts_from", name)), sets, rates)


def _setting(value: Any) -> str:
    """Write a setting's value: a switch is on or off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return text(value if isinstance(value, str) else str(value))


def read_training(samples: Mapping[str, Any]) -> ArmTraining:
    """Read a training of one arm. One that broke off has neither seconds nor steps."""
    columns = table(samples["columns"])

    def measured(value: Any) -> float | None:
        return None if value in ("", None) else number(value, _LEAST)

    run_s = measured(columns.get("run_s"))
    is_ok = columns.get("status") == "ok" and not columns.get("reason")
    return ArmTraining(
        env=text(samples["env"]),
        agent=text(samples["agent"]),
        target_return=number(samples["target_return"]),
        arm=text(samples["arm"]),
        seed=integer(samples["seed"], 0, _MOST),
        is_reached=is_ok and run_s is not None,
        run_s=run_s,
        train_s=measured(samples.get("train_s")),
        num_steps=measured(columns.get("num_steps")),
    )
