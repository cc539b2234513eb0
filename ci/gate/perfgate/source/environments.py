"""Decide whether both sides can share an environment, and build one for each if they can't.

It also names the settings and the files of versions that the gate does not follow.
"""

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from perfgate.errors import PreparationError, UsageError
from perfgate.files import read_toml
from perfgate.process.reaper import reaper
from perfgate.source.asv_config import KINDS, SuiteConfig, read_config
from perfgate.source.changes import has_same_bytes

_OLDEST = (3, 11)  # for a worker
_BUILD_FILES = ("Cargo.toml", "meson.build", "CMakeLists.txt")
_COMPILED = ("*.pyx", "*.c", "*.cc", "*.cpp", "*.f90", *_BUILD_FILES)
_CONSTRAINTS = "constraints.txt"
_REQUIREMENTS = "requirements.txt"
_UV_LOCK = "uv.lock"
_LOCKS = ("poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock", "environment.yml")
# what asv builds and installs with, besides the matrix
_SETTINGS = (
    "environment_type",
    "conda_environment_file",
    "include",
    "exclude",
    "build_command",
    "install_command",
    "uninstall_command",
)
_SKIPPED = (".git", ".venv", "node_modules", "tests", "docs", "doc", "benchmarks", "examples")


def why_built(base_root: Path, head_root: Path, config: SuiteConfig, location: Path) -> str:
    """Return why the sides need environments of their own, or nothing if they can share one."""
    roots = (base_root, head_root)
    before, after = (
        _dependencies(root / config.package_dir, root / location, root) for root in roots
    )
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            return f"{name} changed"
    is_compiled = any(_is_compiled(root / config.package_dir) for root in roots)
    return "the package is compiled" if is_compiled else ""


def _dependencies(package: Path, config_file: Path, root: Path) -> dict[str, Any]:
    """Return everything that decides which versions of packages a side runs with."""
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
        "the requirements of the suite's extras": [
            project.get("optional-dependencies", {}).get(name) for name in extras
        ],
        "asv's matrix": config.matrix if config else None,
    }
    files = [_CONSTRAINTS, _REQUIREMENTS, _UV_LOCK, "setup.cfg", "setup.py"]
    for name in [*files, *read_requirements(package)]:
        declared[name] = (package / name).read_text() if (package / name).is_file() else None
    return declared


def read_requirements(package: Path) -> list[str]:
    """Return the names of the requirements files that the package's own metadata reads."""
    metadata = [package / name for name in ("pyproject.toml", "setup.cfg", "setup.py")]
    text = "\n".join(file.read_text(errors="replace") for file in metadata if file.is_file())
    return [name for name in requirement_files(package) if name in text]


def requirement_files(package: Path) -> list[str]:
    """Return the names of the package's requirements files, relative to its folder."""
    found = [*package.glob("requirements*.txt"), *package.glob("requirements/*.txt")]
    return sorted(file.relative_to(package).as_posix() for file in found)


def not_followed(base_root: Path, head_root: Path, config: SuiteConfig) -> list[str]:
    """Return a sentence for each setting and each file of versions that is not followed."""
    notes = []
    pythons = config.settings.get("pythons") or []
    running = python_version(config.python)
    if any(not f"{running}.".startswith(f"{each}.") for each in pythons):
        wanted = ", ".join(map(str, pythons))
        notes.append(f"pythons in asv.conf.json ({wanted}): only Python {running} was used.")
    if names := [name for name in _SETTINGS if config.settings.get(name)]:
        notes.append(f"The gate does not follow these settings: {', '.join(names)}.")
    notes += [
        f"matrix in asv.conf.json has {len(values)} values of {name}: only the first was used."
        for kind in KINDS
        for name, values in config.values(kind).items()
        if len(values) > 1
    ]
    base, head = base_root / config.package_dir, head_root / config.package_dir
    found = {*_LOCKS, *requirement_files(base), *requirement_files(head)}
    followed = {_REQUIREMENTS, *read_requirements(base), *read_requirements(head)}
    notes += [
        f"{name} changed, but the gate did not follow it."
        for name in sorted(found - followed)
        if not has_same_bytes(base / name, head / name)
    ]
    return notes


def _is_compiled(package: Path) -> bool:
    if any((package / name).is_file() for name in _BUILD_FILES):
        return True
    file = package / "pyproject.toml"
    settings = file.read_text(errors="replace") if file.is_file() else ""
    named = "ext-modules" in settings or (package / "setup.py").is_file()
    if "setuptools.build_meta" in settings and not named:
        return False  # setuptools compiles only what one of these names
    folders = [path for path in package.iterdir() if path.is_dir() and path.name not in _SKIPPED]
    return any(next(folder.rglob(pattern), None) for folder in folders for pattern in _COMPILED)


@functools.cache
def python_version(python: str) -> str:
    """Return the version of a Python that can run a worker.

    Raises:
        UsageError: it is too old, or no Python.
    """
    program = "import platform; print(platform.python_version())"
    try:
        version = subprocess.check_output([python, "-c", program], text=True).strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"--python {python} does not run as a Python: {error}.") from None
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise UsageError(
            f"--python {python} is Python {version}, but benchmarks run in Python 3.11 or newer."
        )
    return version


def build_environment(place: Path, package: Path, config: SuiteConfig) -> str:
    """Build a virtual environment with the package, asv_runner and the packages of asv's matrix.

    Returns the path of its Python. The package's constraints.txt and uv.lock hold the versions. A
    requirements.txt that the package's metadata doesn't read is installed too.

    Raises:
        PreparationError: a step failed. The message holds what uv printed.
    """
    python = str(place / "bin" / "python")
    _uv(["venv", "--quiet", "--python", config.python, str(place)], package, config)
    install = ["pip", "install", "--quiet", "--python", python]
    if (package / _CONSTRAINTS).is_file():
        install += ["--constraint", str(package / _CONSTRAINTS)]
    if (package / _UV_LOCK).is_file():
        locked = str(place / "locked.txt")
        export = ["export", "--quiet", "--frozen", "--no-emit-workspace", "--no-dev"]
        extras = [f"--extra={name}" for name in config.extras]
        _uv([*export, *extras, "--output-file", locked], package, config)
        install += ["--constraint", locked]
    extras = f"[{','.join(config.extras)}]" if config.extras else ""
    # asv_runner's mem_ benchmarks need pympler, which it doesn't declare.
    install += [f"{package}{extras}", "asv_runner", "pympler", *config.requirements]
    if (package / _REQUIREMENTS).is_file() and _REQUIREMENTS not in read_requirements(package):
        install += ["--requirement", str(package / _REQUIREMENTS)]
    _uv(install, package, config)
    return python


def _uv(arguments: Sequence[str], package: Path, config: SuiteConfig) -> None:
    """Run one step of a build in the package's folder, with the matrix's variables."""
    variables = dict(os.environ)
    for name, values in config.values("env").items():
        variables.pop(name, None)
        if values[0] is not None:
            variables[name] = values[0]
    done = subprocess.run(
        [find_uv_bin(), *arguments],
        cwd=package,
        env=reaper().marked(variables),  # the mark reaches compilers that a build starts
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PreparationError(
            f"the environment of {package.name} could not be built:\n{done.stderr.strip()}"
        )
