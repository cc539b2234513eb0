"""The storage of a study, as Optuna makes it: memory, SQLite, another database or a journal file.

A file that exists must be Optuna's already, or nothing is written to it.
"""

import contextlib
import re
import sqlite3
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myriad.errors import InvalidArgumentError, MyriadError, NotInstalledError, without_passwords
from myriad.files import regular, user_path

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from sqlalchemy.engine import URL

# Seconds that a process waits for others that write to an SQLite file, each for milliseconds, and
# seconds in which a server must answer.
_PATIENCE_S, _CONNECT_S = 120, 10
_MOST_ATTEMPTS = 50  # to make tables that others make, too
# Seconds between heartbeats, and seconds without one after which a process loses its trials.
HEARTBEAT_S, _GRACE_S = 10, 60
# A trial whose process ends more often than this is at fault itself.
MOST_RETRIES = 3


def shown_storage(storage: str | None) -> str:
    """Return a storage as you may give it again: without its password and options.

    Example:
        >>> shown_storage("postgresql://me:secret@host/studies")
        'postgresql://me@host/studies'
    """
    return re.sub(r"(://[^:/@]*):.*@", r"\1@", (storage or "memory").partition("?")[0])


def open_storage(storage: str | None) -> "BaseStorage":
    """Connect to a `--storage`, and make missing files, folders and tables.

    Raises:
        InvalidArgumentError: the storage can't be reached or used. The message shows no password.
        NotInstalledError: Optuna is missing.
    """
    require_optuna()
    from optuna.storages import InMemoryStorage, JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.engine import URL, make_url

    if storage is None:
        return InMemoryStorage()
    user_path(storage, "storage")  # refuses control characters
    if storage.count("@") > 1:
        # A driver would take what follows the first for the host, and show it.
        raise InvalidArgumentError("storage", "must have %40 for an @ in its password.")
    with storage_errors():
        # A name with a colon or an @ is an address that lacks its slashes.
        is_file = re.fullmatch(r"[^@:?]+\.(db|sqlite3?|journal)", storage)
        url = URL.create("sqlite", database=storage) if is_file else make_url(storage)
        if url.get_backend_name() != "sqlite":
            if url.drivername == "postgresql":
                url = url.set(drivername="postgresql+psycopg")
            # Open a connection again that a restart of the server has closed.
            engine = {"connect_args": {"connect_timeout": _CONNECT_S}, "pool_pre_ping": True}
            return _open_database(url, engine)
        file = user_path(url.database or ":memory:")
        is_journal = bool(is_file) and file.suffix == ".journal"
        if regular(file).exists():
            (_require_optunas_journal if is_journal else _require_optunas_database)(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        if is_journal:
            return JournalStorage(JournalFileBackend(str(file)))
        return _open_database(
            url.set(database=str(file)), {"connect_args": {"timeout": _PATIENCE_S}}
        )


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
    storage.remove_session()
    engine = getattr(getattr(storage, "_backend", storage), "engine", None)
    if engine is not None:  # Journals and memory have none.
        engine.dispose()


def _open_database(url: "URL", engine: dict[str, Any]) -> "BaseStorage":
    from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
    from sqlalchemy.exc import DatabaseError, IntegrityError

    address = url.render_as_string(hide_password=False)
    attempt = 1
    while True:
        try:
            with warnings.catch_warnings():
                # Optuna warns that heartbeats are experimental, but Myriad tests them.
                warnings.simplefilter("ignore")
                return RDBStorage(
                    address,
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
            attempt += 1
            time.sleep(0.05)


def _require_optunas_database(file: Path) -> None:
    """Refuse a database of another program, to which Optuna would add its tables.

    Only SQLite may open it: closing it again drops all locks that this process has on it.
    """
    # To be writable, since SQLite takes back what a killed process left unfinished.
    address = f"{file.absolute().as_uri()}?mode=rw"
    try:
        connection = sqlite3.connect(address, timeout=_PATIENCE_S, uri=True)
        with contextlib.closing(connection):
            is_new = connection.execute("SELECT name FROM sqlite_master").fetchone() is None
            # The table that Optuna makes first.
            columns = connection.execute("SELECT name FROM pragma_table_info('studies')").fetchall()
    except sqlite3.DatabaseError as error:
        raise InvalidArgumentError(f"{file}: {error}.") from None
    if not is_new and ("study_id",) not in columns:
        raise InvalidArgumentError(f"{file} is not a database of Optuna's; name a new file.")


def _require_optunas_journal(file: Path) -> None:
    """Refuse a file of another program, to which Optuna would add its records."""
    record = b'{"op_code":'
    with file.open("rb") as journal:
        if journal.read(len(record)) not in (b"", record):
            raise InvalidArgumentError(f"{file} is not a journal of Optuna's; name a new file.")
