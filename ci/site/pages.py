"""Turn what is known into pages: the context of each template. `ci.site.build` writes what `render_pages` yields."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from ci.site import status as answer

from ci.site import formatting as wording
from ci.site.badges import badges
from ci.site.benchmark_page import benchmark_page, listed, median_rate
from perfgate.stats.change_points import ALPHA, MIN_SEGMENT
from ci.site.drawing import Line, scaling_svg, styles_of
from perfgate.history.levels import MIN_EFFECT, Change
from ci.site.measurements import Headline, Row, Run, Table, hardware_text, when
from ci.site.model import Entry, Site

TEMPLATES = Path(__file__).with_name("template")
PAGES = (
    ("index.html", "Answer"),
    ("comparison.html", "Comparison"),
    ("benchmarks.html", "Benchmarks"),
    ("changes.html", "Changes"),
    ("compare.html", "Two commits"),
    ("noise.html", "Noise"),
    ("data.html", "Data"),
)
_MAX_CHANGES = 1_000  # a page, not an archive: the rest is in the data
# what `ci.validation.selftest` and `ci.validation.mutants` found of the gate
_GATE_TABLES = ("noise_", "mutants")
_RAW_TABLES = ("selftest_",)  # what they found it from: a file, no table


@dataclass(frozen=True)
class Files:
    """What `ci.site.build` puts beside the pages: raw files by their published name and size, plots, asv's own pages."""

    published: Mapping[str, tuple[str, int]]
    plots: Sequence[str]
    has_asv_pages: bool


@dataclass(frozen=True)
class Group:
    """The ratios of one environment beside one peer that one run measured, a line per size."""

    env: str
    peer: str
    recorded: bool
    lines: Sequence[Headline]

    @property
    def run(self) -> Run:
        """The run that measured them."""
        return self.lines[0].run

    @property
    def others(self) -> dict[str, str]:
        """What else was called in turn: the column's heading, and the key in a line's `others`."""
        found = dict.fromkeys(name for line in self.lines for name in line.others)
        return {"without configure()" if name == "myriad-plain" else "peer with our options": name for name in found}

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the peer's rows, each thing once though every size says it with its own figure."""
        reasons = [line.peer.reason for line in self.lines if line.peer.reason]
        sizes = {line.peer.num_envs for line in self.lines}
        notes = [f"{self.peer}: {reasons[0]}."] if reasons else []
        if sizes != {line.ours.num_envs for line in self.lines}:
            several = " and ".join(f"{size:,}" for size in sorted(sizes))
            notes.append(
                f"{self.peer} always steps {several} environment{'s' * (sizes != {1})}: it is no faster with more."
            )
        return notes


