"""The storage of a study: memory, SQLite, PostgreSQL or a journal file of Optuna's.

A file that exists must be Optuna's already, or nothing is written to it.

These functions never print or raise a text that contains a password.
"""

import contextlib
import dataclasses
import json
import re
import sqlite3
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myriad.errors import InvalidArgumentError, MyriadError, NotInstalledError, shown
from myriad.files import locked

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

# Seconds that a writer waits for others, each of which writes for milliseconds.
_PATIENCE_S = 120
_CONNECT_S = 10
_MOST_OF_A_LINE = 16 * 2**20
# Seconds between heartbeats, and seconds without one after which a process loses its trial.
HEARTBEAT_S = 10
GRACE_S = 60
# What a file without a scheme is, by its ending.
_KINDS = {".db": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".journal": "journal"}
# With these, a server that hears nothing from a host frees its locks after a minute.
_KEEPALIVES = "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
_KNOWN = "FILE.db, postgresql://USER@HOST/DATABASE or FILE.journal"


@dataclasses.dataclass(frozen=True)
class Place:
    """A place for studies, read from `--storage`. Nothing has been made yet.

    Attributes:
        kind: memory, sqlite, postgresql or journal.
        file: the file of a sqlite or journal storage.
        url: the address of a database, with its password.
    """

    kind: str
    file: Path | None = None
    url: str | None = dataclasses.field(default=None, repr=False)

    def __str__(self) -> str:
        """Return the storage as it may be shown, without password and options."""
        if self.kind == "postgresql":
            assert self.url is not None
            return re.sub(r"^(\w+)\+\w+", r"\1", _without_password(self.url))
        if self.kind == "sqlite":
            return f"sqlite:///{self.file}"
        return str(self.file or "memory")

    @contextlib.contextmanager
    def exclusive(self, storage: "BaseStorage", study_name: str) -> Iterator[None]:
        """Lock out all other processes that claim trials of the study, on any host.

        The operating system or the server releases the lock of a killed process.
        """
        if self.kind == "postgresql":
            with _advisory_lock(storage, study_name):
                yield
        elif self.file is not None:
            with locked(self.file.parent):
                yield
        else:
            yield

    def open(self) -> "BaseStorage":
        """Connect, and make missing files, folders and tables.

        Raises:
            InvalidArgumentError: the storage can't be reached or used.
            NotInstalledError: Optuna or the driver is missing.
        """
        require_optuna()
        if self.kind == "memory":
            from optuna.storages import InMemoryStorage

            return InMemoryStorage()
        if self.file is not None:
            _make_folder(self.file, str(self))
        with explained(self), warnings.catch_warnings():
            # Optuna warns that heartbeats are experimental, but Myriad tests them.
            warnings.filterwarnings("ignore", message=".*heartbeat_interval")
            if self.kind == "journal":
                return _open_journal(self.file)
            if self.kind == "sqlite":
                return _open_sqlite(self.file)
            return _open_postgresql(self.url)


def read_storage(storage: str | None) -> Place:
    """Parse the place of a study, without making anything.

    Raises:
        InvalidArgumentError: it is not valid. The message shows no password.

    Example:
        >>> print(read_storage("postgresql://me:secret@host/studies"))
        postgresql://me@host/studies
        >>> read_storage("sqlite:///studies.db")
        Place(kind='sqlite', file=PosixPath('studies.db'))
    """
    if storage is None:
        return Place("memory")
    scheme, separator, rest = storage.partition("://")
    if not separator:
        kind = _KINDS.get(Path(storage).suffix)
        # A colon or an @ is of an address that lacks its slashes.
        if kind is None or re.search(r"[@:?\0]", storage):
            raise InvalidArgumentError(f"storage must be {_KNOWN}, but got {_harmless(storage)}.")
        return Place(kind, Path(storage))
    if scheme == "sqlite":
        file = rest.removeprefix("/")
        if not rest.startswith("/") or file.strip("/") == "" or re.search(r"[?\0]", file):
            raise InvalidArgumentError(
                f"storage must be sqlite:///FILE, with three slashes, but got {_harmless(storage)}."
            )
        return Place("sqlite", Path(file))
    if not re.fullmatch(r"postgresql(\+psycopg)?", scheme):
        raise InvalidArgumentError(f"storage must be {_KNOWN}, but got {_harmless(storage)}.")
    return Place("postgresql", url=_psycopg_url(storage))


def require_optuna() -> None:
    """Raise NotInstalledError if Optuna is missing."""
    try:
        import optuna
    except ImportError as error:
        raise NotInstalledError("tuning needs Optuna: pip install 'myriad[tune]'") from error
    # Silence Optuna's log, since Myriad's own progress shows the same.
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def _harmless(storage: str) -> str:
    """Return a misspelt storage for a message, without what could be a password."""
    scheme, separator, _ = storage.partition("://")
    if separator:
        return shown(f"{scheme[:20]}://...")
    # Show a plain file name. Anything else may be an address in another form.
    return shown(storage if re.fullmatch(r"[\w./~+-]*", storage) else "...")


def _psycopg_url(storage: str) -> str:
    require_optuna()
    from sqlalchemy import make_url

    address = re.split(r"[?]", storage.partition("://")[2])[0]
    if address.count("@") > 1:
        raise InvalidArgumentError(
            "storage must have a single @, before the host; write an @ of a password as %40."
        )
    try:
        url = make_url(storage).set(drivername="postgresql+psycopg")
    except Exception:  # noqa: BLE001 (the error and its cause repeat the password)
        url = None
    if url is None or not url.database:
        raise InvalidArgumentError(
            f"storage must be postgresql://USER@HOST:PORT/DATABASE, but got {_harmless(storage)}."
        )
    return url.render_as_string(hide_password=False)


