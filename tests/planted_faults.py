"""Plant one fault after another and run the tests that must catch it.

`python -m tests.planted_faults` takes an hour on 2 cores. Name a folder or a file, such as
`myriad/agents`, to plant only the faults there. Run it after you have merged or removed tests, and
after you have rewritten what they test. The faults are in planted_faults.toml.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Of a test: a file that can't be collected has no name of one, and catches nothing.
_FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+::\S+)", re.MULTILINE)


def planted_faults() -> dict[str, dict[str, Any]]:
    """Read all faults, by name: the change that breaks a promise, and its tests."""
    return tomllib.loads((ROOT / "tests" / "planted_faults.toml").read_text(encoding="utf-8"))


def main() -> int:
    """Plant the faults, print which test caught each, and return 1 if one was missed."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("places", nargs="*", default=[""], help="folders or files; default: all")
    places = tuple(parser.parse_args().places)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for name in filter(None, tracked.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        # The copy goes before the installed checkout, in the processes that tests start, too.
        imported_from = os.pathsep.join([str(copy), str(copy / "ci" / "gate")])
        for name, fault in planted_faults().items():
            if not fault["file"].startswith(places):
                continue
            path = copy / fault["file"]
            whole = path.read_text(encoding="utf-8")
            path.write_text(whole.replace(fault["old"], fault["new"]), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", *fault["tests"]],
                cwd=copy,
                env=os.environ | {"PYTHONPATH": imported_from},
                capture_output=True,
                text=True,
                check=False,
            )
            path.write_text(whole, encoding="utf-8")
            if done.returncode not in (0, 1):
                raise RuntimeError(f"{name}: pytest ended with {done.returncode}:\n{done.stdout}")
            found = _FIRST_FAILURE.search(done.stdout) if done.returncode else None
            missed += found is None
            print(f"{name:55} {found[1] if found else 'MISSED'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
