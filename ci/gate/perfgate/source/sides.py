"""The two sides of a comparison: the merge base and head, checked out into a temporary folder.

As under asv, both sides run head's suite: in the base's checkout, head's folder of benchmarks
replaces the base's. If both sides declare the same dependencies, the running interpreter serves
both, and the root of each side comes first on the import path. If the dependencies differ, or the
package must be compiled, each side gets an environment of its own.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.errors import UsageError
from perfgate.process.channel import Launch
from perfgate.source.asv_config import SuiteConfig, read_config
from perfgate.source.changes import changed_lines, is_same_code
from perfgate.source.environments import build_environment, why_built
from perfgate.source.git import WORKING_TREE, commit_of, git, merge_base


@dataclass(frozen=True)
class Side:
    """One checkout and how to run it."""

    name: str
    commit: str
    root: Path
    python: str
    suite: Path
    import_from: tuple[Path, ...] = ()

    def environment(self, shared: Path, hash_seed: int = 0) -> dict[str, str]:
        """Return the environment of this side's workers.

        Both sides load compiled programs from the cache `shared`.
        """
        # A built environment stands alone.
        inherited = os.environ.get("PYTHONPATH") if self.import_from else None
        paths = [*map(str, self.import_from), *filter(None, [inherited])]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONHASHSEED": str(hash_seed),
            "JAX_COMPILATION_CACHE_DIR": str(shared),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }


@dataclass(frozen=True)
class Sides:
    """Base and head, the configuration of head's suite, and where workers may write."""

    base: Side
    head: Side
    config: SuiteConfig
    folder: Path
    environments: str
    base_suite: Path
    same_code: bool = False  # whether nothing that can matter differs between the two
    same_suite: bool = False  # whether head's suite is the base's, up to comments and layout
    programs: str = "programs"  # the folder of compiled programs that workers load from

    def launch(
        self, side: Side, *, core: int | None = None, suite: Path | None = None, hash_seed: int = 0
    ) -> Launch:
        """Return how a worker of `side` starts."""
        folders = {name: self.folder / f"{name}-{side.name}" for name in ("caches", "exchange")}
        programs = self.folder / self.programs
        for folder in (*folders.values(), programs):
            folder.mkdir(exist_ok=True)
        environment = side.environment(programs, hash_seed)
        return Launch(
            side.python,
            suite or side.suite,
            **folders,
            root=side.root,
            environment=environment,
            core=core,
        )


@contextlib.contextmanager
def checked_out(config_file: Path, base: str, head: str) -> Iterator[Sides]:
    """Check both sides out into a temporary folder that is removed at the end, whatever happens.

    Raises:
        UsageError: a commit, the configuration or the suite isn't there, or the two have no common
            ancestor.
        PreparationError: an environment could not be built.
    """
    if not config_file.is_file():
        raise UsageError(
            f"there is no {config_file}; name the suite's asv.conf.json with --suite-config."
        )
    root = Path(git("rev-parse", "--show-toplevel", cwd=config_file.resolve().parent))
    head_commit = commit_of("HEAD" if head == WORKING_TREE else head, root)
    base_commit = merge_base(commit_of(base, root), head_commit, root)
    with tempfile.TemporaryDirectory(prefix="gate-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with contextlib.ExitStack() as stack:
            base_root = _worktree(stack, root, folder / "base", base_commit)
            if head == WORKING_TREE:
                head_root = _snapshot(root, folder / "head")
                head_commit = f"{head_commit[:12]} with local changes"
            else:
                head_root = _worktree(stack, root, folder / "head", head_commit)
            location = config_file.resolve().relative_to(root)
            yield _made_ready(folder, base_root, head_root, (base_commit, head_commit), location)


def _worktree(stack: contextlib.ExitStack, root: Path, place: Path, commit: str) -> Path:
    git("worktree", "prune", cwd=root)  # what a killed run left behind
    # Registered first, because an interrupt may come while git is at work.
    stack.callback(_remove_worktree, root, place)
    git("worktree", "add", "--detach", "--force", str(place), commit, cwd=root)
    return place


def _remove_worktree(root: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    git("worktree", "prune", cwd=root)


def _snapshot(root: Path, place: Path) -> Path:
    """Copy the working tree without what git ignores, so that later edits are not measured."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root)
    for name in filter(None, listed.split("\0")):
        source, target = root / name, place / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return place


def _made_ready(
    folder: Path, base_root: Path, head_root: Path, commits: Sequence[str], location: Path
) -> Sides:
    config = read_config(head_root / location, head_root)
    suite = config.folder / config.benchmark_dir
    if not (head_root / suite).is_dir():
        raise UsageError(f"head has no folder {suite} of benchmarks, which {location} names.")
    # The base's own suite is kept aside: it tells which benchmarks are new and which are gone.
    base_suite = folder / "base_suite" / config.benchmark_dir.name
    if (base_root / suite).is_dir():
        shutil.copytree(base_root / suite, base_suite, symlinks=True)
        shutil.rmtree(base_root / suite)
    else:
        base_suite.mkdir(parents=True)
    shutil.copytree(head_root / suite, base_root / suite, symlinks=True)
    same_code = is_same_code(base_root, head_root, suite)  # before a build leaves anything there
    same_suite = not changed_lines(base_suite, head_root / suite)
    reason = why_built(base_root, head_root, config, location)
    sides = []
    for name, root, commit in zip(("base", "head"), (base_root, head_root), commits, strict=True):
        package = root / config.package_dir
        if reason:
            python = build_environment(folder / f"env-{name}", package, config)
            sides.append(Side(name, commit, root, python, root / suite))
        else:
            sources = tuple(path for path in (package / "src", package) if path.is_dir())
            sides.append(Side(name, commit, root, sys.executable, root / suite, sources))
    environments = "one, shared: the declared dependencies are equal"
    if reason:
        environments = f"one for each side: {reason}"
    base, head = sides
    return Sides(base, head, config, folder, environments, base_suite, same_code, same_suite)
