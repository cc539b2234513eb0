"""Start the gate in a repository that knows nothing of it, which may have a package called `ci` itself.

    python -P path/to/ci/launch.py gate --base origin/main
    python -P path/to/ci/launch.py find BENCHMARK GOOD BAD

Only this process takes our folder for `ci`. Workers, which import the repository's own code, are processes of their
own and never see it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

_COMMANDS = ("gate", "find")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of our commands, whatever else is called `ci` here."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] not in _COMMANDS:
        print(f"the first word must be one of {', '.join(_COMMANDS)}, but got {argv[:1]}.", file=sys.stderr)
        return 2
    _claim_name()
    return importlib.import_module(f"ci.{argv[0]}").main(list(argv[1:]))


def _claim_name() -> None:
    """Make `ci` mean the folder of this file: the import path is not asked for a module that is loaded."""
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "ci", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["ci"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


if __name__ == "__main__":
    sys.exit(main())
