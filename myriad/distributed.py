"""The processes of one training: what they tell each other, and that none outlives the others.

They talk through the key-value store of JAX's coordination service, which process 0 hosts. All of
them do the same in the same order, so a message is known by its number.
"""

import contextlib
import dataclasses
import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax

from myriad.errors import DivergedError, InvalidArgumentError, MyriadError, ProcessLostError
from myriad.files import say

Result = TypeVar("Result")

# A process that says nothing for so long is gone.
LOST_S = 20.0
# The same once a connection to it has broken.
_SUSPECT_S = 5.0
_BEAT_S = 1.0
# The same before it has said anything: it may still load.
_FIRST_BEAT_S = 60.0
# Exit codes of a process that ends since another one is gone, or by an error of its own.
LOST, REFUSED, INTERRUPTED = 1, 2, 130
# Seconds that process 0, which hosts the store, leaves the others to hear why they end.
_FAREWELL_S = 4.0
_WAIT_MS = 1_000
# Messages that are kept. No process is further behind than the next step of a training.
_KEPT = 1_000
_SPACE = "myriad"


class Processes:
    """This process among those of one training. Alone, all is said at once and nothing waits.

    Args:
        client: of JAX's coordination service; None if this process is alone.
        process_id: its number.
        count: how many there are.

    Attributes:
        process_id: its number, from 0.
        count: how many there are.
        is_broken: whether this process has told the others to end.
    """

    def __init__(self, client: Any = None, process_id: int = 0, count: int = 1):
        self._client = client if count > 1 else None
        self.process_id = process_id
        self.count = count
        self.is_broken = False
        self._messages = 0
        self._shared: MyriadError | None = None
        self._watch = None if self._client is None else _Watch(self._client, process_id, count)

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and decides."""
        return self.process_id == 0

    def decided(self, value: Any) -> Any:
        """Return what process 0 gives, which JSON must hold; the others' values don't count."""
        if self._client is None:
            return value
        key = self._next()
        if self.is_first:
            self._set(key, value)
            return value
        return self._get(key)

    def of_all(self, value: Any) -> list[Any]:
        """Return what each process gives, in the order of their numbers."""
        if self._client is None:
            return [value]
        key = self._next()
        self._set(f"{key}/{self.process_id}", value)
        return [self._get(f"{key}/{number}") for number in range(self.count)]

    def together(self, function: Callable[[], Result]) -> Result:
        """Call a function in every process, and fail in all if it fails in one.

        Raises:
            MyriadError: what the function raised here.
            InvalidArgumentError: what it raised in another process.
        """
        if self._client is None:
            return function()
        result: Any = None
        own: MyriadError | None = None
        try:
            result = function()
        except MyriadError as error:
            own = error
        problems = self.of_all(None if own is None else str(own))
        for number, problem in enumerate(problems):
            if problem is not None:
                self._shared = own or InvalidArgumentError(f"process {number}: {problem}")
                raise self._shared
        return result

    def by_first(self, function: Callable[[], Result]) -> Result | None:
        """Call a function in process 0 alone, and fail in all processes if it fails there.

        Returns:
            what it returned; None in the others.
        """
        return self.together(lambda: function() if self.is_first else None)

    def require_alike(self, facts: Mapping[str, Any]) -> None:
        """Refuse to go on unless all processes have the same facts.

        Raises:
            InvalidArgumentError: one differs. The message names the process and the first fact.
        """
        first, *others = self.of_all(dict(facts))
        for number, theirs in enumerate(others, 1):
            for name in sorted(first.keys() | theirs.keys()):
                here, there = theirs.get(name), first.get(name)
                if here != there:
                    self._shared = InvalidArgumentError(
                        f"process {number} has {name} = {_short(here)}, but process 0 has "
                        f"{_short(there)}: start all processes alike."
                    )
                    raise self._shared

    def interrupt(self, number: int) -> None:
        """Tell process 0 that a signal asked this process to end."""
        if self._client is not None:
            self._client.key_value_set(f"{_SPACE}/interrupt/{self.process_id}", str(number), True)

    def interrupted(self) -> int:
        """Return the signal that asked any process to end, as process 0 knows it, or 0."""
        return 0 if self._watch is None else self._watch.signal

    def go_on_with(self, run_folder: Path) -> None:
        """Name the folder in which all is saved, if the training breaks off."""
        if self._watch is not None:
            self._watch.how_to_go_on = how_to_go_on(run_folder)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Let the other processes end, too, if this one fails in the block."""
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Tell the others that this process ends, and why; then they end, too.

        Where the error is that the connection to another process broke, wait until it is known
        which one that was. The process then ends here.
        """
        if self._watch is None or self.is_broken:
            return  # They know, or have parted.
        if error is self._shared or isinstance(error, DivergedError):
            return  # All processes come to it.
        self.is_broken = True
        if is_of_connection(error):
            self._watch.suspect()
            time.sleep(LOST_S + _FAREWELL_S)
        self._watch.end_with(str(error) or type(error).__name__, exit_code_of(error))

    def leave(self) -> None:
        """Wait until all processes come here, and part: afterwards none needs another one."""
        if self._watch is not None:
            self.of_all(None)  # the watch ends those that wait for one that is gone
            self._watch.close()
            self._watch = None
            jax.distributed.shutdown()

    def _next(self) -> str:
        self._messages += 1
        old = self._messages - _KEPT
        if self.is_first and old > 0:
            self._client.key_value_delete(f"{_SPACE}/{old}")
        return f"{_SPACE}/{self._messages}"

    def _set(self, key: str, value: Any) -> None:
        self._client.key_value_set(key, json.dumps(value))

    def _get(self, key: str) -> Any:
        # Short waits, since Python looks for signals only between them.
        while True:
            try:
                return json.loads(self._client.blocking_key_value_get(key, _WAIT_MS))
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise ProcessLostError(_COORDINATOR_LOST) from error


_COORDINATOR_LOST = "process 0 can't be reached any more"
_alone = Processes()
_all: Processes | None = None


def processes() -> Processes:
    """Return this process among those that `configure(distributed=...)` has met."""
    global _all  # noqa: PLW0603 (JAX has one such service for the whole process)
    if not jax.distributed.is_initialized():
        return _alone
    if _all is None:
        # JAX has no public name for the client of its service. orbax and others use this one.
        from jax._src.distributed import global_state

        _all = Processes(global_state.client, global_state.process_id, global_state.num_processes)
    return _all


def how_to_go_on(run_folder: Path) -> str:
    """Return how a training goes on of which a process was lost."""
    return (
        f"`myriad train --distributed --resume {shlex.quote(str(run_folder))}` in every process "
        "goes on from the newest checkpoint"
    )


def is_of_connection(error: BaseException) -> bool:
    """Return whether an error says that a connection to another process broke."""
    said = str(error)
    return isinstance(error, ProcessLostError) or any(
        name in said for name in ("Gloo", "NCCL", "coordination service")
    )


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of processes that end by an error of one of them."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    # What is wrong with a training is wrong again when it is started anew.
    return REFUSED if isinstance(error, MyriadError) else LOST


class _Watch:
    """A thread that says every second that this process lives, and ends it once another doesn't.

    Process 0 looks at all others. They look at what it says.
    """

    def __init__(self, client: Any, process_id: int, count: int):
        self._client = client
        self._process_id = process_id
        self._count = count
        self._patience_s = LOST_S
        self._closing = threading.Event()
        # What each process said last, and when that was new.
        self._heard: dict[int, tuple[str, float]] = {}
        self.signal = 0
        self.how_to_go_on = ""
        self._thread = threading.Thread(target=self._run, name="myriad-watch", daemon=True)
        self._thread.start()

    def suspect(self) -> None:
        """Be less patient, since a connection broke."""
        self._patience_s = _SUSPECT_S

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join(2 * _BEAT_S)

    def end_with(self, reason: str, code: int) -> None:
        """Tell the others why this process ends, and with which exit code. It goes on itself."""
        self._closing.set()
        ended = _Ended(f"process {self._process_id} of {self._count} ended: {reason}", code)
        try:
            if self._process_id:
                self._client.key_value_set(
                    self._key("failed", self._process_id), ended.text(), True
                )
            else:
                self._bid_farewell(ended)
        except jax.errors.JaxRuntimeError:
            pass  # Process 0 is gone already, and the others find that out themselves.

    def _run(self) -> None:
        number = 0
        while not self._closing.wait(_BEAT_S):
            number += 1
            try:
                self._client.key_value_set(
                    self._key("alive", self._process_id), str(number), True
                )
                ended = self._look_at_all() if self._process_id == 0 else self._look_at_first()
            except jax.errors.JaxRuntimeError:
                ended = _Ended(_COORDINATOR_LOST)
            if ended is not None and not self._closing.is_set():
                self._end(ended)

    def _look_at_all(self) -> "_Ended | None":
        for _, signal in self._client.key_value_dir_get(self._key("interrupt")):
            self.signal = self.signal or int(signal)
        for _, text in self._client.key_value_dir_get(self._key("failed")):
            return _Ended.of(text)
        beats = dict(self._client.key_value_dir_get(self._key("alive")))
        return self._silent({n: beats.get(self._key("alive", n), "") for n in range(self._count)})

    def _look_at_first(self) -> "_Ended | None":
        for _, text in self._client.key_value_dir_get(self._key("ended")):
            return _Ended.of(text)
        beats = dict(self._client.key_value_dir_get(self._key("alive")))
        return self._silent({0: beats.get(self._key("alive", 0), "")})

    def _silent(self, said: Mapping[int, str]) -> "_Ended | None":
        """Return which process has said nothing new for too long."""
        now_s = time.monotonic()
        for number, beat in said.items():
            last = self._heard.get(number)
            if last is None or last[0] != beat:
                self._heard[number] = (beat, now_s)
            elif number != self._process_id and now_s - last[1] > self._patience(beat):
                return _Ended(
                    f"process {number} of {self._count} was lost: it was killed, or it or its "
                    f"host has not answered for {now_s - last[1]:.0f} s"
                )
        return None

    def _patience(self, beat: str) -> float:
        """Return for how many seconds a process may say nothing new after a beat."""
        return self._patience_s if beat else _FIRST_BEAT_S

    def _end(self, ended: "_Ended") -> None:
        """End this process. Its main thread may wait forever for one that is gone."""
        say("; ".join(filter(None, (ended.sentence, self.how_to_go_on))))
        if self._process_id == 0:
            self._bid_farewell(ended)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(ended.code)

    def _bid_farewell(self, ended: "_Ended") -> None:
        """Tell the others why all end. With process 0 the store goes, so it waits for them."""
        self._client.key_value_set(self._key("ended", 0), ended.text(), True)
        time.sleep(_FAREWELL_S)

    def _key(self, *parts: Any) -> str:
        return "/".join([_SPACE, *map(str, parts)])


@dataclasses.dataclass(frozen=True)
class _Ended:
    """Why all processes end, and with which exit code."""

    sentence: str
    code: int = LOST

    def text(self) -> str:
        return json.dumps([self.sentence, self.code])

    @classmethod
    def of(cls, text: str) -> "_Ended":
        return cls(*json.loads(text))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