def _without_password(url: str) -> str:
    from sqlalchemy import make_url

    # Drop the options as well, which may hold a password.
    return make_url(url)._replace(password=None, query={}).render_as_string()


def _passwords(url: str | None) -> list[str]:
    """Return the secrets of an address, both decoded and as written."""
    if url is None:
        return []
    from sqlalchemy import make_url

    made = make_url(url)
    given = [made.password, *(value for name, value in made.query.items() if "pass" in name)]
    written = re.search(r"://[^:/@]*:([^@]*)@", url)
    found = [str(each) for each in given if each] + ([written[1]] if written else [])
    return sorted(set(filter(None, found)), key=len, reverse=True)


@contextlib.contextmanager
def explained(place: Place) -> Iterator[None]:
    """Turn any error of reading or writing a study into one sentence.

    Its cause, which may show the address, is dropped.
    """
    reason = None
    try:
        yield
    except MyriadError:
        raise
    except Exception as error:  # noqa: BLE001 (drivers, SQLAlchemy and Optuna have their own)
        reason = _reason(error, _passwords(place.url))
    if reason is not None:
        raise InvalidArgumentError(f"storage {place} can't be used: {reason}.")


def _reason(error: Exception, secrets: list[str]) -> str:
    """Return the first line of an error's root cause."""
    origin = getattr(error, "orig", None) or error.__cause__ or error
    origin = getattr(origin, "orig", None) or origin
    says = getattr(origin, "strerror", None) or str(origin) or type(origin).__name__
    lines = [line.strip() for line in str(says).splitlines() if line.strip()]
    # In psycopg's message, the last of several attempts is indented under a heading.
    line = " ".join((lines or [type(origin).__name__])[0].split())
    for secret in secrets:
        line = line.replace(secret, "***")
    return line.rstrip(".")


def _make_folder(file: Path, storage: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(
            f"storage {storage} can't be used: its folder can't be made, {error.strerror}."
        ) from error
    if file.exists() and not file.is_file():
        raise InvalidArgumentError(f"storage {storage} can't be used: it is not a file.")


def _open_sqlite(file: Path | None) -> "BaseStorage":
    from optuna.storages import RDBStorage
    from sqlalchemy import event

    assert file is not None
    # The first process makes the tables.
    with locked(file.parent):
        _require_optunas(file)
        _use_write_ahead_log(file)
        # Transactions are started below, and never by the driver at the first write.
        arguments = {"timeout": _PATIENCE_S, "isolation_level": None}
        storage = RDBStorage(
            f"sqlite:///{file}", {"connect_args": arguments}, **_heartbeat_arguments()
        )
    # A transaction that reads first and writes later fails at once if there is another writer,
    # whatever the timeout is. One that starts as a writer waits for its turn.
    event.listen(
        storage.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE")
    )
    return storage


def _require_optunas(file: Path) -> None:
    """Refuse a file that is neither empty nor a database of Optuna's, without writing to it.

    Only SQLite may open it: closing it again drops all locks that this process has on it.
    """
    size = file.stat().st_size if file.exists() else 0
    if not size:
        return
    address = f"{file.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, timeout=_PATIENCE_S, uri=True)
    with contextlib.closing(connection):
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
        columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(studies)")}
    # SQLite takes a single byte for an empty database. A process that was killed early leaves one.
    if size == 1 or (tables and not {"study_id", "study_name"} <= columns):
        raise InvalidArgumentError(
            f"storage {file} can't be used: it is not a database of Optuna's; name a new file."
        )


def _use_write_ahead_log(file: Path) -> None:
    connection = sqlite3.connect(file, timeout=_PATIENCE_S)
    with contextlib.closing(connection):
        connection.execute("PRAGMA journal_mode=WAL")


def _open_postgresql(url: str | None) -> "BaseStorage":
    from optuna.storages import RDBStorage

    assert url is not None
    arguments = {"connect_timeout": _CONNECT_S, "options": _KEEPALIVES}
    # Reopen a connection that a restart of the server has closed.
    engine = {"connect_args": arguments, "pool_pre_ping": True}
    last = None
    for _ in range(3):
        try:
            return RDBStorage(url.replace("%%", "%"), engine, **_heartbeat_arguments())
        except Exception as error:
            # Several processes may make the tables at the same time.
            if "already exists" not in str(error) and "duplicate key" not in str(error):
                raise
            last = error
    assert last is not None
    raise last


def _heartbeat_arguments() -> dict[str, Any]:
    return {"heartbeat_interval": HEARTBEAT_S, "grace_period": GRACE_S}


def _open_journal(file: Path | None) -> "BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.storages.journal._file import BaseJournalFileLock

    assert file is not None

    class FileLock(BaseJournalFileLock):
        """A lock of the operating system, which releases it when a process is killed."""

        def acquire(self) -> bool:
            self._held = contextlib.ExitStack()
            self._held.enter_context(locked(file))
            return True

        def release(self) -> None:
            self._held.close()

    with locked(file):
        _require_records(file)
    return JournalStorage(JournalFileBackend(str(file), FileLock()))


def _require_records(file: Path) -> None:
    """Refuse a file that holds anything but whole records of Optuna's, before one is added."""
    if not file.exists():
        return
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
                    f"storage {file} can't be used: line {number} is not a whole record of "
                    f"Optuna's journal, {shown(line)}; correct the file, or name another one."
                )


@contextlib.contextmanager
def _advisory_lock(storage: Any, study_name: str) -> Iterator[None]:
    from sqlalchemy import text

    number = zlib.crc32(f"myriad tune {study_name}".encode())
    with storage.engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": number})
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": number})
