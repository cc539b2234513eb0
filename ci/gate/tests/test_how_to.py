"""The commands of the page "Use the gate", as a reader runs them in a repository of their own."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from gate_repository import ROOT, run

PAGE = ROOT / "docs" / "gate" / "how-to.md"
SHELL = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def test_each_command_of_the_page_runs(repository):
    # The branch `topic` makes a benchmark slower that `main` and `v1.2` have.
    (repository.root / "benchmarks" / "basics.py").unlink()
    table = json.dumps({"repo": "..", "benchmark_dir": ".", "project": "smallsum"})
    repository.commit({"benchmarks/sums.py": SUITE, "benchmarks/asv.conf.json": table})
    repository.git("tag", "v1.2")
    repository.commit({"README.md": "Sums, quickly.\n"})
    repository.replace("smallsum/__init__.py", "REPEATS = 1", "REPEATS = 8")
    repository.commit()
    repository.git("branch", "topic")
    repository.git("update-ref", "refs/remotes/origin/main", "main")
    repository.write("smallsum/other.py", "")  # a change that no benchmark uses
    # the suite's own Python, which has nothing of the gate's
    run([sys.executable, "-m", "venv", "--without-pip", ".venv"], repository.root)

    found = SHELL.findall(PAGE.read_text())
    lines = [line for mark, code in found if not mark for line in code.splitlines()]
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
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line, (part, code, said) in zip(lines, expected, strict=True):
        assert part in line
        shell = ["bash", "-e", "-o", "pipefail", "-c", line.replace("BENCHMARK", f"'{SLOW}'")]
        done = run(shell, repository.root, code, PATH=path, PYTHONPATH=str(ROOT))
        assert said in done.stdout + done.stderr, line + done.stdout + done.stderr
    installed = (repository.root / ".venv").glob("lib/python*/site-packages/*")
    assert not list(installed), "the gate installs nothing into the suite's own Python"
