"""The commands of the page "Use the gate", as a reader runs them in a repository of their own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gate_repository import LAST_RESORT_S, ROOT, make_repository

PAGE = ROOT / "docs" / "gate" / "how-to.md"
BLOCK = re.compile(
    r"^(?P<mark><!-- not run: [^\n]+ -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SUITE = """import smallsum


class Total:
    params = ([1_000],)

    def setup(self, size):
        self.values = smallsum.table(size)

    def time_total(self, size):
        smallsum.total(self.values)


def time_throughput():
    smallsum.table(10)
"""
SLOW = "sums.Total.time_total(1000)"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PAGE.is_file(), reason="perfgate's own sources come without the page"),
]


def blocks(language):
    found = BLOCK.finditer(PAGE.read_text())
    return [each["code"] for each in found if each["language"] == language and not each["mark"]]


@pytest.fixture
def repository(tmp_path):
    """A project whose branch `topic` makes a benchmark slower that `main` and `v1.2` have."""
    made = make_repository(tmp_path)
    (made.root / "benchmarks" / "basics.py").unlink()
    made.write("benchmarks/sums.py", SUITE)
    table = {"repo": "..", "benchmark_dir": ".", "project": "smallsum"}
    made.write("benchmarks/asv.conf.json", json.dumps(table))
    made.commit()
    made.git("tag", "v1.2")
    made.write("README.md", "Sums, quickly.\n")
    made.commit("describe it")
    made.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 8")
    made.commit("repeat")
    made.git("branch", "topic")
    made.git("update-ref", "refs/remotes/origin/main", "main")
    # the suite's own Python, which has nothing of the gate's
    own = [sys.executable, "-m", "venv", "--without-pip", ".venv"]
    subprocess.run(own, cwd=made.root, check=True)
    return made


def run(command, repository):
    """Run a line of shell with the programs of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command],
        cwd=repository.root,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LAST_RESORT_S,
        check=False,
    )


def test_each_command_of_the_page_runs(repository):
    lines = [line for code in blocks("sh") for line in code.splitlines()]
    # What the page says of each, in its order.
    expected = [
        ("perfgate --base origin/main", 0, "no regression found"),
        ("--suite-config", 0, "no regression found"),
        ("--bench 'throughput'", 0, "no regression found; 1 benchmark in all"),
        ("--no-timing", 0, "Timing was switched off"),
        ("--head topic", 1, "# FAILED: 1 regressed"),
        (">> accepted.toml", 0, "Paste this into accepted.toml"),
        ("git bisect start", 0, "Bisecting"),
        ("git bisect run", 0, "is the first bad commit"),
        ("git bisect reset", 0, ""),
        ("--base HEAD", 0, "same code"),
    ]
    assert len(lines) == len(expected)
    for line, (part, code, said) in zip(lines, expected, strict=True):
        assert part in line
        done = run(line.replace("BENCHMARK", f"'{SLOW}'"), repository)
        assert done.returncode == code, line + done.stdout + done.stderr
        assert said in done.stdout + done.stderr, line + done.stdout + done.stderr
