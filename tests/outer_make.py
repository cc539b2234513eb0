"""The environment of a command that calls `make`, without what `make test` has put there."""

import os


def environment_without_make() -> dict[str, str]:
    """Return this process's variables, except those of a `make` that may have started it.

    Its own targets and the variables on its command line, such as ARGS, would reach the inner one.
    """
    own = ("ARGS", "BASE", "DOCS")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in own and not name.startswith(("MAKE", "MFLAGS", "GNUMAKE"))
    }
