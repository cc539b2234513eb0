"""A repository for the gate's tests: the fixture project under git, and the gate run on it."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfgate import machine
from perfgate.cli import main

PROJECT = Path(__file__).parent / "fixtures" / "asv_project"
ROOT = Path(__file__).resolve().parents[3]
WORKERS = Path(__file__).parent / "fixtures" / "workers"
LAST_RESORT_S = 1_200  # a limit for what hangs: no test may depend on how busy the machine is
FAKE_UV = """#!/bin/sh
''''exec "{python}" "$0" "$@"  # a shell's line, and for Python a text: a path may hold a space '''
import pathlib, sys
named = sys.argv.index("--python") + 1 if "--python" in sys.argv else -1
place = pathlib.Path(sys.argv[-1] if sys.argv[1] == "venv" else sys.argv[named])
log = pathlib.Path(__file__).with_name("log.txt")
log.write_text((log.read_text() if log.exists() else "") + " ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "venv":
    (place / "bin").mkdir(parents=True)
elif sys.argv[1] == "export":
    pathlib.Path(sys.argv[-1]).write_text("")
elif sys.argv[1] == "pip":
    package = sys.argv[sys.argv.index("asv_runner") - 1]
    paths = f"export PYTHONPATH='{{package}}:{workers}'"
    place.write_text(f"#!/bin/sh\\n{{paths}}\\nexec \\"{python}\\" \\"$@\\"\\n")
    place.chmod(0o755)
"""
# Tests run on loaded machines: wide margins and short slices. What is planted is far
# outside them.
RULES = """
[timing]
pair_s = 0.1
sample_s = 0.002
[[slowdown]]
benchmark = ""
fail_ratio = 1.3
pass_ratio = 2.2
[[metric]]
name = "track"
benchmark = "track_(mean|average|note|found|ours|sum|cores|infinity)"
worse = "more"
tolerance = 0.01
clock = true
"""
# More rules, for tests in which a value's confirmation by eight new processes is not the question.
UNCONFIRMED = """
[[metric]]
name = "track"
benchmark = "track_(mean|sum)$"
worse = "more"
clock = false
tolerance = 0.01
"""


@dataclass
class Repository:
    """The fixture project as a git repository."""

    root: Path

    def write(self, name, text):
        """Write a file of the working tree."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def replace(self, name, old, new):
        """Change a file of the working tree."""
        text = (self.root / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def git(self, *arguments):
        """Run git there."""
        identity = {
            f"GIT_{who}_{what}": "a@b.c"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=os.environ | identity,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, message="change"):
        """Commit everything and return the hash."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    @property
    def temporary(self):
        """Where the gate's temporary files lie; there is nothing else there."""
        folder = self.root.parent / "temporary"
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def environment(self):
        """The variables that the gate runs with there."""
        return {"PYTHONPATH": str(WORKERS), "TMPDIR": str(self.temporary)}

    def perfgate(self, *arguments):
        """Run perfgate from the repository's root, as a user does but in this process.

        A process of its own would load NumPy and SciPy each time, which takes longer than the rest
        of most runs.
        """
        output = io.StringIO()
        errors = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            patch.chdir(self.root)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.setattr(tempfile, "tempdir", str(self.temporary))
            patch.setattr(machine, "_WATCHING_S", 0.1)
            code = main(arguments)
        return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())

    def accept(self, *arguments):
        """Run `perfgate accept ... >> accepted.toml`."""
        with (self.root / "accepted.toml").open("a") as file:
            done = self.perfgate("accept", *arguments)
            file.write(done.stdout)
        assert done.returncode == 0, done.stderr

    def gate(self, *arguments):
        """Run the gate, and return what it left behind."""
        done = self.perfgate(*arguments)
        report = self.root / ".asv" / "gate" / "gate.json"
        return Run(done.returncode, done.stdout, done.stderr, report, self.temporary)


@dataclass
class Run:
    """What one run of the gate left behind."""

    code: int
    out: str
    err: str
    report: Path
    temporary: Path

    @property
    def rows(self):
        """The report's rows by name."""
        return {row["name"]: row for row in json.loads(self.report.read_text())["rows"]}

    def verdicts(self):
        """The verdict of each row."""
        return {name: row["verdict"] for name, row in self.rows.items()}


def make_repository(folder, rules=RULES):
    """Commit a copy of the fixture project."""
    shutil.copytree(PROJECT, folder / "project")
    repository = Repository(folder / "project")
    repository.write(".gitignore", ".asv/\n__pycache__/\n")
    repository.write("gate.toml", rules)
    repository.git("init", "--quiet", "--initial-branch", "main")
    repository.commit("start")
    return repository


def write_fake_uv(folder):
    """Write a `uv` that needs no network: its environments are this interpreter and a path.

    Return the file that it notes its calls in.
    """
    folder.mkdir()
    tool = folder / "uv"
    tool.write_text(FAKE_UV.format(python=sys.executable, workers=WORKERS))
    tool.chmod(0o755)
    return folder / "log.txt"
