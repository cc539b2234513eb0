"""Write the gate's report as a harmless comment on its pull request. Standard library only.

    perfgate comment --report report/gate.md --conclusion failure --run URL --changed FILE

The pull request's own code made the report, so the report is untrusted input. GitHub says how the
run ended, and which files the pull request changes. `ci/gate/comment/action.yml` asks for both and
posts what this command prints.
"""

import argparse
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfgate.options import Parser, guarded

_MAX_CHARS = 60_000  # GitHub takes 65,536
_MAX_FILES = 3_000  # GitHub lists no more
_RULES = ("gate.toml", "accepted.toml")
_BREAK = "\u200b"  # a zero-width space, which breaks text that GitHub would turn into a link
_LIVE = re.compile(r"(@|\$|\](?=[(:])|(?i:[a-z]:(?=//)|www(?=\.)|GH-(?=\d))|#(?=\d))")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,}) *(sh|diff)?[^`]*")
# A `|` would end the code in a table.
_CODE = re.compile(r"(`(?:[^`|\\]|\\[^`\\])+`)")
_FOLD = re.compile(r"<details><summary>[\w ]+</summary>|</details>")


def main(argv: Sequence[str]) -> int:
    """Run the command line."""
    return guarded(lambda: _print_comment(_parse(argv)), "stopped")


def _print_comment(options: argparse.Namespace) -> int:
    """Print what GitHub says of the run, and the report made harmless."""
    report = ""
    if options.report.is_file() and not options.report.is_symlink():
        with options.report.open("rb") as file:  # as much of it as fits into a comment
            report = file.read(4 * _MAX_CHARS).decode(errors="replace")
    lines = [
        f"GitHub's conclusion of [the run]({options.run}): **{options.conclusion}**. "
        + _name_rules(options.changed.read_text().splitlines()),
        "The pull request's own code wrote what follows." if report else "The gate made no report.",
        "",
    ]
    length = sum(map(len, lines))
    for piece in _harmless_pieces(report):
        length += len(piece) + 1
        if length > _MAX_CHARS:
            lines.append("\n(cut here; the run has the whole report)")
            break
        lines.append(piece)
    print("\n".join(lines).rstrip())
    return 0


def _name_rules(changed: Sequence[str]) -> str:
    """Say which of the changed files decide how the pull request is measured."""
    if len(changed) >= _MAX_FILES:
        return (
            "The pull request changes more files than GitHub lists. Check its workflows and rules."
        )
    rules = {
        f"`{name}`"
        for name in changed
        if name.startswith(".github/") or name.rpartition("/")[2] in _RULES
    }
    if not rules:
        return "The pull request changes no workflow, `gate.toml` or `accepted.toml`."
    names = ", ".join(sorted(rules))
    return harmless(f"**The pull request changes how it is measured:** {names}.")


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


def harmless(text: str) -> str:
    """Disarm mentions, pictures, links, issue references and HTML in Markdown. Keep code as it is.

    GitHub looks for none of these in code. But it must take the same text for code as this function
    does. So what is not code here keeps no backtick and no tilde, which could begin code there.
    """
    return "\n".join(_harmless_pieces(text)).strip()


def _harmless_pieces(text: str) -> Iterator[str]:
    """Yield the lines outside of code blocks, and each block as a whole."""
    text = text.expandtabs(4)
    lines = iter("".join(each for each in text if each == "\n" or each.isprintable()).split("\n"))
    for line in lines:
        if fence := _FENCE.fullmatch(line):
            yield _block(lines, fence[1], fence[2] or "")
        elif _FOLD.fullmatch(line):
            yield f"\n{line}\n"  # up to an empty line, GitHub would take code for HTML
        else:
            parts = _CODE.split(line)
            yield "".join(
                part if number % 2 else _disarmed(part) for number, part in enumerate(parts)
            )


def _block(lines: Iterator[str], fence: str, language: str) -> str:
    """Read a code block up to its end, and return it between fences that it can't close."""
    end = re.compile(rf" {{0,3}}{fence}{fence[0]}* *")
    block = list(itertools.takewhile(lambda line: not end.fullmatch(line), lines))
    longest = max((len(run) for line in block for run in re.findall("`+", line)), default=0)
    own = "`" * max(3, longest + 1)
    return "\n".join([own + language, *block, own])


def _disarmed(text: str) -> str:
    text = _LIVE.sub(rf"\1{_BREAK}", text)
    for each in "&<`~\\":
        text = text.replace(each, f"&#{ord(each)};")
    return text
