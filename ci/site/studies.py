"""The studies of a tuner: what each found, beside what its defaults reach on the same seeds.

A study is a file `NAME_results.json` with the fields that `docs/tuning.md` lists. Its pages
`NAME_*.html` lie beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfgate.files import DAMAGE, finite, integer, number, read_json, table, text

_ENDING = "_results.json"
# The states that end a trial, as Optuna names them, and what a page calls them.
_STATES = {"COMPLETE": "completed", "PRUNED": "pruned", "FAIL": "failed"}


@dataclass(frozen=True)
class Study:
    """What a study found.

    Attributes:
        file: the file that it was read from.
        name: the study's name.
        env: the environment.
        agent: the agent.
        trials: how many ended in each way.
        value: of the best trial, by the first objective; None if no trial was completed.
        confirmed: the best on fresh seeds beside the default; None if that was not done or failed.
        command: trains the best; empty if there is none.
        hardware: where it ran.
        pages: its pages beside the file, by what they show.
    """

    file: Path
    name: str
    env: str
    agent: str
    trials: Mapping[str, int]
    value: float | None
    confirmed: Mapping[str, Any] | None
    command: str
    hardware: str
    pages: Mapping[str, Path]


def read_studies(folders: Sequence[Path]) -> tuple[list[Study], list[str]]:
    """Return the studies, and the files that can't be read.

    Of two files of a name, the first folder's counts.

    Args:
        folders: where the files are. One that is missing holds none.
    """
    studies: dict[str, Study] = {}
    unreadable = []
    for path in (path for folder in folders for path in sorted(folder.glob(f"*{_ENDING}"))):
        if path.name in studies:
            continue
        try:
            studies[path.name] = _study(path, read_json(path))
        except DAMAGE:
            unreadable.append(f"{path.parent.name}/{path.name}")
    return list(studies.values()), unreadable


def _study(path: Path, content: Mapping[str, Any]) -> Study:
    stem = path.name.removesuffix(_ENDING)
    states = [text(table(trial)["state"]) for trial in content["trials"]]
    best = content["best"]
    hardware = table(content["hardware"])
    cores = integer(hardware["cores"], 1, 1_000_000)
    return Study(
        file=path,
        name=text(content["study"]),
        env=text(content["env"]),
        agent=text(content["agent"]),
        trials={word: states.count(state) for state, word in _STATES.items() if state in states},
        value=None if best is None else number(best["values"][0]),
        confirmed=_confirmed(content["confirmation"]),
        command="" if best is None else text(content["command"]),
        hardware=f"{text(hardware['device_name'])}, {cores} cores",
        pages={
            page.stem.removeprefix(f"{stem}_"): page
            for page in sorted(path.parent.glob(f"{stem}_*.html"))
        },
    )


def _confirmed(content: Any) -> Mapping[str, Any] | None:
    """Return the means of the best and the default, and the 95% interval of their difference."""
    if content is None or content["default"] is None or not content["candidates"]:
        return None
    best = content["candidates"][0]
    # With too few seeds the interval has no ends, which JSON can't hold.
    low, high = finite(best["low"]), finite(best["high"])
    if low is None or high is None:
        return None
    return {
        "best": number(best["score"]["value"]),
        "default": number(content["default"]["score"]["value"]),
        "difference": number(best["difference"]),
        "low": low,
        "high": high,
        "verdict": text(best["verdict"]),
        "num_seeds": len(content["seeds"]),
    }
