"""Turn what is known into pages: the context of each template.

`ci.site.build` writes what `render_pages` yields.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from ci.site import formatting, status
from ci.site.badges import badges
from ci.site.benchmark_page import benchmark_page, listed
from ci.site.charts import Line, scaling_svg
from ci.site.comparison_page import comparison_page, speedup_groups
from ci.site.measurements import MeasuredRow, when
from ci.site.model import Entry, Site
from ci.site.settings_page import settings_page
from perfgate.history.asv_results import Point
from perfgate.history.levels import MIN_EFFECT
from perfgate.stats.change_points import ALPHA, MIN_SEGMENT

TEMPLATES = Path(__file__).with_name("template")
PAGES = (
    ("index.html", "Answer"),
    ("comparison.html", "Comparison"),
    ("settings.html", "Settings"),
    ("benchmarks.html", "Benchmarks"),
    ("changes.html", "Changes"),
    ("compare.html", "Two commits"),
    ("noise.html", "Noise"),
    ("data.html", "Data"),
)
_MAX_CHANGES = 1_000  # a longer page takes seconds to lay out
# what `ci.validation.selftest` and `ci.validation.mutants` found about the gate
_GATE_TABLES = ("noise_", "mutants")
_RAW_TABLES = ("selftest_",)  # the samples behind those, too long for a page


@dataclass(frozen=True)
class Files:
    """What `ci.site.build` puts beside the pages.

    Attributes:
        published: the published name and the size of each raw file.
        plots: the paths of the plots.
        has_asv_pages: whether asv's own pages are under `history/`.
    """

    published: Mapping[str, tuple[str, int]]
    plots: Sequence[str]
    has_asv_pages: bool


def render_pages(site: Site, files: Files) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every page."""
    environment = _environment(site, files)
    contexts = {
        "index.html": _index(site, files),
        "comparison.html": comparison_page(site),
        "settings.html": settings_page(site.measurements.runs),
        "benchmarks.html": {"entries": [listed(entry, site.project) for entry in site.entries]},
        "changes.html": _changes(site),
        "compare.html": {},
        "noise.html": _noise(site),
        "data.html": _data(site, files),
    }
    for file, _ in PAGES:
        yield file, environment.get_template(file).render(contexts[file], root="", current=file)
    template = environment.get_template("benchmark.html")
    by_parameters: dict[tuple[str, ...], list[Entry]] = {}
    for entry in site.entries:
        by_parameters.setdefault(entry.benchmark.parameters, []).append(entry)
    for entry in site.entries:
        context = benchmark_page(entry, by_parameters[entry.benchmark.parameters], site.project)
        text = template.render(context, root="../", current="benchmarks.html")
        yield f"b/{entry.slug}.html", text


def _environment(site: Site, files: Files) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        # A misspelt name in a template is an error, and not an empty cell.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {
        "day": formatting.day,
        "short_commit": formatting.short_commit,
        "times": formatting.times,
        "percent": formatting.percent,
        "quantity": formatting.quantity,
        "rate": formatting.rate,
        "stale": formatting.is_stale,
        "when": when,
        "hardware": formatting.hardware,
        "seconds": lambda value: "" if value is None else f"{value:.2f}",
        "bytes": lambda value: "" if value is None else formatting.quantity(float(value), "bytes"),
        "median_rate": formatting.median_rate,
        "published": lambda name: files.published[name][0],
        "label": lambda name: site.project.libraries[name].label,
        "counted": formatting.counted,
        "is_number": formatting.is_number,
        "cell": formatting.cell,
    }
    environment.globals |= {
        "pages": PAGES,
        "project": site.project,
        "built": site.built,
        "asv_pages": files.has_asv_pages,
        "has_history": bool(site.archive.commits),
        "slugs": site.slugs,
    }
    return environment


def _index(site: Site, files: Files) -> dict[str, Any]:
    scaling = _scaling(site)
    machines = {row.get("device") for row in site.scaling_rows}
    return {
        "answer": status.answer(site),
        "cut_off": site.cut_off,
        "behind": status.slower(site.speedups),
        "groups": speedup_groups(site.speedups, site.project),
        "scaling": scaling,
        # the other environments' charts are drawn by the page's script
        "chart": _chart(scaling[0]["env"], scaling[0]["rows"], site) if scaling else None,
        "has_gpu": not machines.isdisjoint({"gpu", "cuda", "rocm"}),
        "plots": files.plots,
    }


