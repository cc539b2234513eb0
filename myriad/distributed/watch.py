"""A thread that reports that this process is alive, and ends it when another one is lost."""

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from myriad.distributed.connections import Connections
from myriad.distributed.store import Store
from myriad.errors import ProcessLostError
from myriad.files import say
from myriad.launch import LOST, how_to_resume

# If a process is silent for this many seconds, it or its host is gone. While compiling, one of many
# processes on few cores may be silent for long. A killed process is noticed by its connection.
LOST_S = 60.0
# The same limit after a collective operation has failed.
_SUSPECT_S = 5.0
_BEAT_S = 1.0
# Seconds that process 0, which hosts the store, gives the others to read why they end.
_FAREWELL_S = 4.0
# Seconds after a failed operation within which the watch finds out what failed.
KNOWN_S = 20.0


@dataclasses.dataclass(frozen=True)
class Ending:
    """Why all processes end, and with which exit code."""

    sentence: str
    code: int = LOST


class Watch:
    """The thread. Process 0 watches all others, and the others read what process 0 reports.

    Args:
        store: the store that the processes share.
        process_id: the number of this process.
        count: how many processes there are.
        host: the host of process 0.

    Attributes:
        signal: the signal that asked any process to end, or 0. Only process 0 knows it.
        run_folder: the run to resume afterwards, once it has a checkpoint.
        undo: called by process 0 if another process ends it before there is anything to keep.
    """

    def __init__(self, store: Store, process_id: int, count: int, host: str):
        self.signal = 0
        self.run_folder: Path | None = None
        self.undo: Callable[[], None] | None = None
        self._store = store
        self._process_id = process_id
        self._count = count
        self._patience_s = LOST_S
        self._connections = Connections(store, process_id, count, host)
        self._closing = threading.Event()
        # The last beat of each process, and when it was new.
        self._heard: dict[int, tuple[int, float]] = {}
        self._thread = threading.Thread(target=self._run, name="myriad-watch", daemon=True)
        self._thread.start()

    def suspect(self) -> None:
        """Shorten the limit of silence, since a connection broke."""
        self._patience_s = _SUSPECT_S

    def close(self) -> None:
        """End the thread, and tell the others that this process is done and not lost."""
        with contextlib.suppress(ProcessLostError):
            self._store.set(f"left/{self._process_id}", 1)
        self._closing.set()
        self._thread.join(2 * _BEAT_S)
        self._connections.close()

    def end_others(self, reason: str, code: int) -> None:
        """Tell the others that this process ends, why, and with which exit code."""
        self._closing.set()
        ending = Ending(f"process {self._process_id} of {self._count} ended: {reason}", code)
        # If process 0 is gone, this fails, and the others find out themselves.
        with contextlib.suppress(ProcessLostError):
            self._tell(ending)

    def _run(self) -> None:
        beat = 0
        while not self._closing.wait(_BEAT_S):
            beat += 1
            try:
                self._store.set(f"alive/{self._process_id}", beat)
                ending = self._found()
            except ProcessLostError:
                ending = Ending(
                    f"process 0 of {self._count} was lost: it can't be reached any more"
                )
            if ending is not None and not self._closing.is_set():
                self._end(ending)

    def _found(self) -> Ending | None:
        """Return why this process must end, if it must."""
        ended = self._connections.ended()
        # Read this after the connections, since a process reports its error or end before it exits.
        told = self._store.by_process("ending")
        left = self._store.by_process("left")
        if self._process_id:
            # Follow only process 0, which has read the others' reports.
            told = {number: ending for number, ending in told.items() if number == 0}
        else:
            for number in self._store.by_process("interrupt").values():
                self.signal = self.signal or number
        for ending in told.values():
            return Ending(*ending)
        for number in set(ended) - left.keys():
            return Ending(f"process {number} of {self._count} was lost: it was killed or crashed")
        others = [0] if self._process_id else range(1, self._count)
        return self._silent([number for number in others if number not in left])

    def _silent(self, others: Iterable[int]) -> Ending | None:
        """Return which of the others has said nothing new for too long."""
        now_s = time.monotonic()
        beats = self._store.by_process("alive")
        for number in others:
            beat = beats.get(number, 0)
            last, since_s = self._heard.get(number, (-1, now_s))
            if beat != last:
                self._heard[number] = (beat, now_s)
            elif now_s - since_s > self._patience_s:
                return Ending(
                    f"process {number} of {self._count} was lost: it or its host has not answered "
                    f"for {now_s - since_s:.0f} s"
                )
        return None

    def _end(self, ending: Ending) -> None:
        """End this process. Its main thread may wait forever for one that is gone."""
        say(f"{ending.sentence}{how_to_resume(self.run_folder)}")
        if self._process_id == 0:
            if self.undo is not None:
                self.undo()
            self._tell(ending)
        for stream in (sys.stdout, sys.stderr):
            # On a full disk the remaining output is lost, but the process must end anyway.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(ending.code)

    def _tell(self, ending: Ending) -> None:
        self._store.set(f"ending/{self._process_id}", dataclasses.astuple(ending))
        if self._process_id == 0:
            # The store ends with this process, so wait for the others to read it.
            time.sleep(_FAREWELL_S)
