"""Build the static site of results, from whatever of them there is.

    python -m ci.site.build [--results results] [--output site]

What is missing says `not measured yet`. The site is built beside its final place and then swapped
in, so that a reader finds the old one or the new one. It opens from a folder, works from any
sub-path, and loads nothing from elsewhere.
"""

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ci.site.status import last_measurement
from ci.site.badges import badges
from perfgate.errors import UsageError
from ci.site.feed import feed
from ci.site.pages import TEMPLATES, Files, newest_changes, render_pages
from ci.site.model import Site, data_files, read_site
from ci.site.formatting import day

_MARK = "site.json"  # what says that a folder is a site of ours, which may be replaced
_ASSETS = ("style.css", "site.js", "charts.js", "scaling.js", "history.js", "compare.js")
_VENDORED = ("uPlot.iife.min.js", "uPlot.min.css")
_ACCEPTED = Path("ci/accepted.toml")
_MAX_PLAIN_BYTES = 1_500_000  # a larger file of samples is published compressed


class PublishError(Exception):
    """The site can't be built there; the message is for the user."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; a mistake gives one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m ci.site.build", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"), help="what to read (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("site"), help="what to write (default: %(default)s)")
    parser.add_argument(
        "--accepted", type=Path, default=_ACCEPTED, help="the file of accepted regressions (default: ci/accepted.toml)"
    )
    options = parser.parse_args(argv)
    try:
        num_pages = publish(options.results, options.output, datetime.now(UTC), options.accepted)
    except (PublishError, UsageError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{num_pages} pages: {options.output / 'index.html'}")
    return 0


def publish(results: Path, output: Path, built: datetime, accepted: Path = _ACCEPTED) -> int:
    """Build the site of the folder `results` at `output` and return the number of pages.

    Raises:
        PublishError: `output` holds something that is no site, or overlaps with the results.
        UsageError: the file of accepted regressions has a mistake.
    """
    _check(results, output)
    site = read_site(results, built, accepted)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as temporary:
        new = Path(temporary) / "new"
        num_pages = _build(site, results, new)
        new.chmod(0o755)
        _swap(new, output, Path(temporary) / "old")
    return num_pages


def _check(results: Path, output: Path) -> None:
    if output.exists() and not (output / _MARK).is_file() and (output.is_file() or any(output.iterdir())):
        raise PublishError(f"{output} is no site of ours and would be replaced; give --output a new folder.")
    if results.resolve().is_relative_to(output.resolve()):
        raise PublishError(f"--output {output} holds the results themselves; give it a folder of its own.")


def _swap(new: Path, output: Path, old: Path) -> None:
    """Put `new` in the place of `output`; if that fails, the old site is back."""
    if output.exists():
        output.rename(old)
    try:
        new.rename(output)
    except OSError:
        if old.exists():
            old.rename(output)
        raise


def _build(site: Site, results: Path, folder: Path) -> int:
    files = _copy_files(site, results, folder)
    _copy_assets(folder / "assets")
    num_pages = 0
    for path, text in render_pages(site, files):
        _write(folder / path, text)
        num_pages += 1
    for path, text in data_files(site).items():
        _write(folder / path, text)
    measured, _ = last_measurement(site)
    num_open = len({change.benchmark.name for change in site.open}) if site.archive.commits else None
    for name, text in badges(num_open, day(measured) if measured else "", site.headlines).items():
        _write(folder / "badges" / name, text)
    _write(
        folder / "feed.xml",
        feed("Myriad, measured", newest_changes(site), _pages_of(site), site.measurements.runs, site.built),
    )
    _write(folder / _MARK, json.dumps({"built_by": "ci.site.build", "built": site.built.isoformat()}) + "\n")
    return num_pages


def _pages_of(site: Site) -> dict[str, str]:
    return {name: f"b/{slug}.html" for name, slug in site.slugs.items()}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _copy_assets(folder: Path) -> None:
    folder.mkdir()
    for name in _ASSETS:
        shutil.copyfile(TEMPLATES / name, folder / name)
    for name in _VENDORED:
        shutil.copyfile(TEMPLATES / "vendor" / "uplot" / name, folder / name)
    shutil.copyfile(TEMPLATES / "vendor" / "uplot" / "LICENSE", folder / "uPlot.LICENSE")


def _copy_files(site: Site, results: Path, folder: Path) -> Files:
    """Copy the raw files, the plots and asv's own pages; return where they are."""
    raw = folder / "data" / "raw"
    raw.mkdir(parents=True)
    published = {path.name: _copy_raw(path, raw) for path in site.measurements.files}
    plots = []
    found = {path.name: path for place in ("published", "plots") for path in sorted((results / place).glob("*.png"))}
    for name, path in found.items():
        (folder / "plots").mkdir(exist_ok=True)
        shutil.copyfile(path, folder / "plots" / name)
        plots.append(f"plots/{name}")
    has_asv_pages = (results / "html" / "index.html").is_file()
    if has_asv_pages:
        shutil.copytree(results / "html", folder / "history")
    return Files(published, plots, has_asv_pages)


def _copy_raw(path: Path, folder: Path) -> tuple[str, int]:
    if path.stat().st_size <= _MAX_PLAIN_BYTES:
        target = folder / path.name
        shutil.copyfile(path, target)
    else:
        target = folder / f"{path.name}.gz"
        target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    return target.name, target.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
