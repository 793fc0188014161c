"""Failures of a state DB: a closed list with hints, and the recognition of the drivers' errors.

SQLite's result codes: https://sqlite.org/rescode.html. PostgreSQL's:
https://www.postgresql.org/docs/current/errcodes-appendix.html.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Collection, Mapping
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


def _busy(what: str, hint: str) -> tuple[type[SyncError], str, str]:
    return StateBusyError, what, hint


def _unavailable(what: str, hint: str) -> tuple[type[SyncError], str, str]:
    return StateUnavailableError, what, hint


class Failure(Enum):
    """A kind of failure: its exception, what is wrong, and the hint."""

    LOCKED = _busy(
        "is held by another process", "run again when that process is done; `eventsync status` shows which run holds a feed"
    )
    AWAY = _busy(
        "cannot be reached, or the connection was lost",
        "run again when the server is back: nothing is lost. If it never was there, check EVENTSYNC_STATE_URL",
    )
    CROWDED = _busy(
        "has no room for another connection or its work", "run again later, or let the server take more (max_connections, memory)"
    )
    SLOW_POOL = _busy("did not answer in time", "run again later; look at the load of the server")
    OUT_OF_FILES = _busy(
        "cannot be opened: this process or machine has too many files open",
        "close what uses them, or raise the limit (`ulimit -n`), then run again",
    )
    READ_ONLY = _unavailable(
        "is read-only", "let the user who runs this write to the file and its folder, or set EVENTSYNC_STATE_URL to another place"
    )
    FULL = _unavailable("cannot be written: no room is left", "make room on its disk, then run again")
    BROKEN_DISK = _unavailable(
        "cannot be written or read: its disk fails, is full, or a quota or limit of file sizes is reached",
        "make room on its disk or repair it, then run again",
    )
    DAMAGED = (
        StateDamagedError,
        "is damaged",
        "restore it from a backup, or move it away: a run from an empty state DB sends the same keys again",
    )
    MOVED = _unavailable(
        "was deleted or replaced while it was in use",
        "run again: from an empty or older state DB the same keys are sent, and the service recognises them",
    )
    NOT_OPENED = _unavailable(
        "cannot be opened",
        "make the folder and give it to the user who runs this, or set EVENTSYNC_STATE_URL to a place that can be written",
    )
    NO_DATABASE = _unavailable(
        "does not exist on its server", "create it (`createdb`, encoding UTF8), or correct the name in EVENTSYNC_STATE_URL"
    )
    LOGIN = _unavailable("does not let us in", "correct user and password in EVENTSYNC_STATE_URL, or the server's pg_hba.conf")
    NO_RIGHTS = _unavailable(
        "does not let our role do what is needed",
        "its owner grants them: GRANT USAGE, CREATE ON SCHEMA public, and all rights on the tables there",
    )
    BAD_ADDRESS = (
        ConfigError,
        "cannot be connected to as EVENTSYNC_STATE_URL asks",
        "for example postgresql://user@host/name; after `?` stand libpq's own connection options",
    )
    STRANGE_TABLES = _unavailable(
        "does not have the tables that we expect",
        "`eventsync state verify` shows what differs; restore it from a backup, or set EVENTSYNC_STATE_URL to another place",
    )
    STRANGE_VALUE = _unavailable(
        "cannot keep a value", "a PostgreSQL database needs the encoding UTF8; else please report this as a fault of eventsync"
    )
    OTHER = _unavailable("cannot be used", "check that it is reachable and that you may write to it")

    def error(self, name: str, reply: str) -> SyncError:
        """Return the exception: `name` is the database's for people, `reply` the text of the driver or the system."""
        kind, what, hint = self.value
        if self is Failure.DAMAGED and "://" not in name:
            hint += f"; either way delete {name}-wal and {name}-shm too, if they are there: they belong to the old file"
        error: SyncError = kind(f"the state DB {name} {what}: {reply}", hint=hint)
        return error


