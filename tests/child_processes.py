"""Programs that tests run in processes of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def run(*words, code=0, cwd=None, **variables):
    """Run a program with these words to its end, which must be this exit code."""
    done = subprocess.run(
        [*map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=1_200,
        env=os.environ | variables,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def python_of(version):
    """Return the path of a Python of a version such as "3.13", from PATH or pyenv, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    found = shutil.which(f"python{version}")
    for path in (found, *pyenv.glob(f"versions/{version}.*/bin/python")):
        # pyenv's own command of that name fails if another version is chosen.
        if (
            path
            and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
        ):
            return path
    return None


def python(*words, **options):
    """Run Python with these words, as `run` does."""
    return run(sys.executable, *words, **options)
