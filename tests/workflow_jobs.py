"""Runs jobs of our workflows as GitHub does: in clones of a bare repository, step by step.

Folders stand in for what the actions of GitHub and of others do.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.child_processes import environment, without_make

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load(name: str | Path) -> dict[Any, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def git(folder: Path, *arguments: str | Path) -> str:
    identity = ("-c", "user.name=job", "-c", "user.email=job@localhost")
    command = ["git", *identity, *arguments]
    return subprocess.check_output(command, cwd=folder, text=True).strip()


class Context(dict):
    """What expressions read. A name that is missing is empty, as on GitHub."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name, Context())

    def __str__(self) -> str:
        return ""


# What expressions read where a job is not told more.
NAMES = {name: Context() for name in ("github", "matrix", "runner", "steps", "vars")} | {
    "always": lambda: True,
    "cancelled": lambda: False,
    "hashFiles": lambda _: "",
}


def evaluate(expression: str, names: dict[str, Any]) -> Any:
    """Return an expression's value. GitHub's operators return their operands, as Python's do."""
    text = expression.replace("&&", " and ").replace("||", " or ")
    return eval(re.sub("!(?!=)", " not ", text).strip(), dict(names))  # noqa: S307 (our files)


def fill(given: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """Return a step's `with` or `env` with the values of its expressions."""
    return {
        key: re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(evaluate(found[1], names)), each)
        if isinstance(each, str)
        else each
        for key, each in given.items()
    }


class Jobs:
    """A bare repository, the artifacts and the site that jobs make, and the jobs themselves."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.remote = folder / "remote.git"
        self.site = folder / "published"
        self.artifacts = folder / "artifacts"
        self.variables: dict[str, str] = {}
        git(folder, "init", "--quiet", "--bare", "--initial-branch", "main", self.remote)
        git(self.remote, "config", "receive.shallowUpdate", "true")
        git(ROOT, "push", "--quiet", self.remote, "HEAD:refs/heads/main")

    def prepare(self, place: Path) -> None:
        """Do more in a job's new clone."""

    def meanwhile(self) -> None:
        """Do what others do just before a job pushes."""

    def run(self, file: str, job: str, **names: Any) -> dict[str, int]:
        """Run a job's steps, and return the exit codes of its commands."""
        workflow = load(file)
        described = workflow["jobs"][job]
        place = Path(tempfile.mkdtemp(prefix=job, dir=self.folder))
        codes: dict[str, int] = {}
        has_failed = False
        names = NAMES | names
        names["success"] = lambda: not has_failed
        # GitHub's `**` matches files.
        names["hashFiles"] = lambda pattern: "hash" * any(place.glob(f"{pattern}/*"))
        for step in described["steps"]:
            asked = step.get("if", "success()")
            if not re.search(r"\b(always|cancelled|success)\(", asked):
                asked = f"success() && ({asked})"
            if not evaluate(asked, names):
                continue
            if "uses" in step:
                given = {"ref": names["github"].ref_name or "main"}
                given |= fill(step.get("with", {}), names)
                succeeded = self.act(step["uses"].partition("@")[0], given, place)
                assert succeeded or step.get("continue-on-error"), step
                continue
            given = environment(**without_make(), **self.variables)
            for level in (workflow, described, step):
                given |= fill(level.get("env", {}), names)
            for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
                given[name] = str(place.with_name(f"{place.name}.{name}"))
            options = ["-eo", "pipefail"] if step.get("shell") == "bash" else ["-e"]
            shell = ["bash", "--noprofile", "--norc", *options, "-c", step["run"]]
            code = subprocess.run(shell, cwd=place, env=given, check=False).returncode
            codes[step["run"]] = code
            has_failed |= code != 0 and not step.get("continue-on-error", False)
        return codes

    def act(self, action: str, given: dict[str, Any], place: Path) -> bool:
        """Do what an action would, and return whether it would succeed."""
        match action.rpartition("/")[2]:
            case "checkout":
                return self.check_out(place / given.get("path", ""), given)
            case "upload-artifact":
                self.upload(place, given["path"].splitlines())
            case "download-artifact" if self.artifacts.is_dir():
                shutil.copytree(self.artifacts, place / given["path"], dirs_exist_ok=True)
            case "upload-pages-artifact":
                shutil.rmtree(self.site, ignore_errors=True)
                shutil.copytree(place / given["path"], self.site)
            case "github-pages-deploy-action":
                return self.deploy(place / given["folder"], given)
        return True

    def check_out(self, place: Path, given: dict[str, Any]) -> bool:
        """Fetch a branch, a tag or a commit into a folder: one commit, or all with depth 0."""
        wanted, depth = given["ref"], int(given.get("fetch-depth", 1))
        git(self.folder, "init", "--quiet", place)
        git(place, "remote", "add", "origin", self.remote.as_uri())
        every = ["--tags", "+refs/heads/*:refs/remotes/origin/*"] if depth == 0 else ["--depth=1"]
        done = subprocess.run(
            ["git", "fetch", "-q", "origin", wanted, *every], cwd=place, check=False
        )
        if done.returncode:
            return False
        is_branch = bool(git(self.remote, "branch", "--list", wanted))
        git(place, "checkout", "--quiet", *(["-B", wanted] if is_branch else []), "FETCH_HEAD")
        self.prepare(place)
        return True

    def deploy(self, folder: Path, given: dict[str, Any]) -> bool:
        """Add files to a branch, as JamesIves/github-pages-deploy-action 4.7 does."""
        place, branch = Path(tempfile.mkdtemp(dir=self.folder)), given["branch"]
        git(place, "init", "--quiet", "--initial-branch", branch)
        git(place, "remote", "add", "origin", self.remote.as_uri())
        if git(self.remote, "branch", "--list", branch):
            git(place, "pull", "--quiet", "--depth=1", "origin", branch)
        else:
            git(place, "commit", "--quiet", "--allow-empty", "--message", "Initial commit")
        git(place, "checkout", "--quiet", "-b", "temporary")
        assert given["clean"] is False
        shutil.copytree(folder, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
        git(place, "add", "--all")
        git(place, "commit", "--quiet", "--allow-empty", "--message", given["commit-message"])
        self.meanwhile()
        push = ["git", "push", "--quiet", "origin", f"temporary:{branch}"]
        push += ["--force"] if given.get("force", True) else []
        for _ in range(given.get("attempt-limit", 3)):
            if subprocess.run(push, cwd=place, check=False).returncode == 0:
                return True
            git(place, "fetch", "--quiet", "origin", f"{branch}:{branch}")
            git(place, "rebase", "--quiet", branch, "temporary")
        return False

    def upload(self, place: Path, patterns: list[str]) -> None:
        """Keep files for the jobs that follow, with names from the folder that the paths share."""
        left_out = [place / pattern[1:] for pattern in patterns if pattern.startswith("!")]
        paths = [place / pattern for pattern in patterns if not pattern.startswith("!")]
        for found in paths:
            for file in [found] if found.is_file() else found.rglob("*"):
                if file.is_file() and file not in left_out and ".git" not in file.parts:
                    target = self.artifacts / file.relative_to(os.path.commonpath(paths))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)
