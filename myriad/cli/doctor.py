"""`myriad doctor`: what is set, where, and what this machine makes of it."""

import dataclasses
import os
from pathlib import Path

from myriad.cli.train import TrainingFlags
from myriad.settings import Settings

# What the settings are shown for, unless you say.
_ENV, _AGENT = "cartpole-control", "ppo"


@dataclasses.dataclass(frozen=True)
class Doctor(TrainingFlags):
    """Show every setting, where it was set and what is active on this machine.

    It takes the options of `myriad train`, and says what they would come to.
    """

    def run(self) -> int:
        """Print the settings, the machine and the folders; return 1 if something can't be had."""
        from myriad.autotune.precision import dtype_speed
        from myriad.hardware import fingerprint, is_configured, package_versions
        from myriad.training.active import active_settings

        given = dataclasses.replace(
            self, env=self.env or _env(self), agent=self.agent or _agent(self)
        )
        config, sources = given.described()
        settings = active_settings(config, config.resolve(), sources)
        print(f"settings of {config.agent} on {config.env}\n")
        header = ("setting", "value", "from", "active", "why", "overridden by")
        rows = [
            (
                each.name,
                each.value,
                each.source,
                "yes" if each.active else "no",
                each.reason,
                each.flag or "-",
            )
            for each in settings
        ]
        print(_table([header, *rows]))
        speed = dtype_speed(config.resolve())
        if speed is not None:
            print(f"\nprecision: {speed}")
        print("\nvariables, of the environment and of .env\n")
        print(_table([("variable", "value", "what it does"), *_variables(Settings.read())]))
        machine = fingerprint()
        print(f"\nmachine    {machine}")
        print(f"devices    {_devices()}")
        versions = package_versions()
        print(f"versions   {', '.join(f'{name} {of}' for name, of in versions.items())}")
        configured = "yes" if is_configured() else "no: XLA runs without Myriad's options"
        print(f"configured {configured}")
        problems = []
        for name, folder in _folders():
            problem = _unwritable(folder) if folder is not None else None
            state = "off" if folder is None else f"{folder} ({problem or 'can be written'})"
            print(f"{name:<10} {state}")
            problems += [f"{name}: {folder} {problem}"] if problem else []
        return 1 if problems else 0


def _env(flags: TrainingFlags) -> str | None:
    return None if flags.config else _ENV


def _agent(flags: TrainingFlags) -> str | None:
    return None if flags.config else _AGENT


def _variables(settings: Settings) -> list[tuple[str, str, str]]:
    rows = []
    for name, setting in Settings.table().items():
        value = getattr(settings, name)
        source = settings.sources.get(name, setting.variable)
        rows.append((source, "not set" if value is None else str(value), setting.meaning))
    return rows


def _devices() -> str:
    import jax

    kinds: dict[str, int] = {}
    for device in jax.local_devices():
        kinds[device.device_kind] = kinds.get(device.device_kind, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items())


def _folders() -> list[tuple[str, Path | None]]:
    from myriad import settings

    return [("kept in", settings.home()), ("compiled", settings.compilation_cache())]


def _unwritable(folder: Path) -> str | None:
    """Return why nothing can be written below a folder, which need not be there yet."""
    there = folder
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        return f"can't be made, since {there} is no folder"
    return None if os.access(there, os.W_OK | os.X_OK) else "can't be written"


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
