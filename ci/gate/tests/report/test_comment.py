"""The comment on a pull request: what GitHub says of the run, and a stranger's report."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from perfgate.report.comment import compose

PACKAGE = Path(__file__).resolve().parents[2]
URL = "https://github.com/o/r/actions/runs/1"


@pytest.fixture
def comment(tmp_path):
    """Run the command as the action's step does, with Python alone."""

    def run(report="# PASSED: no regression found\n", changed=("a.py",)):
        (tmp_path / "changed.txt").write_text("".join(f"{name}\n" for name in changed))
        if report is not None:
            (tmp_path / "gate.md").write_text(report)
        # -S leaves out all that is installed.
        command = [sys.executable, "-S", "-m", "perfgate", "comment", "--report", "gate.md"]
        command += ["--conclusion", "failure", "--run", URL, "--changed", "changed.txt"]
        environment = {"PYTHONPATH": str(PACKAGE)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["ci/gate/perfgate/hlo.py", "docs/gate.toml.md"], "changes no workflow, `gate.toml`"),
        ([".github/workflows/@x.yml"], "measured:** `.github/workflows/@x.yml`."),
        (["a.py"] * 150 + ["ci/accepted.toml", "gate.toml"], "`ci/accepted.toml`, `gate.toml`."),
        (["a.py"] * 3_000, "changes more files than GitHub lists"),
    ],
)
def test_a_change_of_the_rules_is_named(comment, files, said):
    assert said in comment(changed=files)


def test_the_conclusion_is_githubs_and_not_the_reports(comment):
    said = comment("# PASSED: no regression found\n")
    assert said.startswith(f"GitHub's conclusion of [the run]({URL}): **failure**.")
    assert said.endswith("```\n# PASSED: no regression found\n```\n")


def test_a_run_without_a_report_says_so_and_a_link_is_not_followed(comment, tmp_path):
    assert "The gate made no report." in comment(report=None)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "gate.md").symlink_to(tmp_path / "secret")
    assert "secret" not in comment(report=None)


def test_a_report_of_any_size_fits(comment):
    said = comment("a line of a report\n" * 1_000_000)
    assert len(said) < 65_536
    assert "cut here" in said


# Pieces of Markdown that make text live, or that begin or end code.
PIECES = [
    "@somebody", "<img src=x>", "![x](http://evil.example/x.png)", "fixes #12", "a\u202eb\x1b[0m",
    "`", "``", "\n```\n", "\n````\n", "\n~~~\n", "\n- ```\n", "\n> ```\n", "\r```\r", "\\",
    "\n", "\n\n", "\n    ", "\t", "<details>", "<!--", "</pre>",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join))
def test_a_report_is_one_block_of_code_that_nothing_in_it_ends(text):
    *_, last = MarkdownIt("commonmark").parse(compose(text, "failure", URL, []))
    shown = "".join(
        each for each in text.replace("<details>", "") if each.isprintable() or each == "\n"
    )
    assert (last.type, last.content) == ("fence", f"{shown.strip()}\n")
