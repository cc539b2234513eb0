"""A PostgreSQL server of the tests' own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.child_processes import free_port, lacks

# With a letter that an address must escape.
PASSWORD = "hush/hush"  # noqa: S105 (of a server that lives for a test)


def _programs() -> Path | None:
    """Return the folder of the server's programs. Debian keeps them off PATH."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    on_path = shutil.which("initdb")
    found = [*sorted(versions), *([Path(on_path)] if on_path else [])]
    return found[-1].resolve().parent if found else None


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The address of a database on a server on the loopback, which asks for a password."""
    programs = _programs()
    if programs is None:
        lacks("PostgreSQL is missing: apt install postgresql")
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory(prefix="postgresql-") as name:
        folder = Path(name)
        data, port = folder / "data", free_port()
        (folder / "password").write_text(PASSWORD)
        if os.geteuid() == 0:
            for each in (folder, folder / "password"):
                shutil.chown(each, "nobody", "nogroup")
        initdb = [programs / "initdb", "--pgdata", data, "--username", "tuner", "--auth", "md5"]
        _run([*initdb, "--pwfile", folder / "password", "--no-sync"], folder)
        listen = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        pg_ctl = [programs / "pg_ctl", "--pgdata", data, "--wait"]
        _run([*pg_ctl, "--options", listen, "--log", folder / "log", "start"], folder)
        try:
            escaped = PASSWORD.replace("/", "%2F")
            yield f"postgresql://tuner:{escaped}@127.0.0.1:{port}/postgres"
        finally:
            _run([*pg_ctl, "--mode", "immediate", "stop"], folder)


def _run(command: list, folder: Path) -> None:
    """Run a command as an unprivileged user, since the server refuses to run as root."""
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]
    whole = command if os.geteuid() else [*user, *command]
    subprocess.run(whole, cwd=folder, check=True, stdout=subprocess.DEVNULL)
