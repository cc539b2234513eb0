"""The two sides of a comparison, the merge base and head, checked out into a temporary folder.

As with asv, both sides run head's suite: in the base's checkout, head's folder of benchmarks
replaces the base's. A suite of pytest-benchmark may be a single file instead.

If both sides declare the same dependencies, both run in the current interpreter, and each side's
root comes first on the import path. If the dependencies differ, or the package must be compiled,
each side gets an environment of its own.
"""

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from perfgate.errors import UsageError
from perfgate.source.asv_config import SuiteConfig, read_config
from perfgate.source.changes import changed_code, changed_python, nothing_matters
from perfgate.source.environments import build_environment, not_followed, python_version, why_built
from perfgate.source.git import WORKING_TREE, commit_of, git, list_files, merge_base, submodules
from perfgate.source.layout import (
    generated_modules,
    import_roots,
    is_installed,
    module_name,
    suite_of,
)


@dataclass(frozen=True)
class Side:
    """One checkout and how to run it.

    Attributes:
        name: base or head.
        commit: its hash.
        root: the checkout.
        python: the interpreter that runs it.
        suite: the folder of benchmarks that both sides run, or the file of tests.
        import_from: the first folders on the import path; empty if the package is installed.
        variables: environment variables from asv's matrix, for the workers; None unsets one.
        module: the module that must be imported from this checkout, if it is imported at all.
    """

    name: str
    commit: str
    root: Path
    python: str
    suite: Path
    import_from: tuple[Path, ...] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    module: str = ""

    def environment(self, shared: Path, hash_seed: int = 0) -> dict[str, str]:
        """Return the environment of this side's workers.

        Both sides load compiled programs from the cache in `shared`.
        """
        # A built environment has the package installed, so it needs no other import path.
        inherited = os.environ.get("PYTHONPATH") if self.import_from else None
        paths = [*map(str, self.import_from), *filter(None, [inherited])]
        wanted = {name: value for name, value in self.variables.items() if value is not None}
        others = {name: value for name, value in os.environ.items() if name not in self.variables}
        return (
            others
            | wanted
            | {
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTHONHASHSEED": str(hash_seed),
                "JAX_COMPILATION_CACHE_DIR": str(shared),
                # Without these limits of 0 and -1, jax caches only programs that take long to
                # compile.
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        )


@dataclass(frozen=True)
class Sides:
    """Base and head, the configuration of head's suite, and where workers may write.

    Attributes:
        base_suite: the base's own suite, to tell which benchmarks are new and which are gone.
        changed_code: the differing files outside of the suite that can matter.
        changed_suite: the files of the suite in which head's differs from the base's own.
            Comments and layout don't count.
        nothing_matters: why the two can't differ in speed; empty if they can.
        notes: sentences about settings of the repository that were not followed.
        pytest_args: the arguments for pytest if the suite consists of tests that use
            pytest-benchmark's fixture; None for a suite of asv.
    """

    base: Side
    head: Side
    config: SuiteConfig
    folder: Path
    environments: str
    base_suite: Path
    changed_code: Sequence[PurePosixPath] = ()
    changed_suite: Sequence[str] = ()
    nothing_matters: str = ""
    notes: tuple[str, ...] = ()
    pytest_args: Sequence[str] | None = None

    @property
    def is_pytest(self) -> bool:
        """Whether the suite consists of tests that use pytest-benchmark's fixture."""
        return self.pytest_args is not None

    @property
    def edited_suite(self) -> list[str]:
        """The changed files of the suite that the base has too. Nothing else uses new ones."""
        suite = self.head.suite.relative_to(self.head.root)
        return [
            name
            for name in self.changed_suite
            if (self.base_suite / Path(name).relative_to(suite)).exists()
        ]


@contextlib.contextmanager
def checked_out(
    config_file: Path,
    base: str,
    head: str,
    tests: Path | None = None,
    *,
    pytest_args: Sequence[str] = (),
    python: str = sys.executable,
) -> Iterator[Sides]:
    """Check out both sides into a temporary folder, which is always removed at the end.

    Args:
        config_file: the configuration of an asv suite.
        base: a commit. Its merge base with head is the base side.
        head: a commit, or the working tree.
        tests: a folder or a file of tests that use pytest-benchmark's fixture, to use as the suite.
        pytest_args: arguments for pytest, which lists and runs these tests.
        python: the interpreter that has what the suite imports.

    Raises:
        UsageError: a commit, the configuration or the suite is missing, the two commits have no
            common ancestor, or the interpreter can't run a worker.
        PreparationError: an environment could not be built.
    """
    if tests is not None and not (tests.is_dir() or (tests.is_file() and tests.suffix == ".py")):
        raise UsageError(
            f"--pytest-benchmark must name a folder or a Python file of tests, but got {tests}."
        )
    if tests is None and not config_file.is_file():
        raise UsageError(
            f"there is no {config_file}; name the suite's asv.conf.json with --suite-config, or a "
            "folder or a file of tests with --pytest-benchmark."
        )
    python_version(python)  # it must run a worker
    place = (tests or config_file).resolve()
    beside = place if place.is_dir() else place.parent
    root = Path(git("rev-parse", "--show-toplevel", cwd=beside))
    location = place.relative_to(root)
    head_commit = commit_of("HEAD" if head == WORKING_TREE else head, root)
    base_commit = merge_base(commit_of(base, root), head_commit, root)
    with tempfile.TemporaryDirectory(prefix="gate-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with contextlib.ExitStack() as stack:
            base_root = _worktree(stack, root, folder / "base", base_commit)
            if head == WORKING_TREE:
                head_root = _snapshot(stack, root, folder / "head", head_commit)
                if git("status", "--porcelain", "--ignore-submodules", cwd=head_root):
                    head_commit = f"{head_commit[:12]} with local changes"
            else:
                head_root = _worktree(stack, root, folder / "head", head_commit)
            checkouts = {"base": (base_root, base_commit), "head": (head_root, head_commit)}
            arguments = None if tests is None else pytest_args
            yield _made_ready(folder, root, checkouts, location, python, arguments)


def _worktree(
    stack: contextlib.ExitStack, root: Path, place: Path, commit: str, *flags: str
) -> Path:
    git("worktree", "prune", cwd=root)  # remove worktrees that a killed run has left behind
    # The cleanup is registered first, because an interrupt may come while git is at work.
    stack.callback(_remove_worktree, root, place)
    git("worktree", "add", "--detach", "--force", *flags, str(place), commit, cwd=root)
    if not flags:
        for clone, path, pinned in _submodules(root, place):
            _worktree(stack, clone, place / path, pinned)
    return place


def _submodules(root: Path, listed: Path) -> Iterator[tuple[Path, Path, str]]:
    """Yield the clone, relative path and commit of each submodule that `listed` has.

    Raises:
        UsageError: the clone of one is missing, or lacks the commit.
    """
    for path, name, commit in submodules(listed):
        setting = f"submodule.{name}.update"
        if git("config", "--default", "", "--get", setting, cwd=root) == "none":
            continue
        try:
            commit_of(commit, root / path)  # where no submodule lies, git asks the repository
        except UsageError:
            raise UsageError(
                f"the submodule {path} is not in this clone at commit {commit[:12]}; check out "
                "what needs it and run `git submodule update --init --recursive`, or run "
                f"`git config {setting} none` to go without it."
            ) from None
        yield root / path, path, commit


def _remove_worktree(root: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    git("worktree", "prune", cwd=root)


def _snapshot(stack: contextlib.ExitStack, root: Path, place: Path, commit: str) -> Path:
    """Copy the working tree without ignored files, so that later edits are not measured.

    The copy is a git worktree, since a build may ask git for the version. New files are left out if
    they belong to an installation or to asv, which git need not ignore.
    """
    _worktree(stack, root, place, commit, "--no-checkout")
    git("read-tree", "HEAD", cwd=place)
    tracked = list_files("--cached", cwd=root)
    new = list_files("--others", "--exclude-standard", cwd=root)
    for path in [*tracked, *(each for each in new if not is_installed(root, each))]:
        if (root / path).is_symlink() or (root / path).is_file():
            _copy(Path(path), root, place)
    for clone, path, _ in _submodules(root, root):
        _snapshot(stack, clone, place / path, commit_of("HEAD", clone))
    return place


def _copy(path: Path, source: Path, target: Path) -> None:
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source / path, target / path, follow_symlinks=False)


def _made_ready(
    folder: Path,
    root: Path,
    checkouts: Mapping[str, tuple[Path, str]],
    location: Path,
    python: str,
    pytest_args: Sequence[str] | None,
) -> Sides:
    roots = [place for place, _ in checkouts.values()]
    base_root, head_root = roots
    if pytest_args is not None:
        config = SuiteConfig(Path(), location, matrix={"req": {"pytest-benchmark": [""]}})
    else:
        if not (head_root / location).is_file():
            raise UsageError(f"head has no {location}; commit it.")
        config = read_config(head_root / location, head_root)
    config = dataclasses.replace(config, python=python)
    repo = root / config.folder / str(config.settings.get("repo", "."))
    if repo.is_dir() and Path(git("rev-parse", "--show-toplevel", cwd=repo)) != root:
        raise UsageError(
            f"repo in asv.conf.json is {config.settings['repo']!r}, another repository; the gate "
            "compares commits of the repository that holds asv.conf.json. Keep the suite beside "
            "the package."
        )
    suite = suite_of(config, location)
    is_file = pytest_args is not None and (head_root / suite).is_file()
    if not is_file and not (head_root / suite).is_dir():
        raise UsageError(f"head has no folder {suite} of benchmarks, which {location} names.")
    reason_for_none = nothing_matters(base_root, head_root, suite)
    base_suite = _exchange_suite(folder, base_root, head_root, suite)
    # compared before a build can leave files there
    different = changed_code(base_root, head_root, suite)
    changed = changed_python(base_suite, head_root / suite)
    changed_suite = [(suite / path).as_posix() for path in changed]
    versions, generated = generated_modules(root, config.package_dir, suite)
    notes = _share_versions(root, roots, versions)
    reason = why_built(base_root, head_root, config, Path() if is_file else location)
    if not reason and generated:
        reason = f"a build makes {generated[0]}, which git ignores"
    of = "" if python == sys.executable else f", of {python}"
    environments = f"one, shared{of}: the declared dependencies are equal"
    if reason:
        environments = f"one for each side: {reason}"
    sides = []
    for name, (place, commit) in checkouts.items():
        package = place / config.package_dir
        if reason:
            python = build_environment(folder / f"env-{name}", package, config)
        imports = () if reason else import_roots(package)
        module = "" if reason else module_name(config.project)
        side = Side(name, commit, place, python, place / suite, imports, config.environment, module)
        sides.append(side)
    notes += not_followed(base_root, head_root, config)
    base, head = sides
    return Sides(
        base,
        head,
        config,
        folder,
        environments,
        base_suite,
        different,
        changed_suite,
        reason_for_none,
        notes=tuple(notes),
        pytest_args=pytest_args,
    )


def _exchange_suite(folder: Path, base_root: Path, head_root: Path, suite: Path) -> Path:
    """Give the base head's suite, and return the folder or the file that keeps its own.

    A file is kept among links to all that is beside it and above it, which it may import. There is
    none if the base has none.
    """
    base_suite = folder / "base_suite" / suite.name
    if (head_root / suite).is_file():
        base_suite = folder / "base_suite" / suite
        for parent in reversed(suite.parents):
            (folder / "base_suite" / parent).mkdir()
            for each in (base_root / parent).glob("*"):
                if not suite.is_relative_to(parent / each.name):
                    (folder / "base_suite" / parent / each.name).symlink_to(each)
        if (base_root / suite).is_file():
            shutil.move(base_root / suite, base_suite)
        (base_root / suite).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(head_root / suite, base_root / suite)
        return base_suite
    if (base_root / suite).is_dir():
        shutil.copytree(base_root / suite, base_suite, symlinks=True)
        shutil.rmtree(base_root / suite)
    else:
        base_suite.mkdir(parents=True)
    shutil.copytree(head_root / suite, base_root / suite, symlinks=True)
    return base_suite


def _share_versions(
    root: Path, roots: Sequence[Path], versions: Sequence[PurePosixPath]
) -> list[str]:
    """Give both sides the modules with the version that a build has made."""
    notes = []
    for path in versions:
        lacking = [place for place in roots if not (place / path).exists()]
        for place in lacking:
            _copy(Path(path), root, place)
        if lacking:
            notes.append(f"git ignores {path}; both sides used the one in your working tree.")
    return notes
