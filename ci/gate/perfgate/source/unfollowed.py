"""List the settings of a repository that the gate does not follow, with a sentence for each.

asv builds environments from these settings. The gate compares two commits in its own environment,
or in two that pip builds, and reports which settings that ignores.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfgate.errors import UsageError
from perfgate.source.asv_config import SuiteConfig
from perfgate.source.environments import find_uv, read_requirements, requirement_files
from perfgate.source.git import git
from perfgate.source.installed import describe_python, normal

_LOCKS = ("poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock", "environment.yml")
_CONDA = ("conda", "mamba", "rattler")
# Commands such as asv's defaults, which do the same as the gate's own call of pip. They may name
# extras and constraints.txt, which the gate follows too.
_PLAIN_COMMANDS = {
    "build_command": re.compile(r"(\S+=\S+ )*python -m ?(pip wheel|build) .*"),
    "install_command": re.compile(
        r"(\S+=\S+ )*python -m ?(uv )?pip install (-\S+ |--constraint \S*constraints\.txt )*"
        r"(uv|\{(wheel_file|build_dir)\}(\[[^\]]+\])?( -\S+)*)"
    ),
    "uninstall_command": re.compile(r"(\S+=\S+ )*python -m ?pip uninstall .*"),
}


def unfollowed(
    root: Path, roots: Sequence[Path], config: SuiteConfig, *, is_built: bool
) -> list[str]:
    """Return a sentence for each setting of the repository that the gate does not follow.

    Args:
        root: the repository's root.
        roots: the roots of the checkouts, base's and head's.
        config: the suite's configuration.
        is_built: whether each side has an environment of its own.

    Raises:
        UsageError: asv's `repo` is another repository.
    """
    _refuse_other_repository(root, config)
    return [
        *_other_pythons(config, is_built=is_built),
        *_other_matrix(config),
        *([] if is_built else _missing_requirements(config)),
        *_other_commands(config, is_built=is_built),
        *_other_files(roots, config),
    ]


def _refuse_other_repository(root: Path, config: SuiteConfig) -> None:
    repo = str(config.settings.get("repo", "."))
    place = root / config.folder / repo
    if place.is_dir() and Path(git("rev-parse", "--show-toplevel", cwd=place)) != root:
        raise UsageError(
            f"repo in asv.conf.json is {repo!r}, another repository; the gate compares commits "
            "of the repository that holds asv.conf.json. Keep the suite beside the package."
        )


def _other_pythons(config: SuiteConfig, *, is_built: bool) -> Iterator[str]:
    wanted = [str(each) for each in _listed(config.settings.get("pythons", []))]
    running = describe_python(config.python)["version"]
    if any(not f"{running}.".startswith(f"{each}.") for each in wanted):
        yield f"pythons in asv.conf.json ({', '.join(wanted)}): only Python {running} was used."
    kind = str(config.settings.get("environment_type", ""))
    file = config.settings.get("conda_environment_file")
    if kind in _CONDA or file:
        used = f"the environment of {config.python}; --python names another"
        used = "environments that pip built" if is_built else used
        name = f"environment_type in asv.conf.json ({kind})"
        if kind not in _CONDA:
            name = f"conda_environment_file in asv.conf.json ({file})"
        yield f"{name} was not followed: both sides ran in {used}."


def _other_matrix(config: SuiteConfig) -> Iterator[str]:
    for kind in ("req", "env", "env_nobuild"):
        for name, values in config.values(kind).items():
            if len(values) > 1:
                first = "not set" if values[0] is None else values[0]
                yield (
                    f"matrix in asv.conf.json has {len(values)} values of {name}: only the first "
                    f"({first}) was used."
                )
    for name in ("include", "exclude"):
        if config.settings.get(name):
            yield f"{name} in asv.conf.json was not followed: one combination was run."


def _missing_requirements(config: SuiteConfig) -> Iterator[str]:
    """Compare the requirements of the matrix with the packages that the suite runs with."""
    packages = describe_python(config.python)["packages"]
    for name, values in config.values("req").items():
        wanted = values[0]
        if wanted is None:
            continue
        installed, _ = packages.get(normal(name.removeprefix("pip+")), (None, ""))
        if installed is None:
            yield f"matrix in asv.conf.json asks for {name}, which is not installed here."
        elif wanted and not f"{installed}.".startswith(f"{wanted}."):
            yield f"matrix in asv.conf.json asks for {name} {wanted}; {installed} was used."


def _other_commands(config: SuiteConfig, *, is_built: bool) -> Iterator[str]:
    instead = "pip built the package" if is_built else "both sides ran from their checkouts"
    for name, plain in _PLAIN_COMMANDS.items():
        commands = [str(each).strip() for each in _listed(config.settings.get(name))]
        if not all(plain.fullmatch(each) for each in commands):
            yield f"{name} in asv.conf.json was not run: {instead}."


def _other_files(roots: Sequence[Path], config: SuiteConfig) -> Iterator[str]:
    """Report changed files of versions that the gate's installations don't read."""
    base, head = (root / config.package_dir for root in roots)
    both = {*requirement_files(base), *requirement_files(head)}
    read = {"requirements.txt", *read_requirements(base), *read_requirements(head)}
    for name in sorted(both - read):
        if _is_changed(name, base, head):
            yield f"{name} changed, but nothing that the gate installs reads it."
    locks = _LOCKS if find_uv() else ("uv.lock", *_LOCKS)
    for name in locks:
        if _is_changed(name, base, head):
            hint = "; run `pip install uv` to follow it" if name == "uv.lock" else ""
            yield f"{name} changed, but the gate did not follow it{hint}."


def _is_changed(name: str, base: Path, head: Path) -> bool:
    before, after = (
        (place / name).read_bytes() if (place / name).is_file() else None for place in (base, head)
    )
    return before != after


def _listed(value: Any) -> list[Any]:
    """Return a setting as a list. It may be a list, one value or nothing."""
    if isinstance(value, list):
        return value
    return [value] if value else []
