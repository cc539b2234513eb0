"""Pages, tests and comments leave the code the same; templates, links, imported tests don't."""

import os
import shutil
from pathlib import Path

import pytest

from perfgate.source.changes import digest, framework, is_same_code, only_pages_differ

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
    ("name", "text", "same_code", "only_pages", "same_framework"),
    [
        ("README.md", "# Another\n", True, True, True),
        ("docs/new.rst", "New\n", True, True, True),
        ("docs/conf.py", "A = 1\n", True, True, True),
        ("gate.toml", "[timing]\n", True, False, True),
        (".github/workflows/gate.yml", "on: push\n", True, False, True),
        ("tests/test_pkg.py", "import pkg, os\n", True, False, True),
        ("tests/test_new.py", "import pkg\n", True, False, True),
        ("tests/data.json", "[]\n", True, False, False),
        ("benchmarks/suite.py", "import os\n", True, False, False),
        ("benchmarks/new.py", "import os\n", True, False, False),
        ("pkg/__init__.py", DOUBLED, True, False, True),
        ("pkg/__init__.py", "def twice(x):\n    return x + x\n", False, False, True),
        ("pkg/__init__.py", "def twice(x:\n", False, False, True),
        ("pkg/template.md", "# {title}!\n", False, False, False),
        ("pkg/new.py", "", False, False, False),
        ("pkg/data.toml", "a = 1\n", False, False, False),
        ("pkg/fast.so", "1\n", False, False, False),
        ("setup.cfg", "[metadata]\n", False, False, False),
        ("poetry.lock", "numpy\n", False, False, False),
        ("conftest.py", "", False, False, False),
    ],
)
def test_what_differs_decides(sides, name, text, same_code, only_pages, same_framework):
    """The framework is all that may decide what benchmarks import, but the text of modules."""

    def found(base, head):
        return (
            is_same_code(base, head, SUITE),
            only_pages_differ(base, head, SUITE),
            framework(base, SUITE) == framework(head, SUITE),
        )

    base, head = sides
    assert found(base, head) == (True, False, True)  # nothing differs, not even pages
    (head / name).parent.mkdir(exist_ok=True, parents=True)
    (head / name).write_text(text)
    assert found(base, head) == (same_code, only_pages, same_framework)
    assert is_same_code(head, base, SUITE) is same_code
    (head / "docs").mkdir(exist_ok=True)
    (head / "docs" / "page.md").write_text("a page\n")
    assert only_pages_differ(base, head, SUITE) is only_pages


def test_a_suite_below_docs_is_no_documentation(sides):
    base, head = sides
    (head / "docs" / "speed").mkdir(parents=True)
    (head / "docs" / "speed" / "suite.py").write_text("import pkg\n")
    assert only_pages_differ(base, head, Path("docs")) is False


def test_a_link_that_points_elsewhere_differs(sides):
    base, head = sides
    (head / "data").unlink()
    (head / "data").symlink_to("tests")
    assert not is_same_code(base, head, SUITE)
    assert framework(base, SUITE) != framework(head, SUITE)


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("benchmarks/suite.py", "import os, tests.test_pkg\n", False),
        ("benchmarks/suite.py", "FILE = 'tests/data.json'\n", False),
        ("benchmarks/suite.py", "# The tests say why.\nimport numpy.testing\n", True),
        ("pkg/__init__.py", "from tests import test_pkg\n", False),
        ("pkg/__init__.py", "FOLDER = 'tests'\n", True),
        ("benchmarks/suite.py", "from tests.test_pkg import pkg\n", False),
    ],
)
def test_tests_are_code_where_the_suite_names_or_anything_imports_them(sides, file, text, same):
    base, head = sides
    for side in sides:
        (side / file).write_text(text)
    (head / "tests" / "test_pkg.py").write_text("import os\n")
    assert is_same_code(base, head, SUITE) is same


def test_what_is_not_a_file_is_not_read(tmp_path):
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    assert {digest(tmp_path / name) for name in ("endless", "pipe", "none")} == {""}
