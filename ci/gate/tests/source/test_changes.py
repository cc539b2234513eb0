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


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("README.md", "# Another\n", True),
        ("docs/new.rst", "New\n", True),
        ("tests/test_pkg.py", "import pkg, os\n", True),
        ("benchmarks/suite.py", "import os\n", True),
        ("pkg/__init__.py", "# Doubles.\ndef twice(x):\n\n    return (2 * x)\n", True),
        ("pkg/__init__.py", "def twice(x):\n    return x + x\n", False),
        ("pkg/__init__.py", "def twice(x:\n", False),
        ("pkg/template.md", "# {title}!\n", False),
        ("pkg/new.py", "", False),
        ("setup.cfg", "[metadata]\n", False),
    ],
)
def test_what_differs_decides(sides, name, text, same):
    base, head = sides
    assert is_same_code(base, head, SUITE)
    (head / name).parent.mkdir(exist_ok=True)
    (head / name).write_text(text)
    assert is_same_code(base, head, SUITE) is same
    assert is_same_code(head, base, SUITE) is same


@pytest.mark.parametrize(
    ("name", "only_pages"),
    [
        ("README.md", True),
        ("docs/new.rst", True),
        ("docs/conf.py", True),
        ("pkg/template.md", False),
        ("pkg/__init__.py", False),
        ("tests/test_pkg.py", False),
        ("benchmarks/suite.py", False),
        ("gate.toml", False),
        (".github/workflows/gate.yml", False),
    ],
)
def test_documentation_alone_is_told_from_a_comment_a_test_and_the_suite(sides, name, only_pages):
    base, head = sides
    assert not only_pages_differ(base, head, SUITE)  # nothing differs
    (head / name).parent.mkdir(exist_ok=True, parents=True)
    with (head / name).open("a") as file:
        file.write("# more\n")
    assert only_pages_differ(base, head, SUITE) is only_pages
    (head / "docs").mkdir(exist_ok=True)
    (head / "docs" / "page.md").write_text("a page\n")
    assert only_pages_differ(base, head, SUITE) is only_pages


def test_a_suite_below_docs_is_no_documentation(sides):
    base, head = sides
    (head / "docs" / "speed").mkdir(parents=True)
    (head / "docs" / "speed" / "suite.py").write_text("import pkg\n")
    assert only_pages_differ(base, head, Path("docs")) is False


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("pkg/__init__.py", True),
        ("pkg/new.py", False),
        ("pkg/data.toml", False),
        ("pkg/fast.so", False),
        ("conftest.py", False),
        ("benchmarks/new.py", False),
        ("tests/test_new.py", True),
        ("tests/data.json", False),
        ("docs/page.md", True),
        ("gate.toml", True),
        (".github/workflows/gate.yml", True),
    ],
)
def test_the_framework_is_all_but_the_text_of_python_files(sides, name, same):
    base, head = sides
    assert framework(base, SUITE) == framework(head, SUITE)
    (head / name).parent.mkdir(exist_ok=True, parents=True)
    with (head / name).open("a") as file:
        file.write("VALUE = 1\n")
    assert (framework(base, SUITE) == framework(head, SUITE)) is same


def test_the_framework_tells_where_a_link_points(sides):
    base, head = sides
    (head / "data").unlink()
    (head / "data").symlink_to("tests")
    assert framework(base, SUITE) != framework(head, SUITE)


def test_a_link_that_points_elsewhere_differs(sides):
    base, head = sides
    (head / "data").unlink()
    (head / "data").symlink_to("tests")
    assert not is_same_code(base, head, SUITE)


def test_tests_that_the_suite_imports_are_code(sides):
    base, head = sides
    (head / "tests" / "test_pkg.py").write_text("import os\n")
    assert is_same_code(base, head, SUITE)
    (head / "benchmarks" / "suite.py").write_text("from tests.test_pkg import pkg\n")
    assert not is_same_code(base, head, SUITE)


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("benchmarks/suite.py", "import os, tests.test_pkg\n", False),
        ("benchmarks/suite.py", "FILE = 'tests/data.json'\n", False),
        ("benchmarks/suite.py", "# The tests say why.\nimport numpy.testing\n", True),
        ("pkg/__init__.py", "from tests import test_pkg\n", False),
        ("pkg/__init__.py", "FOLDER = 'tests'\n", True),
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
