"""Name the settings and the files of versions in a repository that the gate does not follow."""

from collections.abc import Sequence
from pathlib import Path

from perfgate.errors import UsageError
from perfgate.source.asv_config import KINDS, SuiteConfig
from perfgate.source.changes import has_same_bytes
from perfgate.source.environments import python_version, read_requirements, requirement_files
from perfgate.source.git import git

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


def unfollowed(root: Path, roots: Sequence[Path], config: SuiteConfig) -> list[str]:
    """Return a sentence for each thing that the gate does not follow.

    Args:
        root: the repository's root.
        roots: the roots of the checkouts, base's and head's.
        config: the suite's configuration.

    Raises:
        UsageError: asv's `repo` is another repository.
    """
    _refuse_other_repository(root, config)
    notes = []
    pythons = config.settings.get("pythons") or []
    running = python_version(config.python)
    if any(not f"{running}.".startswith(f"{each}.") for each in pythons):
        wanted = ", ".join(map(str, pythons))
        notes.append(f"pythons in asv.conf.json ({wanted}): only Python {running} was used.")
    if names := [name for name in _SETTINGS if config.settings.get(name)]:
        notes.append(f"The gate does not follow these settings: {', '.join(names)}.")
    for kind in KINDS:
        notes += [
            f"matrix in asv.conf.json has {len(values)} values of {name}: only the first was used."
            for name, values in config.values(kind).items()
            if len(values) > 1
        ]
    base, head = (place / config.package_dir for place in roots)
    found = {*_LOCKS, *requirement_files(base), *requirement_files(head)}
    followed = {"requirements.txt", *read_requirements(base), *read_requirements(head)}
    notes += [
        f"{name} changed, but the gate did not follow it."
        for name in sorted(found - followed)
        if not has_same_bytes(base / name, head / name)
    ]
    return notes


def _refuse_other_repository(root: Path, config: SuiteConfig) -> None:
    repo = str(config.settings.get("repo", "."))
    place = root / config.folder / repo
    if place.is_dir() and Path(git("rev-parse", "--show-toplevel", cwd=place)) != root:
        raise UsageError(
            f"repo in asv.conf.json is {repo!r}, another repository; the gate compares commits "
            "of the repository that holds asv.conf.json. Keep the suite beside the package."
        )
