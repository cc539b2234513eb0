"""What the tests of the site share: its day, its pages, and the results that they are made from."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ci.site.build import publish

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results" / "published"
BUILT = datetime(2026, 11, 21, 12, tzinfo=UTC)
MEASURED = datetime(2026, 11, 20, 12, tzinfo=UTC)  # what `write_runs` writes


def build(folder: Path, built: datetime = BUILT, **options: Any) -> Path:
    """Build the site of the results in a folder, which is the repository too, and return it."""
    publish(folder / "results", folder / "site", built, **({"repository": folder} | options))
    return folder / "site"


def read(site: Path, page: str) -> str:
    """Return a page of a site."""
    return (site / page).read_text(encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their paths in it."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def write_runs(
    folder: Path, seconds: Sequence[float] = (0.1,) * 9, commit: str = "0" * 40, **more: float
) -> None:
    """Write what a suite publishes: the rows and the samples of two libraries at two sizes.

    `more` are the seconds of further libraries.
    """
    others = {name: [took] * 9 for name, took in ({"heapq": 0.4} | more).items()}
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["suite,library,env,num_envs,steps_per_s,status,reason,commit,timestamp"]
    at = f"{commit},{MEASURED:%Y%m%dT%H%M%SZ}"
    rows.append(f"throughput,bisect,forest,10,,not installed,pip install bisect,{at}")
    alternations = []
    for num_envs in (10, 1000):
        outcomes = {}
        for library, took in ({"treesort": seconds} | others).items():
            workload = {"name": f"forest-{num_envs}", "env": "forest", "num_envs": num_envs}
            outcomes[library] = {
                "case": {"side": library, "workload": workload},
                "hello": {"library_version": "2.0", "hardware": {"device_name": "Abacus"}},
                "prepared": {"num_steps": 100},
                "status": "ok",
                "seconds": list(took),
            }
            rate = num_envs * 100 / took[0]
            rows.append(f"throughput,{library},forest,{num_envs},{rate},ok,,{at}")
        alternations.append(outcomes)
    (folder / "forest.csv").write_text("\n".join(rows) + "\n")
    samples = {"command": "python run.py --output results", "alternations": alternations}
    (folder / "forest_samples.json").write_text(json.dumps(samples))
