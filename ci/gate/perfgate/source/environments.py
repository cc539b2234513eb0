"""Decide whether both sides can share an environment, and build one for each if they can't."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfgate.errors import PreparationError, UsageError
from perfgate.files import read_toml
from perfgate.process.reaper import reaper
from perfgate.source.asv_config import SuiteConfig, read_config
from perfgate.source.installed import describe_python

_OLDEST = (3, 11)  # for a worker
_BUILD_FILES = ("Cargo.toml", "meson.build", "CMakeLists.txt")
_COMPILED = ("*.pyx", "*.c", "*.cc", "*.cpp", "*.f90", *_BUILD_FILES)
_CONSTRAINTS = "constraints.txt"
_REQUIREMENTS = "requirements.txt"
_UV_LOCK = "uv.lock"
_HASH = re.compile(r"\s*\\?\s*--hash[= ]\S+")
_ERROR = re.compile(r"(?i)\w*error\b")
# lines of pip that follow the real error or don't help by themselves
_FOLLOWS = re.compile(r"subprocess-exited-with-error|metadata-generation-failed|exit code")
_MOST_CHARS = 300
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
    names = [_CONSTRAINTS, _REQUIREMENTS, "setup.cfg", "setup.py"]
    if find_uv():
        names.append(_UV_LOCK)
    names += read_requirements(package)
    for name in names:
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


def find_uv() -> str | None:
    """Return the path of uv, from PATH or beside the running Python."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if beside.is_file() else None)


def check_python(python: str) -> None:
    """Check that an interpreter can run a worker.

    Raises:
        UsageError: it is too old, or no Python.
    """
    try:
        version = describe_python(python)["version"]
    except (OSError, ValueError) as error:
        raise UsageError(f"--python {python} does not run as a Python: {error}.") from None
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise UsageError(
            f"--python {python} is Python {version}, but benchmarks run in Python 3.11 or newer."
        )


def build_environment(place: Path, package: Path, config: SuiteConfig) -> str:
    """Build a virtual environment with the package, asv_runner and the packages of asv's matrix.

    Returns the path of its Python. The package's constraints.txt constrains all versions, and so
    does its uv.lock if uv is there. A requirements.txt that the package's metadata doesn't read is
    installed too.

    Raises:
        PreparationError: a step failed. The message holds the tool's reason.
    """
    python = str(place / "bin" / "python")
    uv = find_uv()
    if uv:
        make = [uv, "venv", "--quiet", "--python", config.python, str(place)]
        install = [uv, "pip", "install", "--quiet", "--python", python]
    elif importlib.util.find_spec("ensurepip") is None:
        raise PreparationError(
            "the two sides need environments of their own, and this Python can't make one: "
            "run `pip install uv`, or on Debian and Ubuntu `apt install python3-venv`."
        )
    else:
        # with -P, modules of the package can't shadow those of pip
        make = [config.python, "-P", "-m", "venv", str(place)]
        install = [python, "-P", "-m", "pip", "install", "--quiet"]
    _run(make, package, config)
    for file in _constraints(place, package, config, uv):
        install += ["--constraint", str(file)]
    extras = f"[{','.join(config.extras)}]" if config.extras else ""
    # asv_runner's mem_ benchmarks need pympler, which it doesn't declare.
    wanted = [f"{package}{extras}", "asv_runner", "pympler", *config.requirements]
    if (package / _REQUIREMENTS).is_file() and _REQUIREMENTS not in read_requirements(package):
        wanted += ["--requirement", str(package / _REQUIREMENTS)]
    _run([*install, *wanted], package, config)
    return python


def _constraints(place: Path, package: Path, config: SuiteConfig, uv: str | None) -> Iterator[Path]:
    """Yield the files of constraints, without hashes.

    With hashes, pip refuses a package that is a folder.
    """
    texts = []
    if (package / _CONSTRAINTS).is_file():
        texts.append((package / _CONSTRAINTS).read_text())
    if uv and (package / _UV_LOCK).is_file():
        export = [uv, "export", "--quiet", "--frozen", "--no-hashes", "--no-emit-workspace"]
        extras = [f"--extra={name}" for name in config.extras]
        texts.append(_run([*export, "--no-dev", *extras], package, config))
    for number, text in enumerate(texts):
        file = place / f"constraints-{number}.txt"
        file.write_text(_HASH.sub("", text))
        yield file


def _run(command: Sequence[str], package: Path, config: SuiteConfig) -> str:
    """Run one step of a build in the package's folder and return what it printed."""
    variables = dict(os.environ)
    # Otherwise pip's last line would be a notice of a newer pip.
    variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    for name, values in config.values("env").items():
        variables.pop(name, None)
        if values[0] is not None:
            variables[name] = values[0]
    done = subprocess.run(
        command,
        cwd=package,
        env=reaper().marked(variables),  # the mark reaches compilers that a build starts
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PreparationError(
            f"the environment of {package.name} could not be built: {_reason(done)}"
        )
    return done.stdout


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line that says why a build failed: pip's first error, or else the last line."""
    # python -m venv prints its errors to stdout
    lines = [line.strip() for line in (done.stderr.strip() or done.stdout).splitlines()]
    errors = [line for line in lines if _ERROR.match(line) and not line.endswith(":")]
    telling = [line for line in errors if not _FOLLOWS.search(line)]
    return next(iter([*telling, *errors, *lines[-1:]]), "no reason given")[:_MOST_CHARS]