def _scaling(site: Site) -> list[dict[str, Any]]:
    """Return the newest row of each machine, size and library, by environment."""
    order = list(site.project.libraries)
    by_env: dict[str, dict[tuple[str, int, int], MeasuredRow]] = {}
    for row in site.scaling_rows:
        key = (formatting.hardware(row), int(row["num_envs"]), order.index(row["library"]))
        by_env.setdefault(row["env"], {})[key] = row
    most_sizes_first = sorted(by_env, key=lambda env: (-len({key[1] for key in by_env[env]}), env))
    return [
        {
            "env": env,
            "slug": formatting.slug(env),
            "rows": [by_env[env][key] for key in sorted(by_env[env])],
        }
        for env in most_sizes_first
    ]


def _chart(env: str, rows: Sequence[MeasuredRow], site: Site) -> dict[str, Any]:
    """Return the scaling chart of one environment on the machine that was measured last."""
    newest = max(rows, key=lambda row: row["timestamp"])
    machine = formatting.hardware(newest)
    by_library: dict[str, list[MeasuredRow]] = {}
    for row in rows:
        if formatting.hardware(row) == machine:
            by_library.setdefault(row["library"], []).append(row)
    drawn = [site.project.libraries[name] for name in site.project.order(by_library)]
    columns = ("num_envs", "steps_per_s", "steps_per_s_low", "steps_per_s_high")
    lines = []
    for library in drawn:
        of_library = by_library[library.name]
        values = [
            [float(row[name] or row["steps_per_s"]) for row in of_library] for name in columns
        ]
        lines.append(Line(library.style, *values))
    return {
        "svg": scaling_svg(lines, f"{env}: steps per second against environments"),
        "legend": drawn,
        "caption": f"{env} on {machine}. Both axes are logarithmic. Medians and 95% intervals.",
    }


def _changes(site: Site) -> dict[str, Any]:
    changes = site.changes
    return {
        "accepted": site.accepted,
        "changes": changes[:_MAX_CHANGES],
        "num_left_out": len(changes[_MAX_CHANGES:]),
        "subjects": {commit.hash: commit.subject for commit in site.archive.commits},
        "markers": _markers(site),
        "min_segment": MIN_SEGMENT,
        "min_percent": f"{(MIN_EFFECT - 1) * 100:.0f}",
        "chance": f"{1 / ALPHA:,.0f}",
    }


def _markers(site: Site) -> list[dict[str, Any]]:
    """Return each machine and versions after the first, with their first commit."""
    places = site.places
    first: dict[tuple[str, str], Point] = {}
    counts: dict[tuple[str, str], int] = {}
    for stretch in (each for history in site.histories for each in history.stretches):
        key = (stretch.setup.machine, stretch.setup.versions)
        point = stretch.segments[0].points[0]
        counts[key] = counts.get(key, 0) + 1
        if key not in first or places[point.commit] < places[first[key].commit]:
            first[key] = point
    ordered = sorted(first, key=lambda key: places[first[key].commit])
    return [
        {"first": first[key], "machine": key[0], "versions": key[1], "count": counts[key]}
        for key in ordered[1:]
    ]


def _noise(site: Site) -> dict[str, Any]:
    tables = [each for each in site.measurements.tables if each.name.startswith(_GATE_TABLES)]
    noisiest = sorted(site.histories, key=lambda history: -history.scatter)
    return {"tables": tables, "histories": noisiest}


def _data(site: Site, files: Files) -> dict[str, Any]:
    elsewhere = (*_GATE_TABLES, *_RAW_TABLES)
    tables = [table for table in site.measurements.tables if not table.name.startswith(elsewhere)]
    published = sorted(files.published.values())
    return {
        "files": [{"name": name, "size": size} for name, size in published],
        "unreadable": [*site.measurements.unreadable, *site.archive.unreadable],
        "tables": tables,
        "badges": list(badges(site)),
    }
