"""The documentation as Sphinx builds it: what its pages show, and what its search finds first."""

import inspect
import re
from pathlib import Path

import pytest

import myriad

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
SIGNATURE = re.compile(r'<dt class="sig sig-object py" id="([^"]+)">(.*?)</dt>', re.DOTALL)


def test_every_page_is_built_and_leads_to_no_raw_markdown(pages):
    for page in (ROOT / "docs").rglob("*.*"):
        if page.suffix in (".md", ".ipynb"):
            built = pages / page.relative_to(ROOT / "docs").with_suffix(".html")
            assert not re.search(r'href="[^":]*\.md[#"]', built.read_text()), page
    for page in pages.rglob("*.html"):  # nor an address in memory, or the inside of a range
        found = re.findall(r"\b0x[0-9a-f]{6,}|Range\(least|&lt;function", page.read_text())
        assert not found, page


def test_the_reference_shows_every_public_name_in_a_short_signature_with_an_example(pages):
    of_classes = sorted((pages / "api").glob("*.html"))
    assert len(of_classes) > 20
    every = [pages / "reference" / "api.html", *of_classes]
    text = "".join(page.read_text() for page in every)
    assert not re.search(r'(?:src|link [^>]*href)="https?:', text)
    found = {name: re.sub(r"<[^>]+>", "", shown) for name, shown in SIGNATURE.findall(text)}
    assert {f"myriad.{name}" for name in myriad.__all__} <= found.keys()
    for name, shown in found.items():
        assert len(shown) < 500, shown
        assert "Annotated" not in shown
        assert not re.search(r"\._", name)
    for name in myriad.__all__:
        assert ">>>" in inspect.getdoc(getattr(myriad, name)), name


def test_a_page_says_how_old_its_figures_are(pages):
    text = (pages / "gpu.html").read_text()
    assert re.search(r"2026-11-26, [\d,]+ commits to the code ago", text)
