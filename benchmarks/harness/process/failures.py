"""Report a child's failure to its parent, and end a child whose parent has ended.

Standard library only, because peers run this in a Python without Myriad.
"""

import os
import threading
import time

_LOOK_S = 1.0


class ChildError(Exception):
    """A child gave no reply.

    Args:
        status: the status of its row: `refused`, `failed` or `not installed`.
        reason: one sentence for the row.
        error: the name of the exception's type in the child, if there was one.
    """

    def __init__(self, status: str, reason: str, error: str = ""):
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.error = error

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a results row that describe the failure."""
        return {"status": self.status, "reason": self.reason}


def failure_of(error: BaseException, refusals: tuple[type[Exception], ...] = ()) -> dict[str, str]:
    """Return the arguments of the `ChildError` for an exception in a child.

    Args:
        error: the exception.
        refusals: exception types that mean a refusal, in addition to `NotImplementedError`.
    """
    status = "failed"
    if isinstance(error, (*refusals, NotImplementedError)):
        status = "refused"
    elif isinstance(error, ImportError):
        status = "not installed"
    kind = type(error).__name__
    reason = (str(error).strip() or kind).splitlines()[0]  # XLA appends its stack
    return {"status": status, "reason": reason, "error": kind}


def end_with_parent() -> None:
    """Start a thread that ends this process once its parent has ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
