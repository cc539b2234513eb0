"""What the page Noise shows: how the gate judged known changes, and the scatter of the history."""

from typing import Any

from ci.site.formatting import is_number
from ci.site.measurements import OtherTable
from ci.site.model import Site

# what `ci.validation` found about the gate
GATE_TABLES = ("gate_", "mutants")
_NEEDED = {"mutant", "wanted", "exit_code", "kept", "commit"}
_SAID = {"0": "passed", "1": "failed", "2": "stopped with an error", "3": "could not tell"}


def noise_page(site: Site) -> dict[str, Any]:
    """Return the context of the page Noise."""
    tables = [each for each in site.measurements.tables if each.name.startswith(GATE_TABLES)]
    return {
        "trials": [_trials(each, site) for each in tables if set(each.headers) >= _NEEDED],
        "tables": [each for each in tables if not set(each.headers) >= _NEEDED],
        "histories": sorted(site.histories, key=lambda history: -history.scatter),
    }


def _trials(table: OtherTable, site: Site) -> dict[str, Any]:
    """Return the rows of a table of known changes in words, and their sum."""
    cells = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
    rows = [_trial(row, site) for row in sorted(cells, key=lambda row: row["kept"])]
    harmful = [row for row in rows if row["should"] == "fail"]
    right = sum(row["right"] for row in harmful)
    harmless = [row for row in rows if row["should"] == "pass"]
    passed = sum(row["right"] for row in harmless)
    failed = sum(row["said"].startswith(_SAID["1"]) for row in harmless)
    ages = [(row["date"], row["num_commits"]) for row in rows]
    return {
        "file": table.name,
        "title": "Whole runs" if table.name.startswith("gate_") else "Single changes",
        "sum": f"{right} of {len(harmful)} harmful changes failed with their cause named, and "
        f"{passed} of {len(harmless)} harmless ones passed. {failed or 'None'} of these failed.",
        "rows": rows,
        "oldest": min(ages, key=lambda age: (age[0], -age[1]), default=("", -1)),
        **{name: any(row[name] for row in rows) for name in ("busy", "others", "bound")},
    }


def _trial(row: dict[str, str], site: Site) -> dict[str, Any]:
    said = _SAID.get(row["exit_code"], "did not end")
    if row["exit_code"] == "1":
        named = row.get("cause_named") == "True"
        said += ", cause named" if named else ", another cause named"
    worst = row.get("worst", "")
    bound = float(worst) if is_number(worst) and not worst.endswith("%") else 0.0
    commit = row["commit"]
    date, num_commits = site.gate_ages.get(commit, ("", -1))
    return {
        "change": row["mutant"].replace("-", " "),
        "should": "fail" if row["wanted"] == "1" else "pass",
        "said": said,
        "right": row["kept"] == "True",
        "busy": row.get("busy", ""),
        "others": row.get("others", ""),
        "verdicts": row.get("verdicts", "").replace(";", ","),
        "bound": f"{(bound - 1) * 100:.0f}%" if bound else "",
        "took_s": row.get("seconds", ""),
        "commit": commit,
        "date": row.get("date") or date,
        "num_commits": num_commits,
    }
