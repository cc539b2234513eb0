"""Post the gate's report as one comment on its pull request. Standard library only.

    perfgate comment --report report/gate.md

It runs in a second workflow, which starts when the gate's workflow ends and has a token that may
write. For pull requests from the repository itself, it may also run as the last step of the gate's
own job. The pull request's own code made the report, so the report is untrusted input. Which pull
request it belongs to is read from GitHub's event, never from the report.
"""

import argparse
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from perfgate.options import Parser, guarded

MARKER = "<!-- performance gate -->"
_AUTHOR = "github-actions[bot]"
_MAX_CHARS = 60_000  # GitHub takes 65,536
_MAX_PAGES = 30
_BREAK = "\u200b"  # a zero-width space, which breaks text that GitHub would turn into a link


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
        }
    except (KeyError, OSError, TypeError, ValueError):
        raise CommentError(
            "GITHUB_EVENT_PATH holds no event of a workflow_run or a pull_request; "
            "this runs as a step of such a workflow."
        ) from None


def post(report: Path, api: Api, run: dict[str, Any]) -> str:
    """Post or edit the one comment on the run's pull request, and say which."""
    number = pull_request_of(run, api)
    if number is None:
        return "no open pull request has this commit as its newest one; nothing to do"
    body = compose(read_report(report), str(run["html_url"]))
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


def compose(report: str, run_url: str) -> str:
    """Return the comment: the marker, a link to the run, and the report made harmless."""
    text = harmless(report) or "The gate made no report."
    if len(text) > _MAX_CHARS:
        text = (
            text[:_MAX_CHARS].rpartition("\n")[0] + "\n\n(cut here; the run has the whole report)"
        )
    return f"{MARKER}\n[Open the run]({run_url})\n\n{text}\n"


def harmless(text: str) -> str:
    """Disarm mentions, pictures, links, issue references and HTML in Markdown."""
    text = "".join(each for each in text if each == "\n" or each.isprintable())
    # Entities come first, because GitHub would turn them into the characters replaced below.
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(
        r"(@|\](?=[(:])|(?i:[a-z]:(?=//)|\bwww(?=\.)|\bGH-(?=\d))|#(?=\d))", rf"\1{_BREAK}", text
    )
    return text.strip()
