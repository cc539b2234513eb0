"""Write the gate's report as a harmless comment on its pull request. Standard library only.

    perfgate comment --report report/gate.md --conclusion failure --run URL --changed FILE

The pull request's own code made the report, so the report is untrusted input. GitHub says how the
run ended, and which files the pull request changes. `ci/gate/comment/action.yml` asks for both and
posts what this command prints.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from perfgate.options import Parser, guarded

_MAX_CHARS = 60_000  # GitHub takes 65,536
_MAX_FILES = 3_000  # GitHub lists no more
_RULES = ("gate.toml", "accepted.toml")
_FOLDS = re.compile("</?(?:details|summary)>")  # nothing folds in a block of code


def main(argv: Sequence[str]) -> int:
    """Run the command line."""
    return guarded(lambda: _run(_parse(argv)), "stopped")


def _run(options: argparse.Namespace) -> int:
    changed = options.changed.read_text().splitlines()
    print(compose(read_report(options.report), options.conclusion, options.run, changed), end="")
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "perfgate comment",
        "Print a report as a comment that is safe to post on its pull request. The action in "
        "ci/gate/comment posts it.",
    )
    parser.add_argument(
        "--report", type=Path, required=True, metavar="FILE", help="gate.md of the gate's run"
    )
    parser.add_argument(
        "--conclusion", required=True, metavar="WORD", help="GitHub's conclusion of the run"
    )
    parser.add_argument("--run", required=True, metavar="URL", help="the run's page on GitHub")
    parser.add_argument(
        "--changed",
        type=Path,
        required=True,
        metavar="FILE",
        help="names of the files that the pull request changes, one in each line",
    )
    return parser.parse_args(argv)


def read_report(file: Path) -> str:
    """Read the start of the untrusted file. Without a file, return nothing."""
    if file.is_symlink() or not file.is_file():
        return ""
    with file.open("rb") as opened:
        return opened.read(4 * _MAX_CHARS).decode(errors="replace")


def compose(report: str, conclusion: str, run: str, changed: Sequence[str]) -> str:
    """Return the comment: what GitHub says of the run, and the report as a block of code.

    GitHub looks for no mention, link, picture or HTML in code, and nothing in the block can end it.

    Args:
        report: the untrusted report.
        conclusion: how the run that made it ended.
        run: the address of its page.
        changed: the files that the pull request changes.
    """
    of_rules = {
        name for name in changed if name.startswith(".github/") or name.rpartition("/")[2] in _RULES
    }
    if len(changed) >= _MAX_FILES:
        rules = (
            "The pull request changes more files than GitHub lists. Check its workflows and rules."
        )
    elif of_rules:
        names = ", ".join(f"`{_printable(name).replace('`', '')}`" for name in sorted(of_rules))
        rules = f"**The pull request changes how it is measured:** {names}."
    else:
        rules = "The pull request changes no workflow, `gate.toml` or `accepted.toml`."
    first = f"GitHub's conclusion of [the run]({run}): **{conclusion}**. {rules}"
    if not report:
        return f"{first}\nThe gate made no report.\n"
    text = _printable(_FOLDS.sub("", report)).strip()
    if len(text) > _MAX_CHARS:
        text = f"{text[:_MAX_CHARS]}\n(cut here; the run has the whole report)"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{first}\nThe pull request's own code wrote what follows.\n\n{fence}\n{text}\n{fence}\n"


def _printable(text: str) -> str:
    """Leave out characters that hide text or turn it around."""
    return "".join(each for each in text if each == "\n" or each.isprintable())
