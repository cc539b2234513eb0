"""Connections between the processes, which the system closes when one of them ends."""

import contextlib
import select
import socket

from myriad.distributed.store import Store

_CONNECT_S = 5.0
_NAME = "line"


class Lines:
    """A connection from each process to process 0. Nothing but its number is sent.

    A process that is killed is noticed at once, whatever it was about. Where no connection can be
    made, as behind a firewall, `ended` finds nothing.

    Args:
        store: what the processes share.
        process_id: this one's number.
        host: that of process 0.
    """

    def __init__(self, store: Store, process_id: int, host: str):
        self._server: socket.socket | None = None
        # By the number of the process at the other end.
        self._open: dict[int, socket.socket] = {}
        self._greeting: list[socket.socket] = []
        if process_id == 0:
            self._server = socket.create_server(("", 0))
            self._server.settimeout(0)
            store.set(_NAME, self._server.getsockname()[1])
            return
        with contextlib.suppress(OSError):
            line = socket.create_connection((host, store.wait_for(_NAME)), _CONNECT_S)
            line.sendall(f"{process_id}\n".encode())
            line.settimeout(0)
            self._open[0] = line

    def ended(self) -> list[int]:
        """Return the numbers of processes whose connection is closed."""
        if self._server is not None:
            self._accept(self._server)
        gone = []
        for number, line in list(self._open.items()):
            if _is_closed(line):
                gone.append(number)
                del self._open[number]
        return gone

    def close(self) -> None:
        """Close all connections."""
        for each in [*self._open.values(), *self._greeting, self._server]:
            if each is not None:
                each.close()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                line, _ = server.accept()
                line.settimeout(0)
                self._greeting.append(line)
        for line in list(self._greeting):
            if not select.select([line], [], [], 0)[0]:
                continue
            self._greeting.remove(line)
            with contextlib.suppress(OSError, ValueError):
                self._open[int(line.recv(32))] = line


def _is_closed(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
