"""The Atom feed: an entry per change of level on main, the newest first, and one per measurement that was published."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from markupsafe import escape

from perfgate.history.levels import Change
from ci.site.measurements import Run
from ci.site.formatting import day, percent, quantity, short_commit

_MAX_ENTRIES = 50
# any fixed one: the same entry keeps its id for ever
_NAMESPACE = uuid.UUID("6f7c0a3e-2b8d-5d0e-9a41-0d5d6c1b7e21")


def feed(title: str, changes: Sequence[Change], pages: Mapping[str, str], runs: Sequence[Run], built: datetime) -> str:
    """Return the feed's text; links are relative, so that it works wherever the site is put.

    `pages` names the page of each benchmark.
    """
    entries = [_of_change(change, pages[change.benchmark.name]) for change in changes] + [
        _of_run(run) for run in runs if run.measured
    ]
    entries.sort(key=lambda entry: entry[0], reverse=True)
    updated = entries[0][0] if entries else built
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<title>{escape(title)}</title><id>{_identity(title)}</id><updated>{updated.isoformat()}</updated>\n"
        '<link rel="self" href="feed.xml"/><link href="index.html"/><author><name>ci.site.build</name></author>\n'
        + "\n".join(text for _, text in entries[:_MAX_ENTRIES])
        + "\n</feed>\n"
    )


def _identity(*parts: str) -> str:
    return uuid.uuid5(_NAMESPACE, " ".join(parts)).urn


def _entry(moment: datetime, title: str, link: str, text: str, identity: str) -> tuple[datetime, str]:
    return moment, (
        f'<entry><title>{escape(title)}</title><link href="{link}"/><id>{identity}</id>'
        f"<updated>{moment.isoformat()}</updated><summary>{escape(text)}</summary></entry>"
    )


def _of_change(change: Change, page: str) -> tuple[datetime, str]:
    name, point, ratio = change.benchmark.name, change.point, change.ratio
    title = f"{name}: {percent(ratio.middle)}, {change.word}"
    text = (
        f"From {quantity(change.previous.value, change.benchmark.unit)} at {short_commit(change.previous.commit)} on; "
        f"since {short_commit(point.commit)} of {day(point.date_s)}, 95% interval {percent(ratio.low)} to "
        f"{percent(ratio.high)}, on {point.setup.machine}."
    )
    identity = _identity("change", name, point.commit, point.setup.machine, point.setup.versions)
    return _entry(datetime.fromtimestamp(point.date_s, UTC), title, page, text, identity)


def _of_run(run: Run) -> tuple[datetime, str]:
    assert run.measured is not None, "only dated runs are listed"
    title = f"Measured: {run.suite}, {day(run.measured)}"
    text = f"{len(run.alternations)} alternations at commit {short_commit(run.commit)}: {run.command}"
    return _entry(run.measured, title, "comparison.html", text, _identity("run", run.file, run.measured.isoformat()))
