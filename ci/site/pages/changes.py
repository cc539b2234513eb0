"""The state of main, and every change of level in its history.

`ci.site.pages` shows the state on the first page, and both on the page Changes.
"""

from datetime import UTC, datetime
from typing import Any

from ci.site import formatting
from ci.site.formatting import NOT_MEASURED, counted
from ci.site.model import Site
from perfgate.history.benchmark_history import LevelChange, worst_first
from perfgate.stats.change_points import MIN_EFFECT, MIN_SEGMENT


def answer(site: Site) -> dict[str, Any]:
    """Return the state of main: a sentence, its kind (good, bad or quiet), and what it rests on."""
    branch = site.archive.branch
    slower = site.slower
    if not site.histories:
        kind = "quiet"
        nothing = f"The history of {branch} over its commits: {NOT_MEASURED}."
        sentence = " ".join([nothing, *site.archive.left_out])
    elif site.commits_behind:
        kind = "quiet"
        sentence = (
            f"The newest measured commit is {site.commits_behind} commits behind {branch}, "
            f"so nothing is said about {branch} as it is now."
        )
    elif slower:
        kind = "bad"
        count = len({change.benchmark.name for change in slower})
        verb = "is" if count == 1 else "are"
        sentence = f"{counted(count, 'benchmark')} {verb} slower on {branch} by the gate's rule."
    elif told := sum(history.can_tell for history in site.histories):
        kind = "good"
        sentence = f"No slowdown on {branch} by the gate's rule in {counted(told, 'benchmark')}."
        if few := len(site.histories) - told:
            sentence += f" {counted(few, 'benchmark')} had too few commits to tell."
    else:
        kind = "quiet"
        sentence = f"Too few commits of {branch} were measured to tell whether it is slower."
    measured_s, machine = site.archive.measured
    return {
        "kind": kind,
        "sentence": sentence,
        "since": min(
            (each.point for each in slower),
            key=lambda point: site.archive.places[point.commit],
            default=None,
        ),
        "worst": slower[0] if slower else None,
        "bisect": bisect(slower[0]) if slower else "",
        "span": _span(slower[0], site) if slower else 0,
        "num_benchmarks": len(site.histories),
        "measured": datetime.fromtimestamp(measured_s, UTC) if measured_s else None,
        "machine": machine or NOT_MEASURED,
    }


def bisect(change: LevelChange) -> str:
    """Return the commands that find the commit of a change, with the gate as the judge."""
    good, bad = (point.commit[:8] for point in (change.previous, change.point))
    found = formatting.pattern(change.benchmark.function, change.benchmark.parameters)
    judge = f"perfgate --base {good} --bench {found}; code=$?; exit $((code < 2 ? code : 125))"
    # The pattern is in single quotes, and holds nothing else that double quotes don't protect.
    escaped = judge.replace("$", r"\$")
    return f'git bisect start {bad} {good} && git bisect run sh -c "{escaped}"'


def _span(change: LevelChange, site: Site) -> int:
    """Return in how many commits a change can be, 0 where no repository tells."""
    places = {commit: place for place, commit in enumerate(site.archive.main)}
    return places.get(change.point.commit, 0) - places.get(change.previous.commit, 0)


def changes_page(site: Site) -> dict[str, Any]:
    """Return the context of the page Changes."""
    places = site.archive.places
    changes = worst_first([change for each in site.histories for change in each.changes])
    newest_first = sorted(changes, key=lambda change: -places[change.point.commit])
    # A change that two machines saw has two rows.
    names = [
        f"{each.point.commit[:8]}-{each.benchmark.name}"
        f"-{each.point.setup.machine}-{each.point.setup.versions}"
        for each in newest_first
    ]
    ids = formatting.slugs(names)
    return {
        "answer": answer(site),
        "cut_off": worst_first([change for each in site.histories for change in each.cut_off]),
        "accepted": site.rules.accepted,
        "changes": [
            (ids[name], change, _span(change, site), bisect(change))
            for name, change in zip(names, newest_first, strict=True)
        ],
        "subjects": {commit.hash: commit.subject for commit in site.archive.commits},
        "min_segment": MIN_SEGMENT,
        "min_percent": f"{(MIN_EFFECT - 1) * 100:.0f}",
    }
