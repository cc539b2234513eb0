"""Write the tuned batch size to a `.env` file."""

import contextlib
import re
import shutil
from pathlib import Path

from myriad import __version__
from myriad.files import read_text, replacing
from myriad.hardware import fingerprint, package_versions
from myriad.training.config import TrainingConfig

VARIABLE = "OPTIMAL_BATCH_SIZE"
_TUNED_FOR = f"{VARIABLE}_TUNED_FOR"


def tuned_for(config: TrainingConfig) -> str:
    """Return what a batch size depends on, in one line: agent, environment, machine, versions."""
    jax = package_versions()["jax"]
    machine = fingerprint().slug
    return f"{config.agent} on {config.env}, {machine}, myriad {__version__}, jax {jax}"


def write_batch_size(file: Path, batch_size: int, config: TrainingConfig) -> str | None:
    """Write a batch size and what it was tuned for to a file. Other lines stay.

    Returns:
        a warning if the file had a value that was tuned for something else.

    Raises:
        InvalidArgumentError: the file can't be read or written.
    """
    text = ""
    if file.exists():
        read_text(file)  # Raises if the file is not text.
        text = file.read_bytes().decode()  # Keeps the file's own line ends.
    now = tuned_for(config)
    before, size = value_of(text, _TUNED_FOR), value_of(text, VARIABLE)
    for name, value in ((VARIABLE, str(batch_size)), (_TUNED_FOR, f'"{now}"')):
        text = _with_value(text, name, value)
    with replacing(file) as new:
        new.write_bytes(text.encode())
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(file, new)  # Keep it private, since it may hold secrets.
    if size is None or before == now:
        return None
    whose = f"tuned for {before}" if before else "not tuned"
    return f"{file} had {VARIABLE}={size}, {whose}: it is replaced."


def value_of(text: str, name: str) -> str | None:
    """Return the last value of a variable, without quotes; None if there is none."""
    found = re.findall(_line_of(name), text, re.MULTILINE)
    return found[-1].strip().strip("\"'") if found else None


def _with_value(text: str, name: str, value: str) -> str:
    line = f"{name}={value}"
    if re.search(_line_of(name), text, re.MULTILINE):
        return re.sub(_line_of(name), lambda _: line, text, flags=re.MULTILINE)
    end = "\r\n" if "\r\n" in text else "\n"
    if text and not text.endswith("\n"):
        text += end
    return f"{text}{line}{end}"


def _line_of(name: str) -> str:
    return rf"^(?:export +)?{name}[ \t]*=([^\r\n]*)"
