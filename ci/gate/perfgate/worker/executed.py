"""Record which of the checkout's own functions ran, in a worker.

A change can't affect the speed of a benchmark that runs none of the functions that it alters.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from . import used_files
from .calls import profiled

# A function that one of these has compiled runs without Python, so its calls can't be recorded.
_COMPILERS = ("jax", "numba", "torch._dynamo")


class Executed:
    """The functions below a folder that run during a block, in any thread.

    Attributes:
        names: `file:qualified name` of each function, with the file relative to the folder.
        is_whole: whether `names` is complete. It is not if another process ran, or functions that
            were compiled before.
    """

    def __init__(self, root: Path):
        self.names: set[str] = set()
        self.is_whole = False
        self._folders = (f"{root}{os.sep}", f"{root.resolve()}{os.sep}")
        self._codes: set[CodeType] = set()
        self._count_before = 0

    @contextlib.contextmanager
    def recorded(self, *, functions: bool = True) -> Iterator[None]:
        """Record while the block runs. Without `functions`, only record whether processes start."""
        used_files.listen()
        self._count_before = used_files.count_started()
        with self._watched() if functions else contextlib.nullcontext():
            yield
        self.is_whole = self.is_whole_so_far(functions=functions)
        self.collect()

    def is_whole_so_far(self, *, functions: bool) -> bool:
        """Tell whether the record is complete so far, given whether `functions` were recorded."""
        has_started = used_files.count_started() > self._count_before or used_files.has_children()
        return functions and not has_started and not is_compiler_loaded()

    def _watched(self) -> contextlib.AbstractContextManager[None]:
        return _monitored(self._codes) if hasattr(sys, "monitoring") else _profiled(self._codes)

    def collect(self) -> None:
        """Bring `names` up to date."""
        # a copy, because this very function is recorded too and may add to the set
        for code in tuple(self._codes):
            folder = next((each for each in self._folders if code.co_filename.startswith(each)), "")
            if folder:
                file = code.co_filename.removeprefix(folder)
                self.names.add(f"{file}:{code.co_qualname}")


@contextlib.contextmanager
def _profiled(codes: set[CodeType]) -> Iterator[None]:
    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(note)
    try:
        with profiled(note):
            yield
    finally:
        threading.setprofile(sys.getprofile())


@contextlib.contextmanager
def _monitored(codes: set[CodeType]) -> Iterator[None]:
    """Record with sys.monitoring, which is new in Python 3.12 and costs almost nothing."""
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    tool = monitoring.OPTIMIZER_ID

    def note(code: CodeType, offset: int) -> Any:
        codes.add(code)
        return monitoring.DISABLE  # each function is only recorded once

    # A generator may have started before the block and resume within it.
    events = (monitoring.events.PY_START, monitoring.events.PY_RESUME)
    monitoring.use_tool_id(tool, "perfgate")
    for event in events:
        monitoring.register_callback(tool, event, note)
    monitoring.set_events(tool, sum(events))
    monitoring.restart_events()
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


def is_compiler_loaded() -> bool:
    """Tell whether functions may run without Python, which makes every record incomplete."""
    return any(name in sys.modules for name in _COMPILERS)
