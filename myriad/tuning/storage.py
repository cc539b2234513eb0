"""The storage of a study: memory, SQLite, another database or a journal file, as Optuna makes it.

A file that exists must be Optuna's already, or nothing is written to it.
"""

import contextlib
import dataclasses
import json
import re
import sqlite3
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
from myriad.files import regular

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

# Seconds that a writer waits for others, each of which writes for milliseconds.
_PATIENCE_S = 120
_CONNECT_S = 10
_MOST_OF_A_LINE = 16 * 2**20
# Seconds between heartbeats, and seconds without one after which a process loses its trials.
HEARTBEAT_S, _GRACE_S = 10, 60
# A trial whose process ends more often than this is at fault itself.
MOST_RETRIES = 3
_SQLITE, _JOURNAL = (".db", ".sqlite", ".sqlite3"), ".journal"


@dataclasses.dataclass(frozen=True)
class Place:
    """A place for studies, read from `--storage`. Nothing has been made yet.

    Attributes:
        file: the file of an SQLite or journal storage.
        url: the address of a database, with its password; None for memory and a journal.
    """

    file: Path | None = None
    url: str | None = dataclasses.field(default=None, repr=False)

    def __str__(self) -> str:
        """Return the storage as it may be shown, without password and options."""
        if self.url is None:
            return str(self.file or "memory")
        address = re.sub(r"(://[^:/@]*):.*@", r"\1@", self.url.partition("?")[0])
        return address.replace("+psycopg", "", 1)

    def open(self) -> "BaseStorage":
        """Connect, and make missing files, folders and tables.

        Raises:
            InvalidArgumentError: the storage can't be reached or used.
            NotInstalledError: Optuna is missing.
        """
        require_optuna()
        from optuna.storages import InMemoryStorage

        with storage_errors(), warnings.catch_warnings():
            # Optuna warns that heartbeats are experimental, but Myriad tests them.
            warnings.simplefilter("ignore")
            if self.file is not None:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                regular(self.file)
            if self.url is not None:
                return _open_database(self.url, self.file)
            return InMemoryStorage() if self.file is None else _open_journal(self.file)


def read_storage(storage: str | None) -> Place:
    """Parse the place of a study, without making anything.

    Raises:
        InvalidArgumentError: it is not valid. The message shows no password.

    Example:
        >>> print(read_storage("postgresql://me:secret@host/studies"))
        postgresql://me@host/studies
        >>> read_storage("sqlite:///studies.db")
        Place(file=PosixPath('studies.db'))
    """
    if storage is None:
        return Place()
    scheme, is_address, rest = storage.partition("://")
    ending = Path(storage).suffix
    # A colon or an @ is of an address that lacks its slashes.
    is_file = not is_address and not re.search(r"[@:?\0]", storage)
    if is_file and ending == _JOURNAL:
        return Place(Path(storage))
    if is_file and ending in _SQLITE:
        return Place(Path(storage), f"sqlite:///{storage}")
    if scheme.startswith("sqlite") and is_address:
        file = rest.removeprefix("/")
        if rest.startswith("/") and file.strip("/") and not re.search(r"[?\0]", file):
            return Place(Path(file), storage)
    elif is_address and rest.partition("?")[0].count("@") <= 1:
        return Place(url=re.sub("^postgresql://", "postgresql+psycopg://", storage))
    # Anything but a plain name may hold a password.
    is_plain = re.fullmatch(r"[\w./~+-]*", storage)
    got = storage if is_plain else f"{scheme[:20]}://..." if is_address else "..."
    raise InvalidArgumentError(
        "storage",
        "must be FILE.db, FILE.journal, sqlite:///FILE or the address of a database, such "
        "as postgresql://USER@HOST/DATABASE, where an @ of a password is written as %40, but got "
        f"{shown(got)}.",
    )


def require_optuna() -> None:
    """Raise NotInstalledError if Optuna is missing."""
    try:
        import optuna
    except ImportError as error:
        raise NotInstalledError("tuning needs Optuna: pip install 'myriad[tune]'") from error
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


def _open_database(url: str, file: Path | None) -> "BaseStorage":
    from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
    from sqlalchemy.exc import DatabaseError

    engine: dict[str, Any] = {"connect_args": {"timeout": _PATIENCE_S}}
    if file is None:
        # Reopen a connection that a restart of the server has closed.
        engine = {"connect_args": {"connect_timeout": _CONNECT_S}, "pool_pre_ping": True}
    else:
        _require_optunas(file)
    retry = RetryHeartbeatStaleTrialCallback(max_retry=MOST_RETRIES)
    for attempts_left in (2, 1, 0):
        try:
            return RDBStorage(
                url,
                engine,
                heartbeat_interval=HEARTBEAT_S,
                grace_period=_GRACE_S,
                heartbeat_stale_trial_callback=retry,
            )
        except DatabaseError:
            # Several processes may make the tables at the same time.
            if not attempts_left:
                raise
    raise AssertionError


def _require_optunas(file: Path) -> None:
    """Refuse a file that is neither empty nor a database of Optuna's, without writing to it.

    Only SQLite may open it: closing it again drops all locks that this process has on it.
    """
    size = file.stat().st_size if file.exists() else 0
    if not size:
        return
    # To be writable, since SQLite takes back what a killed process left unfinished.
    address = f"{file.absolute().as_uri()}?mode=rw"
    try:
        connection = sqlite3.connect(address, timeout=_PATIENCE_S, uri=True)
        with contextlib.closing(connection):
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(studies)")}
    except sqlite3.DatabaseError as error:
        raise InvalidArgumentError(f"{file}: {error}.") from None
    # SQLite takes a single byte for an empty database. A process that was killed early leaves one.
    if size == 1 or (tables and not {"study_id", "study_name"} <= columns):
        raise InvalidArgumentError(f"{file} is not a database of Optuna's; name a new file.")


def _open_journal(file: Path) -> "BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    lock = JournalFileSymlinkLock(str(file))
    if file.exists():
        lock.acquire()  # Nobody is in the middle of a record then.
        try:
            _require_records(file)
        finally:
            lock.release()
    return JournalStorage(JournalFileBackend(str(file), lock))


def _require_records(file: Path) -> None:
    """Refuse a file that holds anything but whole records of Optuna's, before one is added."""
    with file.open("rb") as journal:
        # The limit is for a file that has no lines.
        lines = iter(lambda: journal.readline(_MOST_OF_A_LINE), b"")
        for number, line in enumerate(lines, 1):
            try:
                is_record = {"op_code", "worker_id"} <= json.loads(line).keys()
            except (ValueError, AttributeError, RecursionError):
                is_record = False
            if not is_record or not line.endswith(b"\n"):
                raise InvalidArgumentError(
                    f"{file}: line {number} is not a whole record of Optuna's journal, "
                    f"{shown(line)}; correct the file, or name another one."
                )
