"""Turn what is known into pages: the context of each template.

`ci.site.build` writes what `render_pages` yields.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from ci.site import formatting
from ci.site.comparisons import not_ahead
from ci.site.measurements import when
from ci.site.model import Site
from ci.site.pages.benchmark import benchmark_page, listed
from ci.site.pages.changes import answer, changes_page
from ci.site.pages.noise import noise_page
from ci.site.pages.scaling import chart_data, chart_svg, row_id, scaling_page

TEMPLATES = Path(__file__).parents[1] / "template"
PAGES = (
    ("index.html", "Answer"),
    ("scaling.html", "Scaling"),
    ("comparison.html", "Comparison"),
    ("own.html", "Own runs"),
    ("benchmarks.html", "Benchmarks"),
    ("changes.html", "Changes"),
    ("compare.html", "Two commits"),
    ("noise.html", "Noise"),
    ("data.html", "Data"),
)


def render_pages(
    site: Site,
    *,
    sizes: Mapping[str, int],
    plots: Sequence[str],
    has_asv_pages: bool,
    guides: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every page.

    Args:
        site: what is known.
        sizes: the bytes of each raw file under `data/raw/`, by its name.
        plots: the paths of the plots.
        has_asv_pages: whether asv's own pages are under `history/`.
        guides: the paths of the built documentation's pages, by their names.
    """
    environment = _environment(site)
    environment.globals |= {"asv_pages": has_asv_pages, "guides": guides}
    own = replace(site, measurements=site.own)
    charts = scaling_page(site)
    contexts = {
        "index.html": charts | {"answer": answer(site), "behind": not_ahead(site.comparisons)},
        "scaling.html": charts | {"plots": plots},
        "comparison.html": _comparison(site),
        "own.html": scaling_page(own) | {"tables": own.comparisons},
        "benchmarks.html": {"entries": [listed(each, site) for each in site.histories]},
        "changes.html": changes_page(site),
        "compare.html": {},
        "noise.html": noise_page(site),
        "data.html": {"files": sorted(sizes.items()), "unreadable": site.unreadable},
    }
    # A page is in the navigation if it has something of its own to show.
    shown = {
        "scaling.html": any(
            contexts["scaling.html"][name] for name in ("charts", "costs", "plots")
        ),
        "comparison.html": site.measurements.rows,
        "own.html": site.own.rows,
        "benchmarks.html": site.histories,
        "changes.html": site.histories or site.rules.accepted,
        "compare.html": site.histories,
        "noise.html": any(contexts["noise.html"].values()),
        "data.html": sizes or site.unreadable,
    }
    environment.globals["pages"] = [each for each in PAGES if shown.get(each[0], True)]
    for file, _ in PAGES:
        yield file, environment.get_template(file).render(contexts[file], root="", current=file)
    template = environment.get_template("benchmark.html")
    for history in site.histories:
        text = template.render(benchmark_page(history, site), root="../", current="benchmarks.html")
        yield f"b/{site.slugs[history.benchmark.name]}.html", text


def _environment(site: Site) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        # A misspelt name in a template is an error, and not an empty cell.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    named_alike = (
        *(formatting.breakable, formatting.cell, formatting.counted, formatting.day),
        *(formatting.hardware, formatting.is_number, formatting.percent, formatting.quantity),
        *(formatting.rate, formatting.short_commit, formatting.times, chart_data, chart_svg),
        *(row_id, when),
    )
    environment.filters |= {each.__name__: each for each in named_alike} | {
        "thousands": "{:,}".format,
        "old": lambda moment, commit="": formatting.is_old(
            moment, site.built, site.ages.get(commit)
        ),
        "kind": formatting.kind_of_rate,
        "pattern": lambda each: formatting.pattern(each.function, each.parameters),
        "label": lambda name: site.project.libraries[name].label,
    }
    title, found = site.project.title, site.comparisons
    nothing = f"How fast {title} is beside other libraries"
    environment.globals |= {
        "project": site.project,
        "built": site.built,
        "failed_parts": site.failed_parts,
        "has_history": bool(site.archive.commits),
        "branch": site.archive.branch,
        "left_out": site.archive.left_out,
        "slugs": site.slugs,
        "headline": found[0].headline(title) if found else f"{nothing}: not measured yet.",
        "ages": site.ages,
        "is_noisy": formatting.is_noisy,
    }
    return environment


def _comparison(site: Site) -> dict[str, Any]:
    absent: dict[tuple[str, ...], list[str]] = {}
    for row in (row for row in site.measurements.rows if row["status"] != "ok"):
        key = tuple(row[name] for name in ("library", "env", "status", "reason"))
        absent.setdefault(key, []).append(row["num_envs"])
    return {
        "tables": [each for each in site.comparisons if each.peers],
        "runs": site.measurements.runs,
        # several sizes and runs may say the same of a library
        "absent": [(*key, dict.fromkeys(sizes)) for key, sizes in absent.items()],
    }
