"""Every code block of README.md and docs/ runs as printed and prints what stands beneath it."""

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


def script_and_output(page: Path) -> tuple[str, str]:
    """Join the page's Python blocks into one script, as a reader would paste them, and its outputs into one text."""
    found = blocks(page)
    script = "\n".join(code for language, code in found if language == "python")
    return script, "".join(code for language, code in found if language == "text")


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "```python" in page.read_text()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_python_of_a_page_prints_what_it_shows(page, tmp_path):
    script, expected = script_and_output(page)
    path = tmp_path / "page.py"
    path.write_text(script)
    places = {
        "MYRIAD_COMPILATION_CACHE": str(tmp_path / "cache"),
        "MYRIAD_HOME": str(tmp_path / "home"),
    }
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | places
    run = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    assert doctest.OutputChecker().check_output(expected, run.stdout, doctest.ELLIPSIS), run.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_make_target_that_a_page_names_exists(page):
    if shutil.which("make") is None:
        pytest.skip("make is missing: apt install make")
    targets = set(re.findall(r"^(?:\$ )?make ([a-z-]+)", page.read_text(), re.MULTILINE))
    for target in targets:
        listed = re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert listed, f"make {target} is not in the Makefile"
