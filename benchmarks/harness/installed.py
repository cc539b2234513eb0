"""Say in one sentence that Myriad is not installed, instead of a traceback.

Scripts call this before their first import from `benchmarks`, which a Python without Myriad does
not find either. Standard library only.
"""

import sys
from importlib.util import find_spec


def require_myriad() -> None:
    """Exit with code 2 and a sentence where this Python lacks Myriad."""
    if any(find_spec(name) is None for name in ("benchmarks", "myriad", "jax")):
        print(
            "Myriad is not installed in this Python; run `make bench` once, "
            "then use .venv/bin/python or activate .venv.",
            file=sys.stderr,
        )
        sys.exit(2)
