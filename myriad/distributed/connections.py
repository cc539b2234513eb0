"""Connections between the processes, which the system closes when one of them ends."""

import contextlib
import os
import secrets
import socket

from myriad.distributed.store import Store
from myriad.files import say

_CONNECT_S = 5.0
_NAME = "connection"
# After this many checks, close a connection that hasn't identified itself.
_LOOKS = 30
_MOST_BYTES = 64


class Connections:
    """A connection from each process to process 0, over which only the number is sent.

    It shows at once that a process was killed, whatever the process was doing. If no connection can
    be made, for example because of a firewall, the process says so, and `ended` finds nothing.

    Args:
        store: the store that the processes share.
        process_id: the number of this process.
        count: how many processes there are.
        host: the host of process 0.
    """

    def __init__(self, store: Store, process_id: int, count: int, host: str):
        self._count = count
        self._server: socket.socket | None = None
        # Connections by the number of the process at the other end.
        self._open: dict[int, socket.socket] = {}
        # Connections that haven't sent their number, and how often they were checked.
        self._greeting: dict[socket.socket, int] = {}
        # Only processes of this store know the word, so that no other program is taken for one.
        self._word = secrets.token_hex(8)
        if process_id == 0:
            self._server = _listening()
            store.set(_NAME, [self._server.getsockname()[1], self._word])
            return
        port, word = store.wait_for(_NAME)
        try:
            connection = socket.create_connection((host, port), _CONNECT_S)
            connection.sendall(f"{word} {process_id}\n".encode())
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            say(
                f"process {process_id} can't reach port {port} of process 0 ({reason}): if a "
                "process is killed, the others notice only after a minute"
            )
            return
        connection.settimeout(0)
        self._open[0] = connection

    def ended(self) -> list[int]:
        """Return the numbers of processes whose connection was closed since the last call."""
        if self._server is not None:
            self._accept(self._server)
        gone = []
        for number, connection in list(self._open.items()):
            if _is_closed(connection):
                gone.append(number)
                connection.close()
                del self._open[number]
        return gone

    def close(self) -> None:
        """Close all connections."""
        for each in [*self._open.values(), *self._greeting, self._server]:
            if each is not None:
                each.close()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # Nobody waits any more, or too many files are open.
            while True:
                connection, _ = server.accept()
                connection.settimeout(0)
                self._greeting[connection] = 0
        for connection in list(self._greeting):
            self._greeting[connection] += 1
            try:
                said = connection.recv(_MOST_BYTES)
            except BlockingIOError:
                if self._greeting[connection] < _LOOKS:
                    continue
                said = b""
            except OSError:
                said = b""
            del self._greeting[connection]
            number = self._number(said)
            if number is None:
                connection.close()
            else:
                self._open[number] = connection

    def _number(self, said: bytes) -> int | None:
        """Return the process that sent this, or None if it is not one of the others."""
        word, _, number = said.decode(errors="replace").strip().partition(" ")
        if word != self._word or not number.isdecimal():
            return None
        found = int(number)
        return found if 0 < found < self._count and found not in self._open else None


def _listening() -> socket.socket:
    """Return a socket that listens at a port of the system's choice, on IPv6 too if there is."""
    family = {"family": socket.AF_INET6, "dualstack_ipv6": True}
    server = socket.create_server(("", 0), **family if socket.has_dualstack_ipv6() else {})
    server.settimeout(0)
    return server


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
