"""Find a package's code: the folders for the import path, and modules that a build generates."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from perfgate.errors import PreparationError, UsageError
from perfgate.files import read_toml
from perfgate.source.asv_config import SuiteConfig
from perfgate.source.git import list_files

_EXTENSIONS = (".so", ".pyd")
_VERSION = re.compile(r"(^|_)version(_info)?_*\.py$")
# the folder of all packages: `package_dir={"": "lib"}` in setup.py, and two lines in setup.cfg
_PACKAGE_DIR = re.compile(r"""package_dir\s*=\s*(?:\{\s*(?:""|'')\s*:\s*["']|=\s*)([\w./-]+)""")


def suite_of(config: SuiteConfig, location: Path) -> Path:
    """Return the folder of benchmarks, relative to the repository's root.

    Args:
        config: the suite's configuration.
        location: the path of the configuration's file, relative to the repository's root.

    Raises:
        UsageError: it lies outside of the repository, or holds the package itself.
    """
    suite = Path(os.path.normpath(config.folder / config.benchmark_dir))
    if suite.is_absolute() or ".." in suite.parts:
        raise UsageError(
            f"benchmark_dir in {location} is {str(config.benchmark_dir)!r}, outside of the "
            "repository; name a folder inside it."
        )
    package = config.package_dir
    roots = (package, package / "src")
    is_package = suite.name == module_name(config.project)
    if is_package or any(root.is_relative_to(suite) for root in roots):
        raise UsageError(
            f"benchmark_dir in {location} is {str(config.benchmark_dir)!r}, which holds the "
            "package itself, so both sides would run head's code. Move the benchmarks into a "
            "folder of their own and name that."
        )
    return suite


def module_name(project: str) -> str:
    """Return the usual module name of a project."""
    return re.sub(r"[-.]+", "_", project).lower()


def import_roots(package: Path) -> tuple[Path, ...]:
    """Return the folders that a package's modules are imported from, the likeliest first.

    These are the folders that its metadata names, then `src`, then the package's root.

    Args:
        package: the folder of pyproject.toml.
    """
    declared = [package / str(name) for name in _declared(package) if name]
    folders = dict.fromkeys([*declared, package / "src", package])
    return tuple(folder for folder in folders if folder.is_dir())


def _declared(package: Path) -> Iterator[str]:
    """Yield the folders that the package's metadata names. Some are empty."""
    file = package / "pyproject.toml"
    tool = read_toml(file, PreparationError).get("tool", {}) if file.is_file() else {}
    setuptools = tool.get("setuptools", {})
    yield setuptools.get("package-dir", {}).get("", "")
    packages = setuptools.get("packages", {})
    if isinstance(packages, dict):
        yield from packages.get("find", {}).get("where", [])
    for each in tool.get("poetry", {}).get("packages", []):
        yield each.get("from", "")
    yield tool.get("maturin", {}).get("python-source", "")
    yield tool.get("pdm", {}).get("build", {}).get("package-dir", "")
    yield tool.get("uv", {}).get("build-backend", {}).get("module-root", "")
    wheel = tool.get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    for each in wheel.get("packages", []):
        yield str(PurePosixPath(each).parent)
    for name in ("setup.cfg", "setup.py"):
        if (package / name).is_file():
            yield from _PACKAGE_DIR.findall((package / name).read_text(errors="replace"))


def is_installed(root: Path, path: PurePosixPath) -> bool:
    """Tell whether a file of a working tree lies in a virtual environment or in asv's folder.

    Args:
        root: the repository's root.
        path: the file, relative to `root`.
    """
    if path.parts[0] == ".asv":
        return True
    folders = (root / parent for parent in path.parents if parent.name)
    return any(
        (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir() for folder in folders
    )


def generated_modules(
    root: Path, package: Path, suite: Path
) -> tuple[list[PurePosixPath], list[PurePosixPath]]:
    """Return the modules that git ignores inside the packages of a working tree.

    A build made them, so no checkout has them. The first list holds those that only tell a version,
    such as `_version.py`. The second list holds those with other code.

    Args:
        root: the repository's root.
        package: the package's root, relative to `root`.
        suite: the folder of benchmarks, relative to `root`. Files in it don't count.
    """
    ignored = ("--others", "--ignored", "--exclude-standard", "--directory")
    paths = list_files(*ignored, "--", package.as_posix(), cwd=root)
    found = [path for path in paths if _is_generated(root, path, suite)]
    versions = [path for path in found if _VERSION.search(path.name)]
    return versions, [path for path in found if path not in versions]


def _is_generated(root: Path, path: PurePosixPath, suite: Path) -> bool:
    if path.name == "__pycache__" or path.is_relative_to(suite.as_posix()):
        return False
    # Packages in an environment have an `__init__.py`, too.
    if is_installed(root, path):
        return False
    if not (root / path.parent / "__init__.py").is_file():
        return False
    if (root / path).is_dir():
        return next((root / path).rglob("*.py"), None) is not None
    return path.suffix in (".py", *_EXTENSIONS)
