"""The two checkouts: the suite's configuration, the working tree, and the environments."""

import pytest

from gate_repository import Repository
from perfgate.errors import PreparationError, UsageError
from perfgate.source.asv_config import read_config
from perfgate.source.environments import build_environment
from perfgate.source.git import WORKING_TREE

ALLOWED = ("-c", "protocol.file.allow=always")  # git clones no submodule from a folder otherwise
SUBMODULE = "deps/inner one"


def test_the_working_tree_is_copied_with_new_files_and_without_ignored_ones(repository):
    repository.write(".asv/ignored.txt", "old")
    repository.git("tag", "v1.0")
    commit = repository.git("rev-parse", "HEAD")
    with repository.sides() as sides:
        assert sides.head.commit == sides.base.commit == commit
    repository.write("new.txt", "new")
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 5")
    with repository.sides() as sides:
        assert (sides.head.root / "new.txt").is_file()
        assert not (sides.head.root / ".asv").exists()
        assert "REPEATS = 5" in (sides.head.root / "smallsum/__init__.py").read_text()
        assert "REPEATS = 1" in (sides.base.root / "smallsum/__init__.py").read_text()
        assert not (sides.base.root / "new.txt").exists()
        assert sides.head.commit == f"{commit[:12]} with local changes"
        head = Repository(sides.head.root)  # of which a build may ask git for the version
        assert head.git("describe", "--tags") == "v1.0"
        assert head.git("status", "--porcelain").endswith("?? new.txt")
        folder = sides.folder
    assert not folder.exists()


@pytest.mark.parametrize("mark", ["my env/pyvenv.cfg", "my env/conda-meta/history"])
def test_an_environment_in_the_working_tree_is_no_change_and_no_build(repository, mark):
    # Python's own venv writes no .gitignore before 3.13, but most repositories ignore *.so.
    repository.commit({".gitignore": "*.so\n"})
    repository.write(mark, "")
    repository.write("my env/lib/python3.11/site-packages/numpy/__init__.py", "")
    repository.write("my env/lib/python3.11/site-packages/numpy/core.so", "")
    repository.write(".asv/gate/gate.md", "an earlier report")
    repository.write("new.txt", "new")
    with repository.sides("HEAD") as sides:
        assert (sides.head.root / "new.txt").is_file()
        assert not (sides.head.root / "my env").exists()
        assert not (sides.head.root / ".asv").exists()
        assert sides.environments.startswith("one, shared")


def test_commits_without_a_common_ancestor_are_refused(repository):
    repository.git("switch", "--quiet", "--orphan", "other")
    repository.commit({"asv.conf.json": "{}"})
    with pytest.raises(UsageError, match="no common ancestor"):
        repository.sides(head="other").__enter__()


PROJECT = """[build-system]
build-backend = "setuptools.build_meta"
[project]
name = "smallsum"
version = "0.2"
dependencies = ["numpy"]
"""


@pytest.mark.parametrize(
    ("file", "text", "environments", "notes"),
    [
        ("smallsum/__init__.py", "REPEATS = 2", "one, shared", 0),
        ("pyproject.toml", PROJECT, "one, shared", 0),  # another version
        ("pyproject.toml", PROJECT.replace("numpy", "scipy"), "dependencies changed", 0),
        ("asv.conf.json", '{"matrix": {"numpy": ["2"]}}', "asv's matrix changed", 0),
        ("Cargo.toml", "", "the package is compiled", 0),
        ("uv.lock", "version = 1\n", "uv.lock changed", 0),
        ("requirements/base.txt", "numpy>=1", "requirements/base.txt changed", 0),  # in setup.cfg
        ("requirements/test.txt", "numpy>=1", "one, shared", 1),
        # setuptools compiles only the sources that its settings name, such as fast.pyx
        ("pyproject.toml", f"{PROJECT}[tool.setuptools]\next-modules = [{{}}]", "is compiled", 0),
        ("pyproject.toml", PROJECT.replace("setuptools", "hatchling"), "is compiled", 0),
    ],
)
def test_two_environments_are_built_where_versions_differ_and_what_is_not_followed_is_named(
    repository, fake_uv, file, text, environments, notes
):
    setup = "[options]\ninstall_requires = file: requirements/base.txt\n"
    pyproject = PROJECT.replace("0.2", "0.1")
    repository.commit({"setup.cfg": setup, "smallsum/fast.pyx": "", "pyproject.toml": pyproject})
    repository.write(file, text)
    with repository.sides() as sides:
        assert environments in sides.environments
        note = f"{file} changed, but the gate did not follow it."
        assert list(sides.notes) == [note] * notes
        are_two = not environments.startswith("one, shared")
        assert (sides.base.python != sides.head.python) is are_two
    called = fake_uv.read_text() if are_two else ""
    assert all((f"/{side} asv_runner pympler" in called) is are_two for side in ("base", "head"))
    # of the side that has a lock, its versions are taken
    assert called.count("export --quiet --frozen") == (file == "uv.lock")


