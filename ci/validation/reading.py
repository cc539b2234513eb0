"""Count the files and lines that you read to follow an update of PPO, a rollout or a gate run.

    python -m ci.validation.reading --files

A file counts with all its lines if Python enters one of its functions, other than to import a
module. The last column counts only the lines of the functions that it enters. A gate run leaves out
its workers.
"""

import argparse
import contextlib
import inspect
import io
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from myriad import Rollout, create_config, make_agent, make_env, make_key
from myriad.cli import main as myriad
from myriad.programs import functions
from perfgate.cli import main as perfgate

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = (str(_ROOT / "myriad") + "/", str(_ROOT / "ci/gate/perfgate") + "/")
_TRAIN = ["train", "--env=cartpole-control", "--agent=ppo", "--num-envs=8", "--steps-per-env=512"]
_IMPORTS = """
import sys, myriad.agents.ppo
print(*(each.__file__ for name, each in sys.modules.items() if name.split(".")[0] == "myriad"))
"""
_PROJECT = {
    "asv.conf.json": '{"version": 1, "project": "project", "repo": "."}',
    "benchmarks/__init__.py": "",
    "benchmarks/totals.py": "from project import total\n\n\ndef time_total():\n    total()\n",
}
_COMMIT = ["git", "-c", "user.name=reading", "-c", "user.email=reading@localhost", "commit", "-qm"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.validation.reading", description=str(__doc__).split("\n")[0]
    )
    parser.add_argument("--files", action="store_true", help="name each file and its lines")
    names_files = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        train = entered(lambda: myriad([*_TRAIN, "--quiet", "--run-folder", f"{folder}/run"]))
    loop = functions(create_config("cartpole-control", "ppo", 8, 64))
    state = loop.init(make_key(0))
    update = entered(lambda: loop.learn(*loop.collect(state)))
    learner = {code for code in update if Path(code.co_filename).parent.name == "agents"}
    env = make_env("cartpole-control")
    agent = make_agent("random", env)
    chunk = entered(lambda: _run_chunk(env, agent))
    by_name = chunk | entered(lambda: make_agent("random", make_env("cartpole-control")))
    gate = entered(_run_gate)
    imported = subprocess.check_output([sys.executable, "-c", _IMPORTS], cwd=_ROOT, text=True)
    print(f"{'to follow':<38}{'files':>6}{'lines':>8}{'entered':>9}")
    for what, codes, files in (
        ("an update of ppo", learner, {code.co_filename for code in learner}),
        ("... with its network and environment", update, {code.co_filename for code in update}),
        ("a rollout chunk of CartPole", chunk, {code.co_filename for code in chunk}),
        ("... with its names", by_name, {code.co_filename for code in by_name}),
        ("myriad train", train, {code.co_filename for code in train}),
        ("perfgate, one slower benchmark", gate, {code.co_filename for code in gate}),
        ("import myriad.agents.ppo", set(), set(imported.split())),
    ):
        # The lines of a function that is defined in another one count there already.
        inner = {each for code in codes for each in code.co_consts if isinstance(each, CodeType)}
        lines_entered = sum(len(inspect.getsourcelines(code)[0]) for code in codes - inner)
        print(f"{what:<38}{len(files):>6}{_lines(files):>8,}{lines_entered or '':>9}")
        for file in sorted(files) if names_files else ():
            print(f"    {_lines([file]):>5} {Path(file).relative_to(_ROOT)}")


def entered(call: Callable[[], Any]) -> set[CodeType]:
    """Return the functions of the packages that a call enters, in any thread."""
    found: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(_PACKAGES)
        if is_ours and code not in found and not _is_import(frame):
            found.add(code)

    threading.setprofile(note)
    sys.setprofile(note)
    call()
    sys.setprofile(None)
    threading.setprofile(None)
    return found


def _is_import(frame: FrameType | None) -> bool:
    """Return whether a frame runs to import a module of ours, which is not part of the work."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(_PACKAGES):
            return True
        frame = frame.f_back
    return False


def _run_chunk(env: Any, agent: Any) -> None:
    rollout = Rollout(env, agent, 64)
    rollout.run_chunk(rollout.init(seed=0))


def _run_gate() -> None:
    """Gate one benchmark that became twice as slow."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        subprocess.run(["git", "init", "--quiet"], check=True)
        Path("benchmarks").mkdir()
        for file, text in _PROJECT.items():
            Path(file).write_text(text, encoding="utf-8")
        for numbers in (100_000, 200_000):
            text = f"def total():\n    return sum(range({numbers}))\n"
            Path("project.py").write_text(text, encoding="utf-8")
            subprocess.run(["git", "add", "--all"], check=True)
            subprocess.run([*_COMMIT, str(numbers)], check=True)
        with contextlib.redirect_stdout(io.StringIO()):
            perfgate(["--base", "HEAD~1"])


def _lines(files: Iterable[str]) -> int:
    return sum(len(Path(file).read_text(encoding="utf-8").splitlines()) for file in files)


if __name__ == "__main__":
    main()