_PRIMARY = 0xFF
_SQLITE_CODES = {
    Failure.LOCKED: (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL),
    Failure.READ_ONLY: (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM),
    Failure.FULL: (sqlite3.SQLITE_FULL,),
    Failure.BROKEN_DISK: (sqlite3.SQLITE_IOERR,),
    Failure.DAMAGED: (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT),
    Failure.STRANGE_TABLES: (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA),  # all statements of ours fit our own tables
    Failure.STRANGE_VALUE: (sqlite3.SQLITE_TOOBIG,),
}
_TORN = (sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)
_ERRNOS = {
    Failure.OUT_OF_FILES: (errno.EMFILE, errno.ENFILE),
    Failure.READ_ONLY: (errno.EROFS, errno.EPERM, errno.EACCES),
    Failure.FULL: (errno.ENOSPC, errno.EDQUOT),
}
_SQLSTATES = {
    Failure.READ_ONLY: ("25006",),
    Failure.AWAY: ("08", "57", "25P03", "25P04"),  # 25P03: idle in transaction for too long, the session was ended
    Failure.LOGIN: ("28000", "28P01"),
    Failure.NO_DATABASE: ("3D000",),
    Failure.LOCKED: ("40001", "40P01", "55P03", "57014"),  # 57014: a statement timeout of the server's own
    Failure.NO_RIGHTS: ("42501",),
    Failure.FULL: ("53100",),
    Failure.CROWDED: ("53",),
    Failure.BROKEN_DISK: ("58", "58030"),
    Failure.DAMAGED: ("XX001", "XX002"),
    Failure.STRANGE_VALUE: ("22",),
    Failure.STRANGE_TABLES: ("3F", "42"),
}
"""SQLSTATEs of each failure, or their first two characters (classes), which apply if the full code is not listed."""
_REFUSALS = {
    Failure.LOGIN: ("authentication failed", "no password supplied", "pg_hba.conf", "is not permitted to log in"),
    Failure.NO_RIGHTS: ("permission denied for database",),
    Failure.CROWDED: ("too many", "connection slots"),
    Failure.BAD_ADDRESS: (
        *("invalid connection option", "unrecognized configuration parameter", "invalid value for parameter"),
        *("invalid integer value", "certificate", "sslmode", "does not support ssl"),
    ),
}
"""Texts of refused connections, by libpq and the server, since libpq does not pass on their SQLSTATE."""


def _failure_of(code: object, known: Mapping[Failure, Collection[object]]) -> Failure | None:
    return next((failure for failure, codes in known.items() if code in codes), None)


def of_sqlite(error: sqlite3.Error, path: str | None) -> tuple[Failure, str]:
    """Return the failure for an error of SQLite, and its text. `path`: the file, if the database is one."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)  # the module's own complaints have none
    if code & _PRIMARY == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(path, str(error))
    if code in _TORN:
        return Failure.DAMAGED, str(error)
    return _failure_of(code & _PRIMARY, _SQLITE_CODES) or Failure.OTHER, str(error)


def _cannot_open(path: str | None, reply: str) -> tuple[Failure, str]:
    """Open the file as SQLite would, to find the operating system's reason."""
    if path is None:
        return Failure.NOT_OPENED, reply
    try:
        os.close(os.open(path, os.O_RDWR))
        os.close(os.open(Path(path).parent, os.O_RDONLY))  # SQLite opens more than one file
    except OSError as error:
        return _failure_of(error.errno, _ERRNOS) or Failure.NOT_OPENED, f"{reply} ({error.strerror})"
    return Failure.NOT_OPENED, reply


def of_postgres(error: DBAPIError) -> Failure:
    """Return the failure for an error of PostgreSQL, by SQLSTATE or, for a refused connection, by its text."""
    if state := str(getattr(error.orig, "sqlstate", None) or ""):
        return _failure_of(state, _SQLSTATES) or _failure_of(state[:2], _SQLSTATES) or Failure.OTHER
    if error.connection_invalidated:
        return Failure.AWAY
    if error.statement is not None:
        return Failure.STRANGE_VALUE
    reply = str(error.orig).lower()
    if "does not exist" in reply:
        return Failure.LOGIN if 'role "' in reply else Failure.NO_DATABASE
    return next((failure for failure, words in _REFUSALS.items() if any(word in reply for word in words)), Failure.AWAY)


class HeldByAnotherError(TransientError):
    """Another run holds the feed: `holder` on `host` with process id `pid`, since `since`; it may be alive."""

    def __init__(
        self, *, holder: str, since: datetime, host: str, pid: int, what: str = "the feed is held by", hint: str = ""
    ) -> None:
        super().__init__(
            f"{what} {holder} (process {pid} on {host}) since {since:%Y-%m-%d %H:%M:%S} UTC",
            hint=hint
            or "wait for its end (`eventsync run FEED --wait` does), or stop it; a killed run frees the feed within a minute",
        )
        self.holder = holder
        self.since = since
        self.host = host
        self.pid = pid


class LeaseLostError(TransientError):
    """Another run has taken over the feed, so this one must stop at once; the other run settles what is left."""
