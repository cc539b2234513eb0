"""The process that runs cases, one JSON line each, in a folder that also holds others' files.

python -m tests.attack.worker FOLDER
"""

import contextlib
import hashlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

from myriad.signals import Interrupts
from tests.attack import cases

MEMORY_BYTES = 4 << 30
FOREIGN = {
    "notes/precious.txt": "Not yours.",
    "notes/metrics.jsonl": '{"update": 1}\n',
    "notes/checkpoints/best_model": "weights",
    "bad.toml": "env = [",
    "precious.csv": "a,b\n1,2\n",
}


def main(folder: Path) -> None:
    """Answer each case on standard input with its ending and what it said."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    root = Path.cwd()
    sys.path.insert(0, str(root))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    prepare(folder)
    os.chdir(folder)
    # Every command does so, and finds nothing left to do.
    from myriad import configure

    configure()
    from tests.attack import prelude

    if not Path("run").exists():
        myriad: Any = prelude.myriad
        myriad.train_and_evaluate(prelude.CONFIG, "run", quiet=True)
    print("ready", file=answers, flush=True)
    before = fingerprint()
    for line in sys.stdin:
        case = json.loads(line)
        ending, said = run(case["kind"], case["what"], vars(prelude))
        if (after := fingerprint()) != before:
            said = f"{sorted(set(before.items()) ^ set(after.items()))}"
            ending = cases.HARMED
            before = after
        print(json.dumps([ending, said]), file=answers, flush=True)


def prepare(folder: Path) -> None:
    """Put files there that no case may touch."""
    for name, text in FOREIGN.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if not (folder / "fifo").exists():
        os.mkfifo(folder / "fifo")


def fingerprint() -> dict[str, str]:
    """Return a hash of each foreign file."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "gone"
        for name in [*FOREIGN, "run/config.toml"]
        for path in [Path(name)]
    }


def run(kind: str, what: list[str], names: dict[str, Any]) -> tuple[str, str]:
    """Run a case here; return how it ended, and what it said."""
    said = io.StringIO()
    out = io.StringIO()
    # Each case has a place for its own run.
    environ = dict(os.environ)
    here = Path.cwd()
    with tempfile.TemporaryDirectory(dir=here, prefix="case-") as own:
        if kind != "settings":  # which may name another
            os.environ["MYRIAD_HOME"] = own
        try:
            # Whatever the case before has made of it.
            # As in the command's own process: an interrupt may come where Python can't raise it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            Interrupts().install()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(out):
                code = call(what[0], names) if kind == "call" else command(kind, what, own)
        except KeyboardInterrupt:
            return cases.INTERRUPTED, said.getvalue()
        except SystemExit as end:
            code = int(bool(end.code))
        except BaseException:  # noqa: BLE001 (this is what is looked for)
            return cases.TRACEBACK, traceback.format_exc()[-3000:]
        finally:
            # A command exports the places that a file names.
            os.environ.clear()
            os.environ.update(environ)
            os.chdir(here)
            # One that comes late is for no other case.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    text = said.getvalue()
    if "Traceback" in text:
        return cases.TRACEBACK, text[-3000:]
    if code in (130, 143):
        return cases.INTERRUPTED, text
    # `myriad doctor` reports what can't be had.
    if code == 0 or (code == 1 and what[:1] in (["doctor"], ["settings"]) and not text):
        return cases.OK, text
    ours = [line for line in text.strip().splitlines() if not line.startswith("warning")]
    return (cases.REFUSED if len(ours) == 1 else cases.UNCLEAR), text


def command(kind: str, what: list[str], own: str) -> int:
    """Run a command line, or a training from a configuration file."""
    from myriad.cli import main as myriad

    if kind == "file":
        file = Path(own) / "config.toml"
        file.write_text(what[0], encoding="utf-8", errors="surrogateescape")
        what = ["train", "--quiet", "--config", str(file)]
    if kind == "settings":
        Path(own, ".env").write_text(what[0], encoding="utf-8", errors="surrogateescape")
        os.chdir(own)
        what = ["train", "--quiet", "--env", "cartpole", "--agent", "pid"]
        what += ["--num-envs", "2", "--steps-per-env", "8", "--eval-rollouts", "2"]
    if what[:1] == ["train"] and not any("-folder" in w or "-resume" in w for w in what):
        what = [*what, "--run-folder", f"{own}/run"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return myriad(what)


def call(expression: str, names: dict[str, Any]) -> int:
    """Evaluate a call; return 0, or 2 where it is refused as promised."""
    from myriad.errors import FaultyEnvironmentError, MyriadError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eval(expression, dict(names))  # noqa: S307 (our own text)
        except FaultyEnvironmentError as error:
            print(str(error).splitlines()[0], file=sys.stderr)
            return 2
        except MyriadError as error:
            print(error, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
