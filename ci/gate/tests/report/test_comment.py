"""The comment on a pull request: what GitHub says of the run, and a stranger's report."""

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gate_repository import run
from perfgate.report.comment import harmless

PACKAGE = Path(__file__).resolve().parents[2]
URL = "https://github.com/o/r/actions/runs/1"


@pytest.fixture
def comment(tmp_path):
    """Run the command as the action's step does, with Python alone."""

    def comment(report="# PASSED: no regression found\n", changed=("a.py",)):
        (tmp_path / "changed.txt").write_text("".join(f"{name}\n" for name in changed))
        if report is not None:
            (tmp_path / "gate.md").write_text(report)
        # -S leaves out all that is installed.
        command = [sys.executable, "-S", "-m", "perfgate", "comment", "--report", "gate.md"]
        command += ["--conclusion", "failure", "--run", URL, "--changed", "changed.txt"]
        return run(command, tmp_path, PYTHONPATH=str(PACKAGE)).stdout

    return comment


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


def test_a_run_without_a_report_says_so_and_a_link_is_not_followed(comment, tmp_path):
    assert "The gate made no report." in comment(report=None)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "gate.md").symlink_to(tmp_path / "secret")
    assert "secret" not in comment(report=None)


def test_a_report_of_any_size_fits_and_the_conclusion_is_githubs(comment):
    said = comment("# PASSED: no regression found\n" * 1_000_000)
    assert said.startswith(f"GitHub's conclusion of [the run]({URL}): **failure**.")
    assert len(said) < 65_536
    assert said.endswith(
        "# PASSED: no regression found\n\n(cut here; the run has the whole report)\n"
    )


# Pieces of Markdown that make text live, or that begin or end code where a careless reader of
# Markdown would not see it.
PIECES = [
    "@somebody", "&#64;somebody", "<img src=x>", "<!-- x -->", "![x](http://evil.example/x.png)",
    "[x](javascript:alert)", "\n[x]: http://evil.example\n", "https://evil.example", "<div>",
    "www.evil.example", "fixes #12", "o/r#12", "GH-12", "a\u202eb\x1b[0m", "`", "``", "\n```\n",
    "\n````\n", "\n~~~\n", "\n~~~ a`b\n", "\n- ```\n", "\n  ```\n", "\n> ```\n", "\\", "\\|", "|",
    "$", "\n", "\n\n", "\n| a | b |\n|---|---|\n", "\n- ", "\n    ", "\t", "<details>",
    "\n</details>\n",
    "\n<details><summary>Details</summary>\n", "<details><summary>@x</summary>", "<!--", "<pre>",
]  # fmt: skip
LIVE = re.compile(r"@\w|://|www\.|#\d|GH-\d|[\x00-\x09\x0b-\x1f\u202a-\u202e]")
MARKDOWN = MarkdownIt("commonmark").enable("table")


def leaves(markdown):
    """Return the kind and the content of everything that GitHub would show."""
    for block in MARKDOWN.parse(markdown):
        yield from ((each.type, each.content) for each in block.children or [block])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_nothing_in_a_report_calls_links_or_loads(text):
    for kind, content in leaves(harmless(text)):
        assert kind not in ("html_inline", "link_open", "image")
        if kind == "html_block":
            fold = "<details><summary>Details</summary>"
            assert not content.replace(fold, "").replace("</details>", "").strip()
        elif kind in ("text", "text_special"):
            # Markdown itself has turned the entity of `<` into the character, which is text by now.
            assert not LIVE.search(content)


REPORT = """# FAILED: 1 regressed; 3 benchmarks in all

| a | `b.c(10)` | 1.2 (1.1 to 1.3) |
|---|---|---|
| a & b < c | `d.e('f\\|g')` | **x** |

<details><summary>Details</summary>

- `sums.py:f.<locals>.<genexpr>` calls `@cache` &c.

</details>

```sh
perfgate --base a@b --bench '^a\\.b$' && echo #1
```

~~~~diff
+```
~~~~
"""


def test_code_and_all_other_text_reads_as_it_was():
    assert list(leaves(harmless(REPORT))) == list(leaves(REPORT))
