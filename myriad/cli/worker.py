"""What `myriad.cli.supervisor` starts: a command in a process of several.

    python -m myriad.cli.worker 5 4711 "" train ...

The numbers are those of a pipe, which gets what C++ prints, and of the process that started it.
After a restart, the folder of the run that goes on follows.
"""

import os
import sys
import threading
import time
from pathlib import Path

from myriad.cli import main

_EVERY_S = 1.0


def _run() -> int:
    pipe, parent = map(int, sys.argv[1:3])
    run_folder = sys.argv[3]
    sys.argv[1:4] = []
    threading.Thread(target=_end_with_parent, args=[parent], daemon=True).start()
    # Python keeps the standard streams. Libraries in C++ print to the numbers that they had.
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is not None:
            stream.flush()
            kept = os.fdopen(os.dup(number), "w", 1, stream.encoding, stream.errors)
            setattr(sys, name, kept)
        os.dup2(pipe, number)
    os.close(pipe)
    return main(is_worker=True, resuming=Path(run_folder) if run_folder else None)


def _end_with_parent(parent: int) -> None:
    """End this process once the one that started it is gone."""
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(_run())
