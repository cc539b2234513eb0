"""What the comparison shows: a table of ratios for each run, and what was not measured.

`ci.site.pages` calls it.
"""

from typing import Any

from ci.site.model import Site


def comparison_page(site: Site) -> dict[str, Any]:
    """Return the context of the comparison's page."""
    lost = [row for row in site.measurements.rows if row["status"] != "ok"]
    columns = ("library", "env", "num_envs", "status", "reason")
    # several runs may say the same of a library
    absent = {tuple(row[name] for name in columns): row for row in lost}
    workloads = {
        workload: entry.slug
        for entry in site.entries
        if entry.measured
        for workload in entry.benchmark.parameters
    }
    return {
        "tables": site.ratio_tables,
        "absent": list(absent.values()),
        "workload_slugs": workloads,
    }
