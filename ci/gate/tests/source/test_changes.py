"""Pages and comments leave the code the same; templates, links and data don't."""

import shutil
from pathlib import Path, PurePosixPath

import pytest

from perfgate.source.changes import can_move, changed_code, nothing_matters

SUITE = Path("benchmarks")
FILES = {
    "pkg/__init__.py": "def twice(x):\n    return 2 * x\n",
    "pkg/template.md": "# {title}\n",
    "benchmarks/suite.py": "import pkg\n",
    "tests/test_pkg.py": "import pkg\n",
    "README.md": "# Package\n",
}


@pytest.fixture
def sides(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "base" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "base" / "data").symlink_to("pkg")
    shutil.copytree(tmp_path / "base", tmp_path / "head", symlinks=True)
    return tmp_path / "base", tmp_path / "head"


DOUBLED = "# Doubles.\ndef twice(x):\n\n    return (2 * x)\n"


@pytest.mark.parametrize(
    ("name", "text", "same_code", "only_pages"),
    [
        ("README.md", "# Another\n", True, True),
        ("accepted.toml", "", True, False),
        ("smallsum.egg-info/x", "", True, False),
        (".github/workflows/gate.yml", "on: push\n", True, False),
        ("tests/test_pkg.py", "import pkg, os\n", False, False),
        ("benchmarks/suite.py", "import os\n", True, False),
        ("pkg/__init__.py", DOUBLED, True, True),
        ("pkg/__init__.py", "def twice(x):\n    return x + x\n", False, False),
        ("pkg/__init__.py", "def twice(x:\n", False, False),
        ("pkg/template.md", "# {title}!\n", False, False),
        ("pkg/new.py", "", False, False),
        ("setup.cfg", "[metadata]\n", False, False),
    ],
)
def test_what_differs_decides(sides, name, text, same_code, only_pages):
    base, head = sides
    assert not changed_code(base, head, SUITE)  # nothing differs, not even pages
    assert nothing_matters(base, head, SUITE) == "base and head are the same tree"
    (head / name).parent.mkdir(exist_ok=True, parents=True)
    (head / name).write_text(text)
    expected = [] if same_code else [PurePosixPath(name)]
    assert changed_code(base, head, SUITE) == changed_code(head, base, SUITE) == expected
    assert bool(nothing_matters(base, head, SUITE)) is only_pages
    (head / "docs").mkdir(exist_ok=True)
    (head / "docs" / "page.md").write_text("a page\n")
    assert bool(nothing_matters(base, head, SUITE)) is only_pages


def test_a_suite_below_docs_is_no_documentation_and_a_link_that_points_elsewhere_differs(sides):
    base, head = sides
    (head / "docs" / "speed").mkdir(parents=True)
    (head / "docs" / "speed" / "suite.py").write_text("import pkg\n")
    assert not nothing_matters(base, head, Path("docs"))
    (head / "data").unlink()
    (head / "data").symlink_to("tests")
    assert changed_code(base, head, SUITE) == [PurePosixPath("data")]


MOVE = ("pkg/core.py", "pkg/testing/__init__.py", "pkg/template.md", "pyproject.toml")
MOVE += ("requirements-dev.txt", "uv.lock")
STAY = (".github/workflows/ci.yml", ".circleci/config.yml", ".pre-commit-config.yaml")
STAY += ("docs/requirements.txt", "changelog/1.bugfix.rst", "conftest.py", "pkg/core_test.py")
STAY += ("pkg/tests/test_core.py",)


def test_a_commit_of_pages_services_or_tests_moves_no_history():
    assert tuple(name for name in MOVE + STAY if can_move(PurePosixPath(name))) == MOVE
