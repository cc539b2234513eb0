#!/usr/bin/env python3
"""Run the parts of one of the night's jobs. One that fails stops no other.

    ci/nightly.py history

`nightly.toml` declares the parts. The outcome of a part is written to
`results/csv/parts/NAME.json`, which the site reads. Standard library only, because it runs before
anything is installed.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_OUTCOMES = Path("results/csv/parts")
_STOP_S = 60.0  # the time that asv gets to write its results


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a part failed."""
    parts = tomllib.loads((_ROOT / "ci/nightly.toml").read_text(encoding="utf-8"))["part"]
    jobs = list(dict.fromkeys(part["job"] for part in parts))
    parser = argparse.ArgumentParser(
        prog="ci/nightly.py", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("job", choices=jobs)
    job = parser.parse_args(argv).job
    failures = [_attempt(part) for part in parts if part["job"] == job]
    return int(any(failures))


def _attempt(part: dict[str, Any]) -> str:
    """Run a part and write its outcome; return why it failed, or "" if it succeeded."""
    print(f"{part['name']}: {' '.join(part['command'])}", flush=True)
    reason = _run(part["command"], part["limit_s"])
    file = _ROOT / _OUTCOMES / f"{part['name']}.json"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    succeeded = _last_success(file) if reason else now
    file.parent.mkdir(parents=True, exist_ok=True)
    outcome = {"ended": now, "reason": reason, "succeeded": succeeded}
    file.write_text(json.dumps(outcome) + "\n", encoding="utf-8")
    if reason:
        print(f"{part['name']}: {reason}", file=sys.stderr, flush=True)
    return reason


def _run(command: Sequence[str], limit_s: float) -> str:
    # An interrupt while the part starts would leave it running, so it is kept until it can end.
    interrupts: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.SIG_IGN:  # The part of a job in the background ignores them, too.
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        # In a group of its own, so that nothing that it started outlives it.
        process = subprocess.Popen(command, cwd=_ROOT, start_new_session=True)
    except OSError as error:
        return f"it could not start: {error.strerror}"
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        for number in interrupts:
            signal.raise_signal(number)
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        _stop(process)
        return f"it took more than {limit_s:,} seconds"
    except KeyboardInterrupt:
        _stop(process)
        raise
    return f"exit code {code}" if code else ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the part's processes to end, then kill those that are left."""
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_success(file: Path) -> str:
    """Return when the part last succeeded, or "" if no earlier outcome says so."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return str(found["succeeded"])
    except (OSError, ValueError, TypeError, KeyError):
        return ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the outcome of the part that was running is not changed")
