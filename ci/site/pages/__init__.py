"""Turn what is known into pages: the context of each template.

`ci.site.build` writes what `render_pages` yields.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from ci.site import formatting, status
from ci.site.measurements import when
from ci.site.model import Entry, Site
from ci.site.pages.benchmark import benchmark_page, listed
from ci.site.pages.comparison import comparison_page
from ci.site.pages.devices import devices_page
from ci.site.pages.first import first_page
from ci.site.pages.scaling import row_id, scaling_page
from ci.site.pages.settings import settings_page
from perfgate.history.asv_results import Point
from perfgate.history.levels import MIN_EFFECT
from perfgate.stats.change_points import MIN_SEGMENT

TEMPLATES = Path(__file__).parents[1] / "template"
PAGES = (
    ("index.html", "Answer"),
    ("scaling.html", "Scaling"),
    ("comparison.html", "Comparison"),
    ("settings.html", "Settings"),
    ("devices.html", "Devices"),
    ("studies.html", "Studies"),
    ("benchmarks.html", "Benchmarks"),
    ("changes.html", "Changes"),
    ("compare.html", "Two commits"),
    ("noise.html", "Noise"),
    ("data.html", "Data"),
)
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
        has_docs: whether the documentation is under `docs/`.
    """

    published: Mapping[str, tuple[str, int]]
    plots: Sequence[str]
    has_asv_pages: bool
    has_docs: bool = False


def render_pages(site: Site, files: Files) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every page."""
    environment = _environment(site, files)
    contexts = {
        "index.html": first_page(site),
        "scaling.html": scaling_page(site, files.plots),
        "comparison.html": comparison_page(site),
        "settings.html": settings_page(site.measurements.runs),
        "devices.html": devices_page(site.measurements.runs, files.plots),
        "studies.html": {"studies": site.studies},
        "benchmarks.html": {"entries": [listed(entry, site) for entry in site.entries]},
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
        context = benchmark_page(entry, by_parameters[entry.benchmark.parameters], site)
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
        "rates": formatting.rates,
        "row_id": row_id,
        "thousands": "{:,}".format,
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
        "failed_parts": site.failed_parts,
        "asv_pages": files.has_asv_pages,
        "has_docs": files.has_docs,
        "has_history": bool(site.archive.commits),
        "branch": site.archive.branch,
        "left_out": site.archive.left_out,
        "slugs": site.slugs,
    }
    return environment


def _changes(site: Site) -> dict[str, Any]:
    places = site.places
    newest_first = sorted(site.changes, key=lambda change: -places[change.point.commit])
    # A change that two machines saw has two rows.
    names = [
        f"{each.point.commit[:8]}-{each.benchmark.name}"
        f"-{each.point.setup.machine}-{each.point.setup.versions}"
        for each in newest_first
    ]
    ids = formatting.slugs(names)
    return {
        "answer": status.answer(site),
        "cut_off": site.cut_off,
        "accepted": site.accepted,
        "causes": _causes_of_changes(site),
        "misplaced": site.misplaced,
        "changes": [(ids[name], change) for name, change in zip(names, newest_first, strict=True)],
        "subjects": {commit.hash: commit.subject for commit in site.archive.commits},
        "markers": _markers(site),
        "min_segment": MIN_SEGMENT,
        "min_percent": f"{(MIN_EFFECT - 1) * 100:.0f}",
    }


def _causes_of_changes(site: Site) -> dict[str, dict[str, list[str]]]:
    """Return why each change happened, by benchmark and commit; nothing where nobody has said."""
    found: dict[str, dict[str, list[str]]] = {}
    for change in site.changes:
        name = change.benchmark.name
        commit = change.point.commit
        found.setdefault(name, {})[commit] = site.causes[name].get(commit, [])
    return found


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
        "unreadable": site.unreadable,
        "tables": tables,
    }
