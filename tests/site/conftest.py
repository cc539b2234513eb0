"""The made-up site and the browser that the site's tests share."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from published_results import PUBLISHED, ROOT, build

from made_up_results import history, write_asv
from tests.child_processes import lacks, python

LAST_RESORT_MS = 1_200_000  # a limit for what hangs: no test may depend on how busy the machine is


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The site of our published results, a run of our own, and a history with three setups.

    Its repository shows libraries as ours does, and has no commits.
    """
    folder = tmp_path_factory.mktemp("site with a space")
    (folder / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "libraries.toml", folder / "benchmarks")
    without_history = shutil.ignore_patterns("asv")
    shutil.copytree(PUBLISHED, folder / "results" / "published", ignore=without_history)
    write_asv(
        folder / "results" / "asv",
        history(6, 5, 150),
        workloads=tuple(f"cartpole-{place}" for place in range(5)),
        versions=["0.10.1"] * 50 + ["0.10.2"] * 100,
        machines=["runner"] * 100 + ["runner-two"] * 50,
    )
    (folder / "results" / "csv").mkdir()
    for ending in (".csv", "_samples.json"):
        mine = folder / "results" / "csv" / f"mine{ending}"
        shutil.copyfile(PUBLISHED / f"throughput_snake_cpu{ending}", mine)
    return build(folder)


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """The folder of the built documentation. Every warning of Sphinx is an error."""
    folder = tmp_path_factory.mktemp("documentation")
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"\$\(RUN\) (sphinx .*?)--doctree-dir", makefile, re.DOTALL)
    words = recipe[1].replace("\\\n", " ").split()
    folders = ["--doctree-dir", folder / "doctrees", "docs", folder / "html"]
    python("-m", *words, *folders, "-t", "results", cwd=ROOT)
    return folder / "html"


# playwright runs an event loop: after its own module it would break tests that start one
@pytest.fixture(scope="module")
def browser() -> Iterator:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        lacks("chromium is missing: apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # its sandbox refuses to run as root
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(
            executable_path=program, args=arguments, timeout=LAST_RESORT_MS
        )
        yield running
        running.close()


class Visit:
    """A page that is open, with all that went wrong on it and all that it asked for."""

    def __init__(self, browser, **options):
        viewport = {"width": 1280, "height": 900}
        self.context = browser.new_context(**({"viewport": viewport} | options))
        self.context.set_default_timeout(LAST_RESORT_MS)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("requestfailed", self._fail)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _listen(self, message) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def _fail(self, request) -> None:
        # the browser gives up what is still under way when a test leaves a page
        if request.failure != "net::ERR_ABORTED":
            self.errors.append(request.url)

    def open(self, path: Path, fragment: str = "") -> "Visit":
        self.page.goto("about:blank")  # a new fragment alone would not load the page again
        self.page.goto(path.as_uri() + fragment)
        return self

    def drawn(self) -> "Visit":
        self.page.wait_for_function("performance.getEntriesByName('chart-drawn').length > 0")
        return self

    def inked(self, colour: str) -> int:
        """Count the pixels of the chart that have a colour, #RRGGBB."""
        return self.page.evaluate(
            """(colour) => {
              const canvas = document.querySelector('.plot canvas');
              const copy = new OffscreenCanvas(canvas.width, canvas.height);
              const context = copy.getContext('2d', {willReadFrequently: true});
              context.drawImage(canvas, 0, 0);
              const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
              const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
              let count = 0;
              for (let at = 0; at < data.length; at += 4) {
                const same = data[at] === r && data[at + 1] === g && data[at + 2] === b;
                count += same && data[at + 3] === 255;
              }
              return count;
            }""",
            colour,
        )


@pytest.fixture
def new_visit(browser) -> Iterator[Callable[..., Visit]]:
    """Opens visits with a browser context's options. Afterwards nothing may have gone wrong."""
    visits: list[Visit] = []

    def new(**options) -> Visit:
        visits.append(Visit(browser, **options))
        return visits[-1]

    yield new
    for visit in visits:
        visit.context.close()
        assert visit.errors == []


@pytest.fixture
def visit(new_visit) -> Visit:
    return new_visit()
