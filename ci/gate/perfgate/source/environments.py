"""Decide whether both sides can share an environment, and build one for each where they can't."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from perfgate.errors import PreparationError
from perfgate.files import read_toml
from perfgate.source.asv_config import SuiteConfig, read_config

_BUILD_FILES = ("Cargo.toml", "meson.build", "CMakeLists.txt")
_COMPILED = ("*.pyx", "*.c", "*.cc", "*.cpp", "*.f90", *_BUILD_FILES)
_CONSTRAINTS = "constraints.txt"
_SKIPPED_FOLDERS = [
    ".git",
    ".venv",
    "node_modules",
    "tests",
    "docs",
    "doc",
    "benchmarks",
    "examples",
]


def why_built(base_root: Path, head_root: Path, config: SuiteConfig, location: Path) -> str:
    """Return why the sides need environments of their own, or nothing."""
    roots = (base_root, head_root)
    before, after = (
        _dependencies(root / config.package_dir, root / location, root) for root in roots
    )
    for name, value in after.items():
        if before[name] != value:
            return f"{name} differs"
    is_compiled = any(_is_compiled(root / config.package_dir) for root in roots)
    return "the package is compiled" if is_compiled else ""


def _dependencies(package: Path, config_file: Path, root: Path) -> dict[str, Any]:
    """Return everything that decides which versions a side runs with."""
    file = package / "pyproject.toml"
    table = read_toml(file, PreparationError) if file.is_file() else {}
    project = table.get("project", {})
    poetry = table.get("tool", {}).get("poetry", {})
    config = read_config(config_file, root) if config_file.is_file() else None
    extras = config.extras if config else ()
    declared: dict[str, Any] = {
        "pyproject.toml's dependencies": (
            sorted(project.get("dependencies", [])),
            poetry.get("dependencies"),
        ),
        "what the suite's extras need": [
            project.get("optional-dependencies", {}).get(name) for name in extras
        ],
        "asv's matrix": config.matrix if config else None,
    }
    for name in (_CONSTRAINTS, "requirements.txt", "setup.cfg", "setup.py"):
        declared[name] = (package / name).read_text() if (package / name).is_file() else None
    return declared


def _is_compiled(package: Path) -> bool:
    folders = [
        path for path in package.iterdir() if path.is_dir() and path.name not in _SKIPPED_FOLDERS
    ]
    found = any(next(folder.rglob(pattern), None) for folder in folders for pattern in _COMPILED)
    return found or any((package / name).is_file() for name in _BUILD_FILES)


def build_environment(place: Path, package: Path, config: SuiteConfig) -> str:
    """Build a virtual environment with the package, asv_runner and what asv's matrix asks for.

    Returns the path of its Python. Versions are held to the package's constraints.txt, where it has
    one.

    Raises:
        PreparationError: with the last line of what failed.
    """
    python = str(place / "bin" / "python")
    uv = shutil.which("uv")
    if uv:
        make = [uv, "venv", "--quiet", "--python", sys.executable]
        install = [uv, "pip", "install", "--quiet", "--python", python]
    else:
        make = [sys.executable, "-m", "venv"]
        install = [python, "-m", "pip", "install", "--quiet"]
    if (package / _CONSTRAINTS).is_file():
        install += ["--constraint", str(package / _CONSTRAINTS)]
    extras = f"[{','.join(config.extras)}]" if config.extras else ""
    # asv_runner's mem_ benchmarks need pympler, which it doesn't declare.
    wanted = [f"{package}{extras}", "asv_runner", "pympler", *_matrix_requirements(config)]
    for command in ([*make, str(place)], [*install, *wanted]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise PreparationError(
                f"the environment of {package.name} could not be built: {reason}"
            )
    return python


def _matrix_requirements(config: SuiteConfig) -> list[str]:
    """Return the first version of each requirement in asv's matrix."""
    matrix = config.matrix or {}
    table = matrix.get("req", {} if {"env", "env_nobuild"} & matrix.keys() else matrix)
    requirements = []
    for name, versions in table.items():
        first = versions[0] if isinstance(versions, list) and versions else versions
        if first is not None and not name.startswith("pip+"):
            requirements.append(f"{name}=={first}" if first else name)
    return requirements
