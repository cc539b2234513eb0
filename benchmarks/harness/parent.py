"""A child that ends when its parent is gone: standard library only, since peers run in a Python that lacks Myriad."""

import os
import threading
import time

_LOOK_S = 1.0


def end_with_parent() -> None:
    """Watch the parent from a thread, and leave at once when it has ended: nobody would read what is measured then."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
