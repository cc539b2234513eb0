"""Say in one sentence why no suite can run, instead of a traceback.

Scripts call this before their first import from `benchmarks`, which a Python without Myriad does
not find either. Standard library only.
"""

import sys
from importlib.util import find_spec


def require_setup() -> None:
    """Exit with code 2 and a sentence where this Python lacks Myriad or a declaration is wrong."""
    if any(find_spec(name) is None for name in ("benchmarks", "myriad", "jax")):
        _refuse(
            "Myriad is not installed in this Python; run `make bench` once, "
            "then use .venv/bin/python or activate .venv."
        )
    try:
        # Suites read the declarations while they are imported, where asv looks for `params`.
        from benchmarks.harness.workloads import load, tier_from_environment

        load()
        tier_from_environment()
    except ValueError as error:
        # A SuiteError, whose own module can't be imported where libraries.toml is wrong.
        _refuse(str(error))


def _refuse(sentence: str) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(2)
