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
from perfgate.source.git import WORKING_TREE
from perfgate.source.sides import checked_out

PROJECT = Path(__file__).parent / "fixtures" / "asv_project"
ROOT = Path(__file__).resolve().parents[3]
WORKERS = Path(__file__).parent / "fixtures" / "workers"
LAST_RESORT_S = 1_200  # a limit for what hangs: no test may depend on how busy the machine is
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


def run(command, cwd=None, code=0, **variables):
    """Run a command with these variables. Unless `code` is None, it must end with this code."""
    options = {"capture_output": True, "text": True, "timeout": LAST_RESORT_S}
    done = subprocess.run(command, cwd=cwd, env=os.environ | variables, check=False, **options)
    assert code in (None, done.returncode), f"{command}\n{done.stdout}{done.stderr}"
    return done


def install(place, *packages):
    """Make an environment that has these packages and pip, and return its folder of programs."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.is_file():
        pytest.skip("uv is missing: pip install uv")
    run([uv, "venv", "--quiet", "--seed", "--python", sys.executable, place])
    command = [uv, "pip", "install", "--quiet", "--python", place / "bin" / "python"]
    # What an earlier installation has fetched needs no network.
    if run([*command, "--offline", *packages], code=None).returncode:
        run([*command, *packages])
    return place / "bin"


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
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return run(["git", *identity, *arguments], self.root).stdout.strip()

    def commit(self, files=None):
        """Write these files, commit everything and return the hash."""
        for name, text in (files or {}).items():
            self.write(name, text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")
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
        assert not list(self.temporary.iterdir())
        report = self.root / ".asv" / "gate" / "gate.json"
        return Run(code, output.getvalue(), errors.getvalue(), report)

    def sides(self, base="main", head=WORKING_TREE):
        """Check out two commits, as the gate does."""
        return checked_out(self.root / "asv.conf.json", base, head)

    def accept(self, *arguments):
        """Run `perfgate accept ... >> accepted.toml`."""
        with (self.root / "accepted.toml").open("a") as file:
            accepted = self.perfgate("accept", *arguments)
            file.write(accepted.out)
        assert accepted.code == 0, accepted.err

    def gate(self, code, *arguments, base="main"):
        """Run the gate, which must end with this exit code, and return what it left behind."""
        run = self.perfgate("--base", base, *arguments)
        assert run.code == code, run.out + run.err
        return run

    def count(self, code, bench, *arguments, **options):
        """Run the gate without timing on some benchmarks."""
        return self.gate(code, "--no-timing", "--bench", bench, *arguments, **options)


@dataclass
class Run:
    """What one run of the gate left behind."""

    code: int
    out: str
    err: str
    report: Path

    @property
    def rows(self):
        """The report's rows by name."""
        return {row["name"]: row for row in json.loads(self.report.read_text())["rows"]}

    def verdicts(self):
        """The verdict of each row."""
        return {name: row["verdict"] for name, row in self.rows.items()}


def make_repository(folder):
    """Commit a copy of the fixture project."""
    shutil.copytree(PROJECT, folder / "project")
    repository = Repository(folder / "project")
    repository.git("init", "--quiet", "--initial-branch", "main")
    repository.commit({".gitignore": ".asv/\n__pycache__/\n", "gate.toml": RULES})
    return repository
