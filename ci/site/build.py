"""Build the static site of a repository's benchmark results.

    python -m ci.site.build [--results results] [--output site]

Everything that was not measured is shown as `not measured yet`. The new site is built next to the
old one and then replaces it, so a reader never finds a part of one. You can open it from a folder
or host it under any path. No page loads anything from another host.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ci.site.data_files import data_files
from ci.site.measurements import PUBLISHED
from ci.site.model import Site, read_site
from ci.site.pages import TEMPLATES, render_pages
from perfgate.errors import UsageError

_MARK = "site.json"  # a folder that holds this file is a site, which may be replaced
_ASSETS = (
    *("style.css", "site.js", "charts.js", "scaling.js", "history.js", "compare.js"),
    *(f"vendor/uplot/{name}" for name in ("uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE")),
)
_ACCEPTED = Path("ci/accepted.toml")
_DOCS = Path("build/docs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Bad input prints one sentence and gives exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.site.build", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--repository", type=Path, default=Path(), help="folder of the repository (default: .)"
    )
    text = "folder to write the site to (default: %(default)s)"
    parser.add_argument("--output", type=Path, default=Path("site"), help=text)
    inside = {
        "results": (Path("results"), "folder of results to read"),
        "docs": (_DOCS, "folder of built documentation, to publish under docs if it exists"),
        "accepted": (_ACCEPTED, "file of accepted regressions"),
    }
    for name, (place, what) in inside.items():
        parser.add_argument(f"--{name}", type=Path, help=f"{what} (default: REPOSITORY/{place})")
    options = parser.parse_args(argv)
    results, docs, accepted = (
        getattr(options, name) or options.repository / place for name, (place, _) in inside.items()
    )
    try:
        for name in ("repository", *inside):
            given: Path | None = getattr(options, name)
            if given is not None and not given.exists():
                raise UsageError(f"--{name} {given} does not exist.")  # noqa: TRY301
        num_pages = publish(
            results,
            options.output,
            datetime.now(UTC),
            accepted=accepted,
            repository=options.repository,
            docs=docs,
        )
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{num_pages} pages: {options.output / 'index.html'}")
    return 0


def publish(
    results: Path,
    output: Path,
    built: datetime,
    *,
    accepted: Path | None = None,
    repository: Path = Path(),
    docs: Path | None = None,
) -> int:
    """Build the site of the folder `results` at `output` and return the number of pages.

    Args:
        results: the folder to read.
        output: the folder to write; a site that is there is replaced.
        built: the time that the pages give as theirs.
        accepted: the file of accepted regressions, by default that of the repository.
        repository: the folder of the repository that was measured.
        docs: a folder of built documentation, which the site publishes in its folder `docs`.

    Raises:
        UsageError: `output` holds something else than a site, contains the results, or can't be
            written, or a file of the repository has a mistake.
    """
    _check(results, output)
    site = read_site(results, built, accepted or repository / _ACCEPTED, repository)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        # The new site is built beside the output, since a rename can't cross file systems.
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as temporary:
            new = Path(temporary) / "new"
            num_pages = _build(site, results, new, docs)
            new.chmod(0o755)
            _swap(new, output, Path(temporary) / "old")
    except OSError as error:
        raise UsageError(f"{output} can't be written: {error.strerror or error}.") from error
    return num_pages


def _check(results: Path, output: Path) -> None:
    is_free = not output.exists() or (output.is_dir() and not any(output.iterdir()))
    if not is_free and not (output / _MARK).is_file():
        raise UsageError(
            f"{output} was not made by this command and would be replaced; "
            "give --output a new folder."
        )
    if results.resolve().is_relative_to(output.resolve()):
        raise UsageError(f"--output {output} contains the results; give it a folder of its own.")


def _swap(new: Path, output: Path, old: Path) -> None:
    """Put `new` in the place of `output`, or the old site back if that fails."""
    if output.exists():
        output.rename(old)
    try:
        new.rename(output)
    except OSError:
        if old.exists():
            old.rename(output)
        raise


def _build(site: Site, results: Path, folder: Path, docs: Path | None) -> int:
    raw = folder / "data" / "raw"
    raw.mkdir(parents=True)
    for path in (*site.own.files, *site.measurements.files):
        shutil.copyfile(path, raw / path.name)
    # Plots of own runs never replace published ones.
    places = (PUBLISHED,) if site.own.rows else (PUBLISHED, "plots")
    found = [path for place in places for path in sorted((results / place).glob("*.png"))]
    plots = {path.name: path for path in found if path.is_file()}
    (folder / "plots").mkdir()
    for name, path in plots.items():
        shutil.copyfile(path, folder / "plots" / name)
    has_asv_pages = (results / "html" / "index.html").is_file()
    if has_asv_pages:
        shutil.copytree(results / "html", folder / "history")
    guides = {}
    if docs and (docs / "index.html").is_file():
        guides = {page.stem: f"docs/{page.name}" for page in docs.glob("*.html")}
        # Sphinx's record of its build is only for its next run.
        shutil.copytree(docs, folder / "docs", ignore=shutil.ignore_patterns(".buildinfo"))
    (folder / "assets").mkdir()
    for name in _ASSETS:
        shutil.copyfile(TEMPLATES / name, folder / "assets" / Path(name).name)
    pages = dict(
        render_pages(
            site,
            sizes={path.name: path.stat().st_size for path in raw.iterdir()},
            plots=[f"plots/{name}" for name in plots],
            has_asv_pages=has_asv_pages,
            guides=guides,
        )
    )
    mark = {"built_by": "ci.site.build", "built": site.built.isoformat()}
    for name, text in (pages | data_files(site) | {_MARK: json.dumps(mark) + "\n"}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return len(pages)


if __name__ == "__main__":
    sys.exit(main())
