"""Record the seconds that a call spends in each line of the checkout's functions, in a worker.

If every function is called as often as before, a profile of lines shows which one takes longer.
Tracing lines slows Python down. So the seconds show where time is added, not how much.
"""

import contextlib
import linecache
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from ..process import protocol

_MOST = 500  # lines in one reply
_MOST_S = 2.0  # seconds of the processor after which a call is not traced to its end
_LONGEST = 120  # characters of a line that are kept


class LineSeconds:
    """The seconds in each line below a folder that this thread runs during a block.

    A line's seconds include the libraries that it calls, but not functions whose own lines are
    recorded.
    """

    def __init__(self, root: Path):
        self.seconds: dict[tuple[CodeType, int], float] = {}
        self._folder = f"{root}{os.sep}"
        self._open: list[tuple[CodeType, int]] = []  # the line that each traced function is in
        self._since = 0.0
        self._end = 0.0
        self._worked_end = 0.0
        self._is_cut_off = False

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record while the block runs."""
        before = sys.gettrace()
        self._since = time.perf_counter()
        self._end = self._since + _MOST_S
        self._worked_end = time.process_time() + _MOST_S
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def most(self) -> tuple[protocol.Line, ...] | None:
        """Return the slowest lines, the slowest first; None if the call took too long to trace."""
        if self._is_cut_off:
            return None
        order = sorted(self.seconds.items(), key=lambda item: -item[1])
        return tuple(self._line(*place, seconds) for place, seconds in order[:_MOST])

    def _line(self, code: CodeType, number: int, seconds: float) -> protocol.Line:
        source = linecache.getline(code.co_filename, number).strip()[:_LONGEST]
        file = code.co_filename.removeprefix(self._folder)
        return protocol.Line(file, number, source, seconds)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(self._folder) or file == __file__:
            return None
        self._charge()
        self._open.append((frame.f_code, frame.f_lineno))
        self._since = time.perf_counter()
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event not in ("line", "return"):
            return self._step
        self._charge()
        if self._open:
            self._open.pop()
        if event == "line":
            self._open.append((frame.f_code, frame.f_lineno))
        self._since = time.perf_counter()
        if self._since > self._end:
            # Waiting takes no longer because of the trace, and neighbours may hold the core.
            left_s = self._worked_end - time.process_time()
            self._end = self._since + left_s
            if left_s <= 0:
                self._is_cut_off = True
                sys.settrace(None)
        return self._step

    def _charge(self) -> None:
        """Charge the seconds since the last event to the line that is running."""
        if self._open:
            place = self._open[-1]
            taken_s = time.perf_counter() - self._since
            self.seconds[place] = self.seconds.get(place, 0.0) + taken_s