def render_pages(site: Site, files: Files) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every page."""
    environment = _environment(site, files)
    contexts = {
        "index.html": _index(site, files),
        "comparison.html": _comparison(site),
        "benchmarks.html": {"entries": [listed(entry) for entry in site.entries]},
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
        context = benchmark_page(entry, by_parameters[entry.benchmark.parameters])
        yield f"b/{entry.slug}.html", template.render(context, root="../", current="benchmarks.html")


def _environment(site: Site, files: Files) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "day": wording.day,
        "short_commit": wording.short_commit,
        "times": wording.times,
        "percent": wording.percent,
        "quantity": wording.quantity,
        "rate": wording.rate,
        "stale": wording.is_stale,
        "when": when,
        "hardware": lambda row: hardware_text(dict(row)),
        "seconds": lambda value: "" if value is None else f"{value:.2f}",
        "bytes": lambda value: "" if value is None else wording.quantity(float(value), "bytes"),
        "median_rate": median_rate,
        "published": lambda name: files.published[name][0],
        "is_number": wording.is_number,
        "cell": wording.cell,
    }
    environment.globals |= {
        "pages": PAGES,
        "built": site.built,
        "asv_pages": files.has_asv_pages,
        "has_history": bool(site.archive.commits),
        "slugs": site.slugs,
    }
    return environment


def groups_of(headlines: Sequence[Headline]) -> list[Group]:
    """Gather the ratios by environment, peer and run; what was measured at the most sizes comes first."""
    gathered: dict[tuple[str, str, bool, str, str], list[Headline]] = {}
    for line in headlines:
        # Steps under random actions, under a policy and in a training are three measurements, never
        # mixed.
        env = line.ours.env if line.ours.agent == "random" else f"{line.ours.env}, {line.ours.agent}"
        key = (env, line.peer.library, line.ours.recorded, line.run.file, line.ours.hardware)
        gathered.setdefault(key, []).append(line)
    groups = [Group(env, peer, recorded, lines) for (env, peer, recorded, _, _), lines in gathered.items()]
    return sorted(groups, key=lambda group: (group.recorded, -len(group.lines), group.env, group.peer))


def _index(site: Site, files: Files) -> dict[str, Any]:
    return {
        "answer": answer.answer(site),
        "cut_off": site.cut_off,
        "behind": answer.slower(site.headlines),
        "groups": groups_of(site.headlines),
        "scaling": _scaling(site),
        "has_gpu": any(row.get("device") in {"gpu", "cuda", "rocm"} for row in site.scaling_rows),
        "plots": files.plots,
    }


def _scaling(site: Site) -> list[dict[str, Any]]:
    """Return per environment what the graph shows without a script: the newest row of each library and size."""
    by_env: dict[str, list[Row]] = {}
    for row in site.scaling_rows:
        by_env.setdefault(row["env"], []).append(row)
    found = [_scaling_of(env, rows) for env, rows in by_env.items()]
    return sorted(found, key=lambda each: (-len({row["num_envs"] for row in each["rows"]}), each["env"]))


def _scaling_of(env: str, rows: Sequence[Row]) -> dict[str, Any]:
    styles = styles_of([row["library"] for row in rows])
    order = list(styles)
    newest = {(hardware_text(dict(row)), int(row["num_envs"]), order.index(row["library"])): row for row in rows}
    machine = hardware_text(dict(rows[-1]))
    drawn = [newest[key] for key in sorted(newest) if key[0] == machine]
    columns = ("num_envs", "steps_per_s", "steps_per_s_low", "steps_per_s_high")
    lines = [
        Line(library, *([float(row[name] or row["steps_per_s"]) for row in of_library] for name in columns))
        for library in order
        if (of_library := [row for row in drawn if row["library"] == library])
    ]
    return {
        "env": env,
        "slug": wording.slug(env),
        "rows": [newest[key] for key in sorted(newest)],
        "svg": scaling_svg(lines, styles, f"{env}: steps per second against environments"),
        "legend": [(line.name, styles[line.name]) for line in lines],
        "caption": f"{env} on {machine}, both axes logarithmic; medians and 95% intervals.",
    }


def _comparison(site: Site) -> dict[str, Any]:
    lost = [row for row in site.measurements.rows if row["status"] != "ok"]
    shown = ("library", "env", "num_envs", "status", "reason")
    # several runs say the same
    absent = list({tuple(row[name] for name in shown): row for row in lost}.values())
    workloads = {
        workload: entry.slug for entry in site.entries if entry.measured for workload in entry.benchmark.parameters
    }
    return {"groups": groups_of(site.headlines), "absent": absent, "workload_slugs": workloads}


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
    """Return each setup after a machine's first, with its first commit: where nothing is compared across."""
    places = site.places
    first: dict[tuple[str, str], Any] = {}
    counts: dict[tuple[str, str], int] = {}
    for entry in site.entries:
        for stretch in entry.history.stretches if entry.history else ():
            key, point = (stretch.setup.machine, stretch.setup.versions), stretch.segments[0].points[0]
            counts[key] = counts.get(key, 0) + 1
            if key not in first or places[point.commit] < places[first[key].commit]:
                first[key] = point
    ordered = sorted(first, key=lambda key: places[first[key].commit])
    return [{"first": first[key], "machine": key[0], "versions": key[1], "count": counts[key]} for key in ordered[1:]]


def _gate_tables(site: Site) -> list[Table]:
    return [table for table in site.measurements.tables if table.name.startswith(_GATE_TABLES)]


def _noise(site: Site) -> dict[str, Any]:
    scatters = [entry for entry in site.entries if entry.history]
    scatters.sort(key=lambda entry: -(entry.history.scatter if entry.history else 0))
    return {"tables": _gate_tables(site), "scatters": scatters}


def _data(site: Site, files: Files) -> dict[str, Any]:
    published = [{"name": name, "size": size} for name, size in sorted(files.published.values())]
    elsewhere = (*_GATE_TABLES, *_RAW_TABLES)
    tables = [table for table in site.measurements.tables if not table.name.startswith(elsewhere)]
    names = badges(0, "", site.headlines)
    return {"files": published, "unreadable": site.archive.unreadable, "tables": tables, "badges": list(names)}


def newest_changes(site: Site) -> list[Change]:
    """Return the changes for the feed, the newest first."""
    return sorted(site.changes, key=lambda change: -change.point.date_s)
