"""axe-core's rules on every kind of page, in Chromium, on a light and on a dark page."""

import os
import shutil
import subprocess

import pytest

AXE = "axe-core@4.14.1"


@pytest.fixture(scope="session")
def axe(pytestconfig) -> str:
    """axe-core's script, which npm fetches once into pytest's cache."""
    folder = pytestconfig.cache.mkdir("axe-core")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    program = shutil.which("npm")
    message = "npm is missing: apt install npm"
    if program and not script.is_file():
        command = [program, "install", "--prefix", str(folder), "--no-audit", "--no-fund", AXE]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        message = f"{' '.join(command)}: {ended.stderr[-300:]}"
    if script.is_file():
        return script.read_text(encoding="utf-8")
    if os.environ.get("MYRIAD_CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_page_breaks_a_rule_of_axe(site, new_visit, axe, width, scheme):
    visit = new_visit(viewport={"width": width, "height": 844}, color_scheme=scheme)
    pages = {page.name: "" for page in site.glob("*.html")}
    pages["comparison.html"] = "#of-comparison_cpu-gymnax-cartpole-10k"
    pages |= {f"b/{page.name}": "" for page in sorted((site / "b").glob("*.html"))[::25]}
    assert len(pages) > 10
    for page, fragment in pages.items():
        visit.open(site / page, fragment)
        assert broken_rules(visit.page, axe) == [], page


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_page_of_the_documentation_breaks_a_rule_of_axe(pages, new_visit, axe, width, scheme):
    visit = new_visit(viewport={"width": width, "height": 844}, color_scheme=scheme)
    for page in pages.rglob("*.html"):
        visit.open(page)
        assert broken_rules(visit.page, axe) == [], page


def broken_rules(page, axe: str) -> list:
    page.evaluate(axe)
    # preload would fetch the style sheets again, which a file may not
    return page.evaluate(
        """async () => {
          const {violations} = await axe.run(document, {preload: false});
          return violations.flatMap(({id, nodes}) =>
            nodes.map(({html, failureSummary}) => [id, html.slice(0, 200), failureSummary]));
        }"""
    )
