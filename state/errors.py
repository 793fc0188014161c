"""Failures of a state DB: a closed list with hints, and the recognition of the drivers' errors.

SQLite's result codes: https://sqlite.org/rescode.html. PostgreSQL's:
https://www.postgresql.org/docs/current/errcodes-appendix.html.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from mappings.errors import ConfigError, PermanentError, SyncError, TransientError

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError


class StateUnavailableError(PermanentError):
    """The state DB cannot be opened, read or written until a person corrects something; what could not be recorded was not
    sent.
    """


class StateDamagedError(StateUnavailableError):
    """The file is not a database, or is damaged."""


class StateBusyError(TransientError):
    """Another process locks the state DB for longer than we wait, or it cannot be reached at the moment."""


class Failure(Enum):
    """A kind of failure: its exception, what is wrong, the hint, and the beginnings of the codes that mean it (SQLite's names,
    SQLSTATEs, and errno's names).
    """

    LOCKED = (
        StateBusyError,
        "is held by another process",
        "run again when that process is done; `eventsync status` shows which run holds a feed",
        "SQLITE_BUSY SQLITE_LOCKED SQLITE_PROTOCOL 40001 40P01 55P03 57014",
    )
    AWAY = (
        StateBusyError,
        "cannot be reached, or has no room for another connection",
        "run again later: nothing is lost. If it never was there, check EVENTSYNC_STATE_URL, and the server's max_connections",
        "08 25P03 25P04 53 57",
    )
    OUT_OF_FILES = (
        StateBusyError,
        "cannot be opened: this process or machine has too many files open",
        "close what uses them, or raise the limit (`ulimit -n`), then run again",
        "EMFILE ENFILE",
    )
    READ_ONLY = (
        StateUnavailableError,
        "is read-only, or does not let our role do what is needed",
        "let the user who runs this write to the file and its folder, or GRANT the role CREATE ON SCHEMA and all on its tables",
        "SQLITE_READONLY EROFS EPERM EACCES 25006 42501",
    )
    FULL = (
        StateUnavailableError,
        "cannot be written or read: no room is left, or its disk fails",
        "make room on its disk or repair it, raise a quota or a limit of file sizes, then run again",
        "SQLITE_FULL SQLITE_IOERR ENOSPC EDQUOT 53100 58",
    )
    DAMAGED = (
        StateDamagedError,
        "is damaged",
        "restore it from a backup, or move it away: a run from an empty state DB sends the same keys again",
        "SQLITE_CORRUPT SQLITE_NOTADB SQLITE_FORMAT SQLITE_IOERR_SHORT_READ SQLITE_IOERR_CORRUPTFS XX001 XX002",
    )
    MOVED = (
        StateUnavailableError,
        "was deleted or replaced while it was in use",
        "run again: from an empty or older state DB the same keys are sent, and the service recognises them",
        "",
    )
    BAD_ADDRESS = (
        ConfigError,
        "cannot be connected to as EVENTSYNC_STATE_URL asks",
        "correct user, password, database and options there, or the server's pg_hba.conf; `createdb -E UTF8` makes a database",
        "28000 28P01 3D000",
    )
    STRANGE_TABLES = (
        StateUnavailableError,
        "does not have the tables that we expect",
        "`eventsync state verify` shows what differs; restore it from a backup, or set EVENTSYNC_STATE_URL to another place",
        "SQLITE_ERROR SQLITE_SCHEMA 3F 42",  # all statements of ours fit our own tables
    )
    OTHER = (
        StateUnavailableError,
        "cannot be used",
        "look at its place and rights; PostgreSQL needs the encoding UTF8; else please report this as a fault of eventsync",
        "",
    )

    def error(self, name: str, reply: str) -> SyncError:
        """Return the exception: `name` is the database's for people, `reply` the text of the driver or the system."""
        kind, what, hint, _ = self.value
        if self is Failure.DAMAGED and "://" not in name:
            hint += f"; either way delete {name}-wal and {name}-shm too, if they are there: they belong to the old file"
        error: SyncError = kind(f"the state DB {name} {what}: {reply}", hint=hint)
        return error


_WRONG_ADDRESS = (
    *("authentication failed", "no password supplied", "pg_hba.conf", "is not permitted to log in", "does not exist"),
    *("permission denied for database", "invalid connection option", "unrecognized configuration parameter"),
    *("invalid value for parameter", "invalid integer value", "certificate", "sslmode", "does not support ssl"),
)
"""Texts of refused connections, by libpq and the server, since libpq does not pass on their SQLSTATE."""


def _failure_of(code: str) -> Failure:
    """Return the failure with the longest beginning of a code."""
    known = {start: failure for failure in Failure for start in failure.value[3].split() if code.startswith(start)}
    return known[max(known, key=len)] if known else Failure.OTHER


def of_system(error: OSError) -> Failure:
    """Return the failure for an error of the operating system."""
    return _failure_of(errno.errorcode.get(error.errno or 0, ""))


def of_sqlite(error: sqlite3.Error, path: str | None) -> tuple[Failure, str]:
    """Return the failure for an error of SQLite, and its text. `path`: the file, if the database is one."""
    code, reply = getattr(error, "sqlite_errorname", ""), str(error)  # the module's own complaints have none
    if path and code.startswith("SQLITE_CANTOPEN"):
        try:  # as SQLite would, to find the operating system's reason
            os.close(os.open(path, os.O_RDWR))
            os.close(os.open(Path(path).parent, os.O_RDONLY))  # SQLite opens more than one file
        except OSError as reason:
            return of_system(reason), f"{reply} ({reason.strerror})"
    return _failure_of(code), reply


def of_postgres(error: DBAPIError) -> Failure:
    """Return the failure for an error of PostgreSQL, by SQLSTATE or, for a refused connection, by its text."""
    if state := str(getattr(error.orig, "sqlstate", None) or ""):
        return _failure_of(state)
    if error.connection_invalidated:
        return Failure.AWAY
    if error.statement is not None:
        return Failure.OTHER
    reply = str(error.orig).lower()
    return Failure.BAD_ADDRESS if any(words in reply for words in _WRONG_ADDRESS) else Failure.AWAY


class HeldByAnotherError(TransientError):
    """Another run holds the feed: `holder` on `host` with process id `pid`, since `since`; it may be alive."""

    def __init__(self, *, holder: str, since: datetime, host: str, pid: int, what: str = "the feed is held by") -> None:
        super().__init__(
            f"{what} {holder} (process {pid} on {host}) since {since:%Y-%m-%d %H:%M:%S} UTC",
            hint="wait for its end (`eventsync run` does with --wait), or stop it; a killed run frees the feed within a minute",
        )
        self.holder = holder
        self.since = since
        self.host = host
        self.pid = pid


class LeaseLostError(TransientError):
    """Another run has taken over the feed, so this one must stop at once; the other run settles what is left."""
