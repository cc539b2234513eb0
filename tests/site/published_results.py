"""What the tests of the site share: its day, its pages, and the results that they are made from."""

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ci.site.build import publish

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results" / "published"
BUILT = datetime(2026, 11, 21, 12, tzinfo=UTC)
MEASURED = datetime(2026, 11, 20, 12, tzinfo=UTC)  # what `write_runs` writes


def build(
    folder: Path,
    files: Mapping[str, str] | None = None,
    built: datetime = BUILT,
    **options: Any,
) -> Path:
    """Write files of a repository, build the site of its folder `results`, and return it."""
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    publish(folder / "results", folder / "site", built, **({"repository": folder} | options))
    return folder / "site"


def read(site: Path, page: str) -> str:
    """Return a page of a site."""
    return (site / page).read_text(encoding="utf-8")


def write_runs(
    folder: Path, seconds: Sequence[float] = (0.1,) * 9, commit: str = "0" * 40, **more: float
) -> None:
    """Write what a suite publishes: the rows of two libraries at two sizes, and their command.

    `more` are the seconds of further libraries.
    """
    others = {name: [took] * 9 for name, took in ({"heapq": 0.4} | more).items()}
    folder.mkdir(parents=True, exist_ok=True)
    rates = "steps_per_s,steps_per_s_low,steps_per_s_high"
    rows = [f"suite,library,env,num_envs,{rates},status,reason,device_name,commit,timestamp"]
    at = f"Abacus,{commit},{MEASURED:%Y%m%dT%H%M%SZ}"
    rows.append(f"throughput,bisect,forest,10,,,,not installed,pip install bisect,{at}")
    for num_envs in (10, 1000):
        for library, took in ({"treesort": seconds} | others).items():
            ends = (statistics.median(took), max(took), min(took))
            found = ",".join(str(num_envs * 100 / each) for each in ends)
            rows.append(f"throughput,{library},forest,{num_envs},{found},ok,,{at}")
    (folder / "forest.csv").write_text("\n".join(rows) + "\n")
    samples = {"command": "python run.py --output results"}
    (folder / "forest_samples.json").write_text(json.dumps(samples))
