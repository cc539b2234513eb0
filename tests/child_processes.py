"""Programs that tests run in processes of their own."""

import os
import subprocess
import sys


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


def python(*words, **options):
    """Run Python with these words, as `run` does."""
    return run(sys.executable, *words, **options)
