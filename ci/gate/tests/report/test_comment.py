"""The comment on a pull request, against a local server that plays GitHub's API."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from perfgate.report.comment import MARKER, harmless

PACKAGE = Path(__file__).resolve().parents[2]
OURS, STRANGER = "github-actions[bot]", "stranger"
RUN = {
    "head_sha": "a" * 40,
    "head_branch": "topic",
    "head_repository": {"owner": {"login": "forker"}},
    "html_url": "https://github.com/o/r/actions/runs/1",
    "conclusion": "failure",
}


class Github(BaseHTTPRequestHandler):
    """Pull requests and comments of one repository; what is asked is noted in `server.asked`."""

    def do_GET(self):
        self.note()
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path == "/repos/o/r/pulls":
            pulls = [
                pull
                for pull in self.server.pulls
                if (query["head"], query["state"]) == ("forker:topic", "open")
            ]
            return self.reply(200, pulls)
        lists = {"issues/7/comments": self.server.comments, "pulls/7/files": self.server.files}
        if (found := lists.get(address.path.removeprefix("/repos/o/r/"))) is not None:
            start, count = (int(query["page"]) - 1) * int(query["per_page"]), int(query["per_page"])
            return self.reply(200, found[start : start + count])
        return self.reply(404, {"message": "Not Found"})

    def do_POST(self):
        body = self.note()["body"]
        comment = {"id": 1000 + len(self.server.comments), "user": {"login": OURS}, "body": body}
        self.server.comments.append(comment)
        self.reply(201, comment)

    def do_PATCH(self):
        body = self.note()["body"]
        number = int(self.path.rpartition("/")[2])
        comment = next(each for each in self.server.comments if each["id"] == number)
        comment["body"] = body
        self.reply(200, comment)

    def note(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        return json.loads(self.rfile.read(length)) if length else {}

    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def github():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Github)
    server.asked, server.comments, server.files = [], [], [{"filename": "a.py"}]
    server.pulls = [
        {"number": 6, "head": {"sha": "b" * 40}},
        {"number": 7, "head": {"sha": "a" * 40}},
    ]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def comment(github, tmp_path, report="# PASSED: no regression found\n", event=None, **changes):
    """Run the command as the workflow's step does, with Python alone."""
    (tmp_path / "event.json").write_text(json.dumps(event or {"workflow_run": RUN}))
    file = tmp_path / "gate.md"
    if report is not None:
        file.write_text(report)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PACKAGE),
        "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_TOKEN": "secret",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
    }
    # -S leaves out all that is installed.
    command = [sys.executable, "-S", "-m", "perfgate", "comment", "--report", str(file)]
    return subprocess.run(
        command,
        cwd=tmp_path,
        env=environment | changes,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_gates_own_job_may_comment_too(github, tmp_path):
    head = {"repo": RUN["head_repository"], "ref": RUN["head_branch"], "sha": RUN["head_sha"]}
    event = {"pull_request": {"head": head}}
    done = comment(github, tmp_path, event=event, GITHUB_RUN_ID="42", GATE_OUTCOME="success")
    assert (done.returncode, done.stdout) == (0, "commented on pull request 7\n"), done.stderr
    said = "GitHub's conclusion of [the run](https://github.com/o/r/actions/runs/42): **success**."
    assert said in github.comments[0]["body"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["ci/gate/perfgate/hlo.py", "docs/gate.toml.md"], "changes no workflow, `gate.toml`"),
        ([".github/workflows/@x.yml"], "measured:** `.github/workflows/@x.yml`."),
        (["a.py"] * 150 + ["ci/accepted.toml", "gate.toml"], "`ci/accepted.toml`, `gate.toml`."),
        (["a.py"] * 3_000, "changes more files than GitHub lists"),
    ],
)
def test_a_change_of_the_rules_is_named(github, tmp_path, files, said):
    github.files = [{"filename": name} for name in files]
    assert comment(github, tmp_path).returncode == 0
    assert said in github.comments[0]["body"]


def test_a_file_of_rules_that_is_moved_away_is_named(github, tmp_path):
    github.files = [{"filename": "old.txt", "previous_filename": "ci/gate.toml"}]
    assert comment(github, tmp_path).returncode == 0
    assert "`ci/gate.toml`." in github.comments[0]["body"]


def test_one_comment_is_made_and_then_edited(github, tmp_path):
    others = [{"id": number, "user": {"login": STRANGER}, "body": "hm"} for number in range(150)]
    others.append({"id": 151, "user": {"login": STRANGER}, "body": f"{MARKER}\nmine"})
    github.comments = [*others]
    first = comment(github, tmp_path)
    assert (first.returncode, first.stdout) == (0, "commented on pull request 7\n"), first.stderr
    # The conclusion is GitHub's and not the report's.
    assert f"[the run]({RUN['html_url']}): **failure**." in github.comments[-1]["body"]
    second = comment(github, tmp_path, "# FAILED: 1 regressed\n")
    assert second.stdout == "edited the comment on pull request 7\n", second.stderr
    assert github.comments[:-1] == others
    ours = [each["body"] for each in github.comments if each["user"]["login"] == OURS]
    assert len(ours) == 1
    assert ours[0].startswith(MARKER)
    assert "# FAILED: 1 regressed" in ours[0]
    assert {each[2] for each in github.asked} == {"Bearer secret"}


def test_a_pull_request_that_has_moved_on_gets_no_comment(github, tmp_path):
    github.pulls = [{"number": 7, "head": {"sha": "c" * 40}}]
    done = comment(github, tmp_path)
    assert (done.returncode, github.comments) == (0, [])
    assert "nothing to do" in done.stdout


def test_a_run_without_a_report_says_so_and_a_link_is_not_followed(github, tmp_path):
    assert comment(github, tmp_path, report=None).returncode == 0
    assert "The gate made no report." in github.comments[0]["body"]
    (tmp_path / "gate.md").symlink_to(tmp_path / "event.json")
    assert comment(github, tmp_path, report=None).returncode == 0
    assert "head_sha" not in github.comments[0]["body"]


def test_a_report_of_any_size_fits(github, tmp_path):
    assert comment(github, tmp_path, "a line of a report\n" * 1_000_000).returncode == 0
    assert len(github.comments[0]["body"]) < 65_536
    assert "cut here" in github.comments[0]["body"]


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


def test_what_the_api_refuses_is_one_sentence(github, tmp_path):
    done = comment(github, tmp_path, GITHUB_REPOSITORY="o/other")
    assert (done.returncode, done.stderr) == (1, "GET pulls failed: HTTP Error 404: Not Found\n")
    for changes in ({"GITHUB_EVENT_PATH": str(tmp_path / "absent.json")}, {"event": {"push": {}}}):
        done = comment(github, tmp_path, **changes)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
