"""What can be wrong with a state DB: one closed list with what to do, and how the errors of the drivers are recognised.

SQLite's result codes: https://sqlite.org/rescode.html. PostgreSQL's: https://www.postgresql.org/docs/current/errcodes-appendix.html.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from enum import Enum
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from mappings.errors import ConfigError, PermanentError, SyncError, TransientError


class StateUnavailableError(PermanentError):
    """The state DB cannot be opened, read or written until a person mends it; what could not be recorded was not sent."""


class StateDamagedError(StateUnavailableError):
    """The file is no database, or one with broken pages."""


class StateBusyError(TransientError):
    """The state DB is locked by another process for longer than we wait, or cannot be reached just now."""


class Failure(Enum):
    """What is wrong: the kind of error, what the database does or is, and what helps."""

    LOCKED = (
        StateBusyError,
        "is held by another process",
        "run again when that one is done; `eventsync status` shows which run holds a feed",
    )
    AWAY = (
        StateBusyError,
        "cannot be reached, or the connection was lost",
        "run again when the server is back: nothing is lost. If it never was there, check EVENTSYNC_STATE_URL",
    )
    CROWDED = (
        StateBusyError,
        "has no room for another connection or its work",
        "run again later, or let the server take more (max_connections, memory)",
    )
    SLOW_POOL = (StateBusyError, "did not answer in time", "run again later; look at the load of the server")
    OUT_OF_FILES = (
        StateBusyError,
        "cannot be opened: this process or machine has too many files open",
        "end what holds them, or raise the limit (`ulimit -n`), then run again",
    )
    READ_ONLY = (
        StateUnavailableError,
        "is read-only",
        "let the user who runs this write to the file and its folder, or set EVENTSYNC_STATE_URL to another place",
    )
    FULL = (StateUnavailableError, "cannot be written: no room is left", "make room on its disk, then run again")
    BROKEN_DISK = (
        StateUnavailableError,
        "cannot be written or read: its disk fails, is full, or a quota or limit of file sizes is reached",
        "make room on its disk or mend it, then run again",
    )
    DAMAGED = (
        StateDamagedError,
        "is damaged",
        "restore it from a backup, or move it away: a run from an empty state DB sends the same keys again",
    )
    MOVED = (
        StateUnavailableError,
        "was deleted or replaced while it was in use",
        "run again: from an empty or older state DB the same keys are sent, and the service recognises them",
    )
    NOT_OPENED = (
        StateUnavailableError,
        "cannot be opened",
        "make the folder and give it to the user who runs this, or set EVENTSYNC_STATE_URL to a place that can be written",
    )
    NO_DATABASE = (
        StateUnavailableError,
        "does not exist on its server",
        "create it (`createdb`, encoding UTF8), or mend the name in EVENTSYNC_STATE_URL",
    )
    LOGIN = (
        StateUnavailableError,
        "does not let us in",
        "mend user and password in EVENTSYNC_STATE_URL, or the server's pg_hba.conf",
    )
    NO_RIGHTS = (
        StateUnavailableError,
        "does not let our role do what is needed",
        "its owner grants them: GRANT USAGE, CREATE ON SCHEMA public, and all rights on the tables there",
    )
    BAD_ADDRESS = (
        ConfigError,
        "cannot be connected to as EVENTSYNC_STATE_URL asks",
        "for example postgresql://user@host/name; after `?` stand libpq's own connection options",
    )
    STRANGE_TABLES = (
        StateUnavailableError,
        "does not have the tables that we expect",
        "`eventsync state verify` tells what differs; restore it from a backup, or set EVENTSYNC_STATE_URL to another place",
    )
    STRANGE_VALUE = (
        StateUnavailableError,
        "cannot keep a value",
        "a PostgreSQL database needs the encoding UTF8; else please report this as a fault of eventsync",
    )
    OTHER = (StateUnavailableError, "cannot be used", "check that it is reachable and that you may write to it")

    def error(self, name: str, reply: str) -> SyncError:
        """Return the error for people: `name` of the database, `reply` of the driver or the system."""
        kind: type[SyncError] = self.value[0]
        _, what, hint = self.value
        return kind(f"the state DB {name} {what}: {reply}", hint=hint)


_PRIMARY = 0xFF
_SQLITE_CODES = {
    sqlite3.SQLITE_BUSY: Failure.LOCKED,
    sqlite3.SQLITE_LOCKED: Failure.LOCKED,
    sqlite3.SQLITE_PROTOCOL: Failure.LOCKED,
    sqlite3.SQLITE_READONLY: Failure.READ_ONLY,
    sqlite3.SQLITE_PERM: Failure.READ_ONLY,
    sqlite3.SQLITE_FULL: Failure.FULL,
    sqlite3.SQLITE_IOERR: Failure.BROKEN_DISK,
    sqlite3.SQLITE_CORRUPT: Failure.DAMAGED,
    sqlite3.SQLITE_NOTADB: Failure.DAMAGED,
    sqlite3.SQLITE_FORMAT: Failure.DAMAGED,
    sqlite3.SQLITE_ERROR: Failure.STRANGE_TABLES,  # a statement that does not fit: all of ours fit our own tables
    sqlite3.SQLITE_SCHEMA: Failure.STRANGE_TABLES,
    sqlite3.SQLITE_TOOBIG: Failure.STRANGE_VALUE,
}
_TORN = {sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}
_OS_TROUBLES = {
    errno.EMFILE: Failure.OUT_OF_FILES,
    errno.ENFILE: Failure.OUT_OF_FILES,
    errno.EROFS: Failure.READ_ONLY,
    errno.EPERM: Failure.READ_ONLY,
    errno.EACCES: Failure.READ_ONLY,
    errno.ENOSPC: Failure.FULL,
    errno.EDQUOT: Failure.FULL,
}
_SQLSTATES = {
    "25006": Failure.READ_ONLY,
    "25P03": Failure.AWAY,  # idle in transaction for too long: the session was ended
    "25P04": Failure.AWAY,
    "28000": Failure.LOGIN,
    "28P01": Failure.LOGIN,
    "3D000": Failure.NO_DATABASE,
    "40001": Failure.LOCKED,
    "40P01": Failure.LOCKED,
    "42501": Failure.NO_RIGHTS,
    "53100": Failure.FULL,
    "55P03": Failure.LOCKED,
    "57014": Failure.LOCKED,  # a statement timeout of the server's own
    "58030": Failure.BROKEN_DISK,
    "XX001": Failure.DAMAGED,
    "XX002": Failure.DAMAGED,
}
_SQLSTATE_CLASSES = {
    "08": Failure.AWAY,
    "22": Failure.STRANGE_VALUE,
    "3F": Failure.STRANGE_TABLES,
    "42": Failure.STRANGE_TABLES,
    "53": Failure.CROWDED,
    "57": Failure.AWAY,
    "58": Failure.BROKEN_DISK,
}
# libpq keeps the SQLSTATE of a refused connection to itself; what follows are its and the server's words for people.
_REFUSALS = (
    ("authentication failed", Failure.LOGIN),
    ("no password supplied", Failure.LOGIN),
    ("pg_hba.conf", Failure.LOGIN),
    ("is not permitted to log in", Failure.LOGIN),
    ("permission denied for database", Failure.NO_RIGHTS),
    ("too many", Failure.CROWDED),
    ("connection slots", Failure.CROWDED),
    ("invalid connection option", Failure.BAD_ADDRESS),
    ("unrecognized configuration parameter", Failure.BAD_ADDRESS),
    ("invalid value for parameter", Failure.BAD_ADDRESS),
    ("invalid integer value", Failure.BAD_ADDRESS),
    ("certificate", Failure.BAD_ADDRESS),
    ("sslmode", Failure.BAD_ADDRESS),
    ("does not support ssl", Failure.BAD_ADDRESS),
)


def of_sqlite(error: sqlite3.Error, path: str | None) -> tuple[Failure, str]:
    """Return what is wrong and the reply. `path`: the file, where the database is one."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)  # the module's own complaints have none
    if code & _PRIMARY == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(path, str(error))
    if code in _TORN:
        return Failure.DAMAGED, str(error)
    return _SQLITE_CODES.get(code & _PRIMARY, Failure.OTHER), str(error)


