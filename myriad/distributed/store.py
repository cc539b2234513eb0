"""The key-value store of JAX's coordination service, which process 0 hosts."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import jax

from myriad.errors import ProcessLostError

_SPACE = "myriad"
_WAIT_MS = 1_000
COORDINATOR_LOST = "process 0 can't be reached any more"


class Store:
    """Values that JSON can hold, under names, which all processes of a training see.

    Args:
        client: the client of JAX's coordination service.

    Raises:
        ProcessLostError: in each method, if process 0 can't be reached.
    """

    def __init__(self, client: Any):
        self._client = client

    @classmethod
    def of_jax(cls) -> "tuple[Store, int, int, str]":
        """Return the arguments of `Processes`: store, process, count and the host of process 0."""
        # JAX has no public name for the client of its service. orbax and others use this one.
        from jax._src.distributed import global_state

        host = str(global_state.coordinator_address).rpartition(":")[0].strip("[]")
        return (
            cls(global_state.client),
            global_state.process_id,
            global_state.num_processes,
            host,
        )

    def set(self, name: str, value: Any) -> None:
        """Set the value of a name, and replace an older one."""
        with _explained():
            self._client.key_value_set(_key(name), json.dumps(value), allow_overwrite=True)

    def wait_for(self, name: str) -> Any:
        """Wait until a name has a value, and return it."""
        # Short waits, since Python handles signals only between them.
        while True:
            with _explained(but="DEADLINE_EXCEEDED"):
                return json.loads(self._client.blocking_key_value_get(_key(name), _WAIT_MS))

    def by_process(self, name: str) -> dict[int, Any]:
        """Return the existing values of `name/0`, `name/1` and so on, by their numbers."""
        with _explained():
            found = self._client.key_value_dir_get(_key(name))
        return {int(key.rpartition("/")[2]): json.loads(text) for key, text in found}

    def forget(self, name: str) -> None:
        """Remove a name and all names below it."""
        with _explained():
            self._client.key_value_delete(_key(name))


@contextlib.contextmanager
def _explained(but: str | None = None) -> Iterator[None]:
    """Turn an error of the service into a sentence, but ignore an error that contains `but`."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if but is None or but not in str(error):
            raise ProcessLostError(COORDINATOR_LOST) from error


def _key(name: str) -> str:
    return f"{_SPACE}/{name}"
