"""Run a command in one of several processes, as a child of `myriad.cli.supervisor`.

    python -m myriad.cli.worker 5 4711 "" train ...

5 is the file descriptor of a pipe for the output of C++. 4711 is the id of the process that started
this one. The third argument is the folder of the run to resume after a restart, and else empty.
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
    # Python's streams move to new descriptors. Libraries in C++ print to 1 and 2, which become the
    # pipe, so that the supervisor can read their reports.
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