def _cannot_open(path: str | None, reply: str) -> tuple[Failure, str]:
    """Open the file as SQLite would, to get the system's reason."""
    if path is None:
        return Failure.NOT_OPENED, reply
    try:
        os.close(os.open(path, os.O_RDWR))
        os.close(os.open(Path(path).parent, os.O_RDONLY))  # SQLite opens more than one file
    except OSError as error:
        return _OS_TROUBLES.get(error.errno or 0, Failure.NOT_OPENED), f"{reply} ({error.strerror})"
    return Failure.NOT_OPENED, reply


def of_postgres(error: DBAPIError) -> Failure:
    """Return what is wrong: by the SQLSTATE, or by the words of a refused connection, whose SQLSTATE libpq does not pass on."""
    if state := str(getattr(error.orig, "sqlstate", None) or ""):
        return _SQLSTATES.get(state) or _SQLSTATE_CLASSES.get(state[:2], Failure.OTHER)
    if error.connection_invalidated:
        return Failure.AWAY
    if error.statement is not None:
        return Failure.STRANGE_VALUE
    reply = str(error.orig).lower()
    if "does not exist" in reply:
        return Failure.LOGIN if 'role "' in reply else Failure.NO_DATABASE
    return next((trouble for words, trouble in _REFUSALS if words in reply), Failure.AWAY)