def test_an_environment_holds_constraints_extras_and_the_first_versions_of_the_matrix(
    tmp_path, fake_uv
):
    matrix = '{"req": {"numpy": ["2.1", "2.0"], "six": [""], "old": [null]}}'
    install = '["python -m pip install {wheel_file}[fast,plots]"]'
    file = tmp_path / "asv.conf.json"
    file.write_text(f'{{"install_command": {install}, "matrix": {matrix}}}')
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "constraints.txt").write_text("numpy<3\n")
    config = read_config(file, tmp_path)
    assert config.extras == ("fast", "plots")
    build_environment(tmp_path / "env", tmp_path / "package", config)
    command = fake_uv.read_text().splitlines()[1]
    held = f"--constraint {tmp_path}/package/constraints.txt {tmp_path}/package[fast,plots]"
    assert f"{held} asv_runner" in command
    assert command.endswith("asv_runner pympler numpy==2.1 six")
    fake_uv.with_name("uv").write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    with pytest.raises(PreparationError, match="could not be built:\nno network"):
        build_environment(tmp_path / "another", tmp_path / "package", config)


@pytest.fixture
def with_submodule(repository, tmp_path):
    """The project with the submodule `deps/inner one`, which has the submodule `deepest`."""
    deepest, inner = (Repository(tmp_path / name) for name in ("deepest", "inner"))
    for made in (deepest, inner):
        made.root.mkdir()
        made.git("init", "--quiet", "--initial-branch", "main")
        made.commit({"value.py": "VALUE = 1\n"})
    for outer, added, path in ((inner, deepest, "deepest"), (repository, inner, SUBMODULE)):
        outer.git(*ALLOWED, "submodule", "--quiet", "add", str(added.root), path)
        outer.commit()
    repository.git(*ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
    return repository


def test_both_sides_have_the_submodules_of_their_own_commit(with_submodule):
    repository = with_submodule
    inner = Repository(repository.root / SUBMODULE)
    inner.commit({"value.py": "VALUE = 2\n"})
    repository.commit()
    inner.write("value.py", "VALUE = 3\n")  # not committed
    for base, head, values in [
        ("main~1", "main", ("1", "2")),
        ("main", WORKING_TREE, ("2", "3")),
        ("main", "main", ("2", "2")),
    ]:
        with repository.sides(base, head) as sides:
            for side, value in zip((sides.base, sides.head), values, strict=True):
                assert (side.root / SUBMODULE / "value.py").read_text() == f"VALUE = {value}\n"
                assert (side.root / SUBMODULE / "deepest/value.py").read_text() == "VALUE = 1\n"
            assert bool(sides.changed_code) == (values[0] != values[1])
    for clone in (inner, Repository(inner.root / "deepest")):
        assert len(clone.git("worktree", "list").splitlines()) == 1


def test_a_submodule_that_the_clone_lacks_is_refused_unless_git_leaves_it_out(with_submodule):
    root = with_submodule.root
    lacking = Repository(root.parent / "clone")
    with_submodule.git("clone", "--quiet", str(root), str(lacking.root))
    for head in ("main", WORKING_TREE):
        with pytest.raises(UsageError, match="git submodule update --init --recursive"):
            lacking.sides(head=head).__enter__()
    lacking.git("config", f"submodule.{SUBMODULE}.update", "none")
    with lacking.sides() as sides:
        assert not list((sides.base.root / SUBMODULE).iterdir())
    with_submodule.git("update-index", "--cacheinfo", f"160000,{'1' * 40},{SUBMODULE}")
    with_submodule.git("commit", "--quiet", "--message", "one that nobody has pushed")
    with pytest.raises(UsageError, match=r"is not in this clone at commit 1{12}; check out "):
        with_submodule.sides(head="main").__enter__()
