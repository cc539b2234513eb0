"""Find a package's code: the folders for the import path, and modules that a build generates."""

import ast
import configparser
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from perfgate.errors import PreparationError, UsageError
from perfgate.files import read_toml
from perfgate.source.asv_config import SuiteConfig
from perfgate.source.git import list_files

_EXTENSIONS = (".so", ".pyd")
_VERSION = re.compile(r"(^|_)version(_info)?_*\.py$")
_SETUP_PY = re.compile(r"package_dir\s*=\s*(\{[^}]*\})")


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
    declared = [package / name for name in (*_in_pyproject(package), *_in_setup(package)) if name]
    folders = dict.fromkeys([*declared, package / "src", package])
    return tuple(folder for folder in folders if folder.is_dir())


def _in_pyproject(package: Path) -> Iterator[str]:
    file = package / "pyproject.toml"
    tool = read_toml(file, PreparationError).get("tool", {}) if file.is_file() else {}
    yield from _setuptools_folders(tool.get("setuptools", {}))
    for each in tool.get("poetry", {}).get("packages", []):
        yield str(each.get("from", ""))
    yield str(tool.get("maturin", {}).get("python-source", ""))
    yield str(tool.get("pdm", {}).get("build", {}).get("package-dir", ""))
    yield str(tool.get("uv", {}).get("build-backend", {}).get("module-root", ""))
    wheel = tool.get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    for each in wheel.get("packages", []):
        yield str(PurePosixPath(each).parent)


def _setuptools_folders(table: dict[str, Any]) -> Iterator[str]:
    yield str(table.get("package-dir", {}).get("", ""))
    packages = table.get("packages", {})
    if isinstance(packages, dict):
        yield from map(str, packages.get("find", {}).get("where", []))


def _in_setup(package: Path) -> Iterator[str]:
    """Yield the folder of all packages in setup.cfg or setup.py: the entry "" of `package_dir`."""
    if (package / "setup.cfg").is_file():
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(package / "setup.cfg")
        except configparser.Error:
            return
        lines = parser.get("options", "package_dir", fallback="").splitlines()
        yield from (line.partition("=")[2].strip() for line in lines if re.match(r"\s*=", line))
    if (package / "setup.py").is_file():
        found = _SETUP_PY.search((package / "setup.py").read_text(errors="replace"))
        try:
            table = ast.literal_eval(found[1]) if found else {}
        except (SyntaxError, ValueError):
            return
        yield str(table.get("", ""))


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
