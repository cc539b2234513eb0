"""The storage of a study: memory, SQLite, another database or a journal file, as Optuna makes it.

A file that exists must be Optuna's already, or nothing is written to it.
"""

import contextlib
import itertools
import json
import os
import re
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myriad.errors import (
    InvalidArgumentError,
    MyriadError,
    NotInstalledError,
    shown,
    without_passwords,
)
from myriad.files import regular, say, user_path

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

# Seconds that a writer waits for others, each of which writes for milliseconds.
_PATIENCE_S = 120
_CONNECT_S = 10
# Seconds until a line says that it waits.
_SILENT_S = 5
# Seconds within which another process makes its tables.
_MADE_S = 2
_MOST_ATTEMPTS = 50  # to make tables that others make, too
_COLUMNS = (
    "SELECT tables.name, columns.name FROM sqlite_master AS tables, "
    "pragma_table_info(tables.name) AS columns"
)
# The columns without which a database is not Optuna's.
_OPTUNAS = {
    *(("studies", name) for name in ("study_id", "study_name")),
    *(("version_info", name) for name in ("schema_version", "library_version")),
}
# Seconds between heartbeats, and seconds without one after which a process loses its trials.
HEARTBEAT_S, _GRACE_S = 10, 60
# A trial whose process ends more often than this is at fault itself.
MOST_RETRIES = 3


def storage_url(storage: str | None) -> str | None:
    """Return what Optuna takes for a `--storage`: an address, or the name of a journal file.

    Raises:
        InvalidArgumentError: it is neither. The message shows no password.

    Example:
        >>> storage_url("studies.db")
        'sqlite:///studies.db'
    """
    if storage is None:
        return None
    # A colon or an @ is of an address that lacks its slashes.
    if re.fullmatch(r"[^@:?\0]+\.(db|sqlite3?)", storage):
        return f"sqlite:///{storage.replace('%', '%25')}"
    if re.fullmatch(r"[^@:?\0]+\.journal|sqlite[^:]*:///[^?\0]*[^/?\0]", storage):
        return storage
    if re.fullmatch(r"(?!sqlite)[^:]+://[^@?]*@?[^@?]*(\?.*)?", storage):
        return re.sub("^postgresql://", "postgresql+psycopg://", storage)
    is_plain = re.fullmatch(r"[\w./~+-]*", storage)
    raise InvalidArgumentError(
        "storage",
        "must be FILE.db, FILE.journal, sqlite:///FILE or the address of a database, such "
        "as postgresql://USER@HOST/DATABASE, where an @ of a password is written as %40, but got "
        f"{shown(storage) if is_plain else 'what may hold a password'}.",
    )


def shown_storage(storage: str | None) -> str:
    """Return a storage as it may be shown: without its password and options.

    Example:
        >>> shown_storage("postgresql://me:secret@host/studies")
        'postgresql://me@host/studies'
    """
    return re.sub(r"(://[^:/@]*):.*@", r"\1@", (storage or "memory").partition("?")[0])


def open_storage(storage: str | None) -> "BaseStorage":
    """Connect to a `--storage`, and make missing files, folders and tables.

    Raises:
        InvalidArgumentError: the storage can't be reached or used.
        NotInstalledError: Optuna is missing.
    """
    require_optuna()
    from optuna.storages import InMemoryStorage, JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
    from sqlalchemy.engine import make_url

    url = storage_url(storage)
    if url is None:
        return InMemoryStorage()
    with storage_errors(), _wait_said(shown_storage(storage)), warnings.catch_warnings():
        # Optuna warns that heartbeats are experimental, but Myriad tests them.
        warnings.simplefilter("ignore")
        if "://" in url and not url.startswith("sqlite"):
            # Reopen a connection that a restart of the server has closed.
            engine = {"connect_args": {"connect_timeout": _CONNECT_S}, "pool_pre_ping": True}
            return _open_database(url, engine)
        address = None
        if "://" in url:
            address = make_url(url)
            url = str(address.database)  # as SQLAlchemy reads it
        file = user_path(url)
        file.parent.mkdir(parents=True, exist_ok=True)
        regular(file)
        if address is not None:
            _require_optunas_database(file)
            url = address.set(database=str(file)).render_as_string(hide_password=False)
            return _open_database(url, {"connect_args": {"timeout": _PATIENCE_S}})
        lock = JournalFileSymlinkLock(str(file))
        if file.exists():
            lock.acquire()  # Nobody is in the middle of a record then.
            try:
                _require_optunas_journal(file)
            finally:
                lock.release()
        try:
            return JournalStorage(JournalFileBackend(str(file), lock))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"{file} is damaged: Optuna can't read its records ({error!r}); name a new file."
            ) from None


