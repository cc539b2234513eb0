"""Post the gate's report as one comment on its pull request. Standard library only.

    perfgate comment --report report/gate.md

It runs in a second workflow, which starts when the gate's workflow ends and has a token that may
write. For pull requests from the repository itself, it may also run as the last step of the gate's
own job. The pull request's own code made the report, so the report is untrusted input. GitHub says
which pull request it belongs to, how the run ended, and which files the pull request changes.
"""

import argparse
import itertools
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from perfgate.options import Parser, guarded

MARKER = "<!-- performance gate -->"
_AUTHOR = "github-actions[bot]"
_MAX_CHARS = 60_000  # GitHub takes 65,536
_MAX_PAGES = 30
_RULES = ("gate.toml", "accepted.toml")
_BREAK = "\u200b"  # a zero-width space, which breaks text that GitHub would turn into a link
_LIVE = re.compile(r"(@|\$|\](?=[(:])|(?i:[a-z]:(?=//)|www(?=\.)|GH-(?=\d))|#(?=\d))")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,}) *(sh|diff)?[^`]*")
# A `|` would end the code in a table.
_CODE = re.compile(r"(`(?:[^`|\\]|\\[^`\\])+`)")
_FOLD = re.compile(r"<details><summary>[\w ]+</summary>|</details>")


class CommentError(Exception):
    """The comment can't be posted. The message says why in one sentence."""


def main(argv: Sequence[str]) -> int:
    """Run the command line. Any failure prints one sentence and gives an exit code."""
    return guarded(lambda: _run(_parse(argv)), "stopped")


def _run(options: argparse.Namespace) -> int:
    try:
        print(post(options.report, Api.from_environment(), _event()))
    except CommentError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "perfgate comment",
        "Post a report as one comment on its pull request. Later runs edit that comment. "
        "This command runs as a step of a GitHub workflow.",
    )
    parser.add_argument(
        "--report", type=Path, required=True, metavar="FILE", help="gate.md of the gate's run"
    )
    return parser.parse_args(argv)


@dataclass(frozen=True)
class Api:
    """GitHub's API for one repository."""

    url: str
    repository: str
    token: str

    @classmethod
    def from_environment(cls) -> Self:
        """Read the environment of a workflow's step."""
        try:
            return cls(
                url=os.environ["GITHUB_API_URL"],
                repository=os.environ["GITHUB_REPOSITORY"],
                token=os.environ["GITHUB_TOKEN"],
            )
        except KeyError as missing:
            raise CommentError(
                f"{missing.args[0]} is not set; run this command as a step of a GitHub workflow."
            ) from None

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send one request and return the answer.

        Raises:
            CommentError: the request failed, or no answer came.
        """
        request = urllib.request.Request(  # noqa: S310 - the address is GitHub's own environment's
            f"{self.url}/repos/{self.repository}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {self.token}",
                "Accept": "application/vnd.github+json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return json.load(answer)
        except (urllib.error.URLError, TimeoutError, ValueError) as error:
            raise CommentError(f"{method} {path.partition('?')[0]} failed: {error}") from None


def _event() -> dict[str, Any]:
    """Return the run that made the report: one of the gate's workflow, or this job's own."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text())
        if "workflow_run" in event:
            return event["workflow_run"]
        head = event["pull_request"]["head"]
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        run = f"{os.environ['GITHUB_REPOSITORY']}/actions/runs/{os.environ['GITHUB_RUN_ID']}"
        return {
            "head_repository": head["repo"],
            "head_branch": head["ref"],
            "head_sha": head["sha"],
            "html_url": f"{server}/{run}",
            "conclusion": os.environ["GATE_OUTCOME"],
        }
    except (KeyError, OSError, TypeError, ValueError):
        raise CommentError(
            "GITHUB_EVENT_PATH must name the event of a workflow_run, or of a pull_request with "
            "GATE_OUTCOME beside it; run this command as a step of such a workflow."
        ) from None


def post(report: Path, api: Api, run: dict[str, Any]) -> str:
    """Post or edit the one comment on the run's pull request, and say which."""
    number = pull_request_of(run, api)
    if number is None:
        return "no open pull request has this commit as its newest one; nothing to do"
    body = compose(read_report(report), run, changed_rules(number, api))
    found = _own_comment(number, api)
    if found is None:
        api.ask("POST", f"issues/{number}/comments", {"body": body})
        return f"commented on pull request {number}"
    api.ask("PATCH", f"issues/comments/{found}", {"body": body})
    return f"edited the comment on pull request {number}"


def pull_request_of(run: dict[str, Any], api: Api) -> int | None:
    """Return the open pull request whose newest commit was measured, if any.

    GitHub is asked, because the event lists no pull requests from forks.
    """
    if run["head_repository"] is None:  # the fork was deleted, and its pull request with it
        return None
    head = f"{run['head_repository']['owner']['login']}:{run['head_branch']}"
    query = urllib.parse.urlencode({"state": "open", "head": head, "per_page": 100})
    found = api.ask("GET", f"pulls?{query}")
    return next(
        (int(each["number"]) for each in found if each["head"]["sha"] == run["head_sha"]), None
    )


def changed_rules(number: int, api: Api) -> list[str] | None:
    """Return the workflows and files of rules that a pull request changes; None if unknown."""
    found: set[str] = set()
    for page in range(1, _MAX_PAGES + 1):
        files = api.ask("GET", f"pulls/{number}/files?per_page=100&page={page}")
        for each in files:
            found |= {each["filename"], each.get("previous_filename", each["filename"])}
        if len(files) < 100:
            return sorted(name for name in found if _decides(name))
    return None  # GitHub lists no more files


def _decides(name: str) -> bool:
    return name.startswith(".github/") or name.rpartition("/")[2] in _RULES


def _own_comment(number: int, api: Api) -> int | None:
    for page in range(1, _MAX_PAGES + 1):
        comments = api.ask("GET", f"issues/{number}/comments?per_page=100&page={page}")
        for each in comments:
            if each["user"]["login"] == _AUTHOR and each["body"].startswith(MARKER):
                return int(each["id"])
        if len(comments) < 100:
            break
    return None


def read_report(file: Path) -> str:
    """Read as much of the untrusted file as fits into a comment. Without a file, return nothing."""
    if file.is_symlink() or not file.is_file():
        return ""
    with file.open("rb") as opened:
        return opened.read(4 * _MAX_CHARS).decode(errors="replace")


def compose(report: str, run: dict[str, Any], changed: Sequence[str] | None) -> str:
    """Return the comment: what GitHub says of the run, and the report made harmless.

    Args:
        report: the untrusted report.
        run: the run that made it, as GitHub's event describes it.
        changed: the result of `changed_rules`.
    """
    if changed is None:
        rules = (
            "The pull request changes more files than GitHub lists. Check its workflows and rules."
        )
    elif changed:
        names = ", ".join(f"`{name}`" for name in changed)
        rules = harmless(f"**The pull request changes how it is measured:** {names}.")
    else:
        rules = "The pull request changes no workflow, `gate.toml` or `accepted.toml`."
    lines = [
        MARKER,
        f"GitHub's conclusion of [the run]({run['html_url']}): **{run['conclusion']}**. {rules}",
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
    return "\n".join(lines).rstrip() + "\n"


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
