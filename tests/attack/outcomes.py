"""What came of a fault: the row that the attack reports, and the rules that it is held to."""

import contextlib
import shutil
import signal
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from myriad.errors import MyriadError

# What ends a call that hangs.
HANG_S = 60
FINDING = "FINDING: "


class Row(NamedTuple):
    """One fault: of which kind, what exactly was done, and what came of it.

    An outcome that starts with `FINDING` breaks a promise. The others keep one: `same`, `refused`
    and so on.
    """

    kind: str
    case: str
    outcome: str

    @property
    def is_finding(self) -> bool:
        """Whether a promise was broken."""
        return self.outcome.startswith(FINDING)


class HangError(BaseException):
    """A call took longer than `HANG_S`. No handler of errors may take it for one of its own."""


@contextlib.contextmanager
def hang_noticed() -> Iterator[None]:
    """Raise `HangError` in a block that takes too long. Only the main thread may call it."""

    def hang(*_: Any) -> None:
        raise HangError

    previous = signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def outcome_of(
    call: Callable[[], Any],
    expected: Any,
    named: tuple[str, ...],
    folder: Path,
    refusals: tuple[type[BaseException], ...] = (MyriadError,),
) -> str:
    """Call, and judge what came of it.

    Args:
        call: what is attacked. It returns something to compare.
        expected: what it returns without a fault.
        named: a refusal must name one of these.
        folder: what a refusal must leave as it was.
        refusals: the errors that are refusals.
    """
    before = contents(folder)
    try:
        with warnings.catch_warnings(record=True) as said, hang_noticed():
            warnings.simplefilter("always")
            got = call()
    except refusals as error:
        return judged_refusal(str(error), named, before, folder)
    except HangError:
        return f"{FINDING}hung for {HANG_S} s"
    except BaseException as error:  # noqa: BLE001  (that is what is looked for)
        return f"{FINDING}{type(error).__name__}: {str(error)[:300]}"
    if got == expected:
        return "same"
    sentences = "; ".join(str(each.message) for each in said)
    if any(name in sentences for name in named):
        return "warned"
    return f"{FINDING}another result without a word"


def judged_refusal(
    sentence: str, named: tuple[str, ...], before: dict[str, Any], folder: Path
) -> str:
    """Return `refused` for one sentence that names the file and left all files as they were."""
    if "Traceback" in sentence:
        return f"{FINDING}a traceback: {sentence[-300:]}"
    if "\n" in sentence.strip() or not sentence.strip().endswith("."):
        return f"{FINDING}not one sentence: {sentence[:300]}"
    if not any(name in sentence for name in named):
        return f"{FINDING}does not name {' or '.join(named)}: {sentence[:300]}"
    changed = {
        name
        for name in before.keys() | contents(folder).keys()
        if before.get(name) != contents(folder).get(name)
    }
    return f"{FINDING}refused, and changed {sorted(changed)}" if changed else "refused"


def contents(folder: Path) -> dict[str, Any]:
    """Return what lies in a folder: the bytes of files, the targets of links, the types of others.

    Locks are left out, since whoever looks makes them.
    """
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name.endswith(".lock"):
            continue
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = stat.S_IFMT(path.lstat().st_mode)
    return found


@contextlib.contextmanager
def restored(folder: Path, spare: Path) -> Iterator[None]:
    """Put a folder back as it was after the block."""
    shutil.copytree(folder, spare, symlinks=True)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        spare.rename(folder)
