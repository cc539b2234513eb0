"""Print one sentence instead of a traceback if no suite can run.

Scripts import this as `harness.installed` before their other imports from `benchmarks`, which fail
in a Python without Myriad. Standard library only.
"""

import sys
from importlib.util import find_spec


def require_setup() -> None:
    """Exit with code 2 and a sentence if this Python lacks Myriad or a declaration is wrong."""
    if any(find_spec(name) is None for name in ("benchmarks", "myriad", "jax")):
        _refuse(
            "Myriad is not installed in this Python; run `make bench` once, "
            "then use .venv/bin/python or activate .venv."
        )
    try:
        # Suites read the declarations during their import, because asv looks for `params` then.
        from benchmarks.harness.workloads import load, tier_from_environment

        load()
        tier_from_environment()
    except ValueError as error:
        # This is a SuiteError. It is not caught by its type, because its module can't be imported
        # if libraries.toml is wrong.
        _refuse(str(error))


def _refuse(sentence: str) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(2)


if __name__ == "harness.installed":  # not where asv imports it, as a module of `benchmarks`
    require_setup()
