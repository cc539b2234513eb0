"""Tell which packages a Python has. Standard library only, because that Python runs this file."""

import functools
import importlib.metadata
import json
import platform
import subprocess
import sys
from typing import Any


def describe() -> dict[str, Any]:
    """Return the version of this Python, and of each package with its commit if it has one."""
    packages = [
        f"{each.metadata['Name']} {each.version} {each.read_text('direct_url.json') or ''}"
        for each in importlib.metadata.distributions()
    ]
    return {
        "version": platform.python_version(),
        "build": sys.version,
        "packages": sorted(packages),
    }


@functools.cache  # each report names the version
def describe_python(python: str) -> dict[str, Any]:
    """Return what `describe` returns in another Python.

    Raises:
        ValueError: it can't run this file. The message is its own last line.
    """
    if python == sys.executable:
        return describe()
    done = subprocess.run([python, __file__], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError((done.stderr.strip().splitlines() or ["it printed nothing"])[-1])
    return json.loads(done.stdout)


if __name__ == "__main__":
    print(json.dumps(describe()))
