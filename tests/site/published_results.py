"""What the tests of the site share: its day, its pages, and what this repository publishes."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results" / "published"
BUILT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def copy_published(folder: Path) -> None:
    """Copy it without the history of our own main, beside which a made-up one may lie."""
    without = shutil.ignore_patterns("asv", "annotations.toml")
    shutil.copytree(PUBLISHED, folder, ignore=without)


def read(site: Path, page: str) -> str:
    """Return a page of a site."""
    return (site / page).read_text(encoding="utf-8")
