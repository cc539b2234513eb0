"""The parts of the last night that failed. Their figures on the pages are older ones.

The program that measures writes an outcome `parts/NAME.json` beside the rows. `ci.site.model`
reads them here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perfgate.files import DAMAGE, read_json, text


@dataclass(frozen=True)
class FailedPart:
    """A part of the last night that failed.

    Attributes:
        name: what it is called.
        reason: why it failed.
        failed: when it failed.
        succeeded: when it last succeeded, None if that is unknown.
    """

    name: str
    reason: str
    failed: datetime
    succeeded: datetime | None


def read_failed_parts(folder: Path) -> tuple[Sequence[FailedPart], Sequence[str]]:
    """Return the parts that failed, and the outcomes that can't be read."""
    failed = []
    unreadable = []
    for path in sorted(folder.glob("*.json")):
        try:
            outcome = read_json(path)
            reason = text(outcome["reason"])
            ended = _moment(text(outcome["ended"]))
            last = text(outcome.get("succeeded", ""))
            succeeded = _moment(last) if last else None
        except DAMAGE:
            unreadable.append(f"{folder.name}/{path.name}")
            continue
        if reason:
            failed.append(FailedPart(text(path.stem), reason, ended, succeeded))
    return failed, unreadable


def _moment(written: str) -> datetime:
    return datetime.fromisoformat(written).astimezone(UTC)
