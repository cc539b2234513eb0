"""What this repository publishes, as the tests of the site take it."""

import shutil
from pathlib import Path

PUBLISHED = Path(__file__).parents[2] / "results" / "published"


def copy_published(folder: Path) -> None:
    """Copy it without the history of our own main, beside which a made-up one may lie."""
    without = shutil.ignore_patterns("asv", "annotations.toml")
    shutil.copytree(PUBLISHED, folder, ignore=without)
