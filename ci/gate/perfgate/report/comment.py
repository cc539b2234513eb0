"""Post the gate's report as one comment on its pull request. Standard library only.

    perfgate comment --report report/gate.md

It runs in a workflow that starts when the gate's workflow ends, with a token that may write, or as
the last step of the gate's own job where the pull request comes from the repository itself. The
pull request's own code made the report, so the report is untrusted text. Only GitHub says which
pull request is meant.
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
_BREAK = "\u200b"  # has no width, and ends what GitHub would make a link of


class CommentError(Exception):
    """The comment can't be posted; the message is one sentence."""


def main(argv: Sequence[str]) -> int:
    """Run the command line; what goes wrong gives one sentence and an exit code."""
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
        "Post a report as one comment on its pull request, which later runs edit. "
        "Runs as a step of a GitHub workflow.",
    )
    parser.add_argument(
        "--report", type=Path, required=True, metavar="FILE", help="the gate.md of the gate's run"
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
        """Read what a workflow's step is given."""
        try:
            return cls(
                url=os.environ["GITHUB_API_URL"],
                repository=os.environ["GITHUB_REPOSITORY"],
                token=os.environ["GITHUB_TOKEN"],
            )
        except KeyError as missing:
            raise CommentError(
                f"{missing.args[0]} is not set; this runs as a step of a workflow."
            ) from None

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send one request and return the answer.

        Raises:
            CommentError: the answer is no success, or none came.
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
    """Return the run that the report is of: of the gate's workflow, or the one of this very job."""
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
    """Write the one comment of the run's pull request and say what was done."""
    number = pull_request_of(run, api)
    if number is None:
        return "no open pull request is at this commit any more; nothing to do"
    body = compose(read_report(report), str(run["html_url"]))
    found = _own_comment(number, api)
    if found is None:
        api.ask("POST", f"issues/{number}/comments", {"body": body})
        return f"commented on pull request {number}"
    api.ask("PATCH", f"issues/comments/{found}", {"body": body})
    return f"edited the comment on pull request {number}"


def pull_request_of(run: dict[str, Any], api: Api) -> int | None:
    """Return the open pull request whose newest commit was measured.

    The event itself lists no pull requests of forks.
    """
    if run["head_repository"] is None:  # the fork is gone, and its pull request with it
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
    """Read as much of the untrusted file as fits; return nothing where there is none."""
    if file.is_symlink() or not file.is_file():
        return ""
    with file.open("rb") as opened:
        return opened.read(4 * _MAX_CHARS).decode(errors="replace")


def compose(report: str, run_url: str) -> str:
    """Return the comment: the marker, where the report comes from, and the report made harmless."""
    text = harmless(report) or "The gate made no report."
    if len(text) > _MAX_CHARS:
        text = text[:_MAX_CHARS].rpartition("\n")[0] + "\n\n(cut here; the run has all of it)"
    return f"{MARKER}\n[What this run says]({run_url})\n\n{text}\n"


def harmless(text: str) -> str:
    """Disarm mentions, pictures, links, issue references and HTML in Markdown."""
    text = "".join(each for each in text if each == "\n" or each.isprintable())
    # An entity would become what is looked for below.
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(
        r"(@|\](?=[(:])|(?i:[a-z]:(?=//)|\bwww(?=\.)|\bGH-(?=\d))|#(?=\d))", rf"\1{_BREAK}", text
    )
    return text.strip()
