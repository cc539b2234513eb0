"""Made-up runs that compare arms: settings in alternation, a ladder, and trainings to a target."""

import json
from pathlib import Path

_ARMS = (
    ("baseline", "baseline", {}),
    ("fast", "fast", {}),
    ("baseline + passes", "baseline", {"passes": 1}),
    ("baseline + rate", "baseline", {"rate": 0.002}),
    ("fast - passes", "fast", {"passes": 8}),
    ("fast - rate", "fast", {"rate": 0.001}),
)
_RATES = (100.0, 600.0, 400.0, 110.0, 120.0, 580.0)


def arm_samples(num_rounds: int = 7) -> list[dict]:
    """Return the samples of a run: settings in alternation, a ladder, and trainings to a target."""
    wobble = [1 + 0.01 * place for place in range(num_rounds)]
    where = {"env": "maze", "agent": "walker", "target_return": 850}
    arms = {
        name: {
            "starts_from": start,
            "sets": sets,
            "num_envs": 16 if start == name else 32,
            "steps_per_s": [rate * each for each in (wobble if start == name else wobble[::-1])],
        }
        for (name, start, sets), rate in zip(_ARMS, _RATES, strict=True)
    }
    rungs = {
        name: {"num_envs": 64, "steps_per_s": [rate * each for each in wobble]}
        for name, rate in (("host loop", 1.0), ("one step", 70.0), ("one program", 350.0))
    }
    trainings = [
        where | {"arm": arm, "seed": seed, "train_s": seconds / 2, "columns": columns}
        for seed in range(num_rounds)
        for arm, seconds in (("baseline", 16.0), ("fast", 12.0), ("hasty", 9.0))
        for columns in [
            {
                "run_s": seconds + seed / 10,
                "num_steps": 1000,
                "status": "ok",
                "reason": "short of 850" if arm == "hasty" and seed else "",
            }
        ]
    ]
    return [where | {"arms": arms}, where | {"is_ladder": True, "arms": rungs}, *trainings]


def write_arms(folder: Path, samples: list[dict] | None = None) -> Path:
    """Write the rows and the samples of a run that compares arms, and return the samples' file."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = ("suite", "library", "env", "num_envs", "steps_per_s", "status", "commit")
    cells = ("arms", "mine", "maze", "", "1e6", "ok", "abcdef1")
    (folder / "arms.csv").write_text(
        f"{','.join(columns)},timestamp\n{','.join(cells)},20261120T120000Z\n"
    )
    content = {"command": "python run.py --output x", "alternations": samples or arm_samples()}
    path = folder / "arms_samples.json"
    path.write_text(json.dumps(content))
    return path
