"""A port for the servers that tests start."""

import socket


def free_port() -> int:
    """Return a port of the loopback on which nobody listens yet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
