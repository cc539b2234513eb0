"""The Atom feed: one entry for each change of level on main and for each published run."""

import uuid
from datetime import UTC, datetime

from markupsafe import escape

from ci.site.formatting import counted, day, percent, quantity, short_commit
from ci.site.measurements import SuiteRun
from ci.site.model import Site
from perfgate.history.levels import LevelChange

_MAX_ENTRIES = 50
# Any fixed one: an entry then keeps its id in every build.
_NAMESPACE = uuid.UUID("6f7c0a3e-2b8d-5d0e-9a41-0d5d6c1b7e21")


def feed(site: Site) -> str:
    """Return the feed's text. Its links are relative, so you can host the site anywhere."""
    changes = sorted(site.changes, key=lambda change: -change.point.date_s)
    entries = [_of_change(each, f"b/{site.slugs[each.benchmark.name]}.html") for each in changes]
    entries += [_of_run(run, run.measured) for run in site.measurements.runs if run.measured]
    entries.sort(key=lambda entry: entry[0], reverse=True)
    updated = entries[0][0] if entries else site.built
    title = f"{site.project.title}, measured"
    head = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<title>{escape(title)}</title>",
        f"<id>{_identity(title)}</id>",
        f"<updated>{updated.isoformat()}</updated>",
        '<link rel="self" href="feed.xml"/><link href="index.html"/>',
        "<author><name>ci.site.build</name></author>",
    ]
    return "\n".join([*head, *(text for _, text in entries[:_MAX_ENTRIES]), "</feed>", ""])


def _identity(*parts: str) -> str:
    return uuid.uuid5(_NAMESPACE, " ".join(parts)).urn


def _entry(
    moment: datetime, title: str, link: str, text: str, identity: str
) -> tuple[datetime, str]:
    return moment, (
        f'<entry><title>{escape(title)}</title><link href="{link}"/><id>{identity}</id>'
        f"<updated>{moment.isoformat()}</updated><summary>{escape(text)}</summary></entry>"
    )


def _of_change(change: LevelChange, page: str) -> tuple[datetime, str]:
    name = change.benchmark.name
    point = change.point
    ratio = change.ratio
    title = f"{name}: {percent(ratio.middle)}, {change.word}"
    before = quantity(change.previous.value, change.benchmark.unit)
    text = (
        f"Since {short_commit(point.commit)} of {day(point.date_s)} on {point.setup.machine}. "
        f"The 95% interval is {percent(ratio.low)} to {percent(ratio.high)}. "
        f"The value was {before} at {short_commit(change.previous.commit)}."
    )
    identity = _identity("change", name, point.commit, point.setup.machine, point.setup.versions)
    return _entry(datetime.fromtimestamp(point.date_s, UTC), title, page, text, identity)


def _of_run(run: SuiteRun, measured: datetime) -> tuple[datetime, str]:
    title = f"Measured: {run.suite}, {day(measured)}"
    compares_arms = bool(run.arms or run.trainings)
    num_measured = len(run.alternations) + len(run.arms)
    what = counted(num_measured, "alternation")
    if run.trainings:
        what += f" and {counted(len(run.trainings), 'training')}"
    text = f"{what} at commit {short_commit(run.commit)}: {run.command}"
    identity = _identity("run", run.file, measured.isoformat())
    page = "settings.html" if compares_arms else "comparison.html"
    return _entry(measured, title, page, text, identity)
