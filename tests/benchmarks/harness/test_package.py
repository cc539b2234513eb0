"""Suites find what they take from Myriad's inside, whatever a commit calls it."""

import sys

import pytest

from benchmarks.harness import package


@pytest.fixture
def young_and_old(tmp_path, monkeypatch):
    """Put a package whose names have moved on the path, and a module that can't be imported."""
    folder = tmp_path / "moved_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "old.py").write_text("answer = 42\n_hidden = 7\n")
    (folder / "broken.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    former = {
        "moved_package.new": ("moved_package.older", "moved_package.old"),
        "moved_package.old:shown": ("moved_package.old:_hidden",),
    }
    monkeypatch.setattr(package, "_FORMER", former)
    yield
    for name in [name for name in sys.modules if name.startswith("moved_package")]:
        del sys.modules[name]


@pytest.mark.usefixtures("young_and_old")
def test_a_name_is_found_where_it_is_or_where_it_was():
    assert package.find("moved_package.old:answer") == 42
    assert package.find("moved_package.new:answer") == 42
    assert package.find("moved_package.old:shown") == 7


@pytest.mark.usefixtures("young_and_old")
@pytest.mark.parametrize("target", ["moved_package.new:nothing", "moved_package.nowhere:answer"])
def test_a_name_that_a_commit_lacks_has_asv_skip_the_benchmark(target):
    with pytest.raises(NotImplementedError, match="this commit of Myriad has no"):
        package.find(target)


@pytest.mark.usefixtures("young_and_old")
def test_a_module_that_lacks_a_dependency_is_an_error_and_no_skip():
    with pytest.raises(ModuleNotFoundError, match="a_package_that_nobody_has"):
        package.find("moved_package.broken:answer")


def test_every_name_that_suites_look_for_is_there_today():
    for target in package._FORMER:
        module, _, name = target.partition(":")
        assert package.find(f"{module}:{name or '__name__'}")
