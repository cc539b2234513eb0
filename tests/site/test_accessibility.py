"""axe-core's rules on every kind of page, in Chromium, on a light and on a dark page."""

import re
import shutil
import subprocess

import pytest

from tests.child_processes import lacks

AXE = "axe-core@4.14.1"
# preload would fetch the style sheets again, which a file may not
BROKEN_RULES = """async () => {
  const {violations} = await axe.run(document, {preload: false});
  return violations.flatMap(({id, nodes}) =>
    nodes.map(({html, failureSummary}) => [id, html.slice(0, 200), failureSummary]));
}"""


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
    if not script.is_file():
        lacks(message)
    return script.read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("of", ["results", "documentation"])
def test_no_page_breaks_a_rule_of_axe(request, new_visit, axe, of, width, scheme):
    if of == "documentation":
        opened = dict.fromkeys(request.getfixturevalue("pages").rglob("*.html"), "")
    else:
        site = request.getfixturevalue("site")
        every = [*site.glob("*.html"), *sorted((site / "b").glob("*.html"))[::25]]
        opened = dict.fromkeys(every, "")
        comparison = (site / "comparison.html").read_text()
        opened[site / "comparison.html"] = re.search(r"#of-[^\"]+-gymnax-10000-\w+", comparison)[0]
    assert len(opened) > 10
    visit = new_visit(viewport={"width": width, "height": 844}, color_scheme=scheme)
    for page, fragment in opened.items():
        visit.open(page, fragment)
        visit.page.evaluate(axe)
        assert visit.page.evaluate(BROKEN_RULES) == [], page
