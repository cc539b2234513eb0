"""Tell which packages a Python has. Standard library only, because that Python runs this file."""

import importlib.metadata
import json
import platform
import re
import subprocess
import sys
from typing import Any


def describe() -> dict[str, Any]:
    """Return the version of this Python, and of each package with its commit if it has one."""
    packages = {}
    for each in importlib.metadata.distributions():
        source = each.read_text("direct_url.json") or ""
        packages[normal(each.metadata["Name"])] = [each.version, source]
    return {"version": platform.python_version(), "build": sys.version, "packages": packages}


def normal(name: str) -> str:
    """Return a package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


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