def require_optuna() -> None:
    """Raise NotInstalledError if Optuna is missing."""
    try:
        import optuna
    except ImportError as error:
        raise NotInstalledError("tuning", "optuna", "tune") from error
    # Silence Optuna's log, since Myriad's own progress shows the same.
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@contextlib.contextmanager
def storage_errors(*, only_theirs: bool = False) -> Iterator[None]:
    """Show what Optuna, SQLAlchemy or a driver says as it is, without a traceback or a password.

    Args:
        only_theirs: leave other errors alone, for a block that also does other things.
    """
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    kinds = (OptunaError, SQLAlchemyError) if only_theirs else Exception
    try:
        yield
    except MyriadError:
        raise
    except kinds as error:
        said = str(error) if " " in str(error) else repr(error)
        raise InvalidArgumentError(without_passwords(said)) from None


def disconnect(storage: "BaseStorage") -> None:
    """Close the connections of a storage, if it has any."""
    from optuna.storages import RDBStorage

    backend = getattr(storage, "_backend", storage)  # Optuna's cache is around a database.
    if isinstance(backend, RDBStorage):
        backend.remove_session()
        backend.engine.dispose()


@contextlib.contextmanager
def _wait_said(storage: str) -> Iterator[None]:
    words = f"still waiting for {storage}, which another process may hold; at most {_PATIENCE_S} s"
    timer = threading.Timer(_SILENT_S, say, [words])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _open_database(url: str, engine: dict[str, Any]) -> "BaseStorage":
    from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
    from sqlalchemy.exc import DatabaseError, IntegrityError

    for attempt in itertools.count(1):
        try:
            return RDBStorage(
                url,
                engine,
                heartbeat_interval=HEARTBEAT_S,
                grace_period=_GRACE_S,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(MOST_RETRIES),
            )
        except DatabaseError as error:
            # Several processes may make the tables at the same time, and each gets in the others'
            # way once or more.
            if attempt >= (_MOST_ATTEMPTS if isinstance(error, IntegrityError) else 3):
                raise
            time.sleep(0.05)
    raise AssertionError


def _require_optunas_database(file: Path) -> None:
    """Refuse a file that is neither empty nor a database of Optuna's, without writing to it.

    Only SQLite may open it: closing it again drops all locks that this process has on it.
    """
    if not file.exists():
        return
    # To be writable, since SQLite takes back what a killed process left unfinished.
    address = f"{file.absolute().as_uri()}?mode=rw"
    until_s = time.monotonic() + _MADE_S
    while True:
        try:
            connection = sqlite3.connect(address, timeout=_PATIENCE_S, uri=True)
            with contextlib.closing(connection):
                found = set(connection.execute(_COLUMNS))
        except sqlite3.DatabaseError as error:
            raise InvalidArgumentError(f"{file}: {error}.") from None
        if not found or found >= _OPTUNAS:
            return
        # Another process may be in the middle of making the tables.
        if not found & _OPTUNAS or time.monotonic() > until_s:
            raise InvalidArgumentError(f"{file} is not a database of Optuna's; name a new file.")
        time.sleep(0.1)


def _require_optunas_journal(file: Path) -> None:
    """Refuse a file that doesn't begin and end with a record of Optuna's, before one is added."""
    with file.open("rb") as journal:
        first = journal.readline(2**20)
        journal.seek(-1 if first else 0, os.SEEK_END)
        is_whole = journal.read() in (b"\n", b"")
    try:
        is_optunas = not first or {"op_code", "worker_id"} <= json.loads(first).keys()
    except (ValueError, AttributeError, RecursionError):
        is_optunas = False
    if not is_whole or not is_optunas:
        raise InvalidArgumentError(
            f"{file} is not a journal of Optuna's, or its last record is not whole; remove that "
            "line, or name a new file."
        )
