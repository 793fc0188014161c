"""SQLite's result codes, and the system's own words where SQLite has none. What is said of each trouble is `trouble`'s.

The codes: https://sqlite.org/rescode.html.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from state.trouble import Trouble

_PRIMARY = 0xFF
_TROUBLES = {
    sqlite3.SQLITE_BUSY: Trouble.LOCKED,
    sqlite3.SQLITE_LOCKED: Trouble.LOCKED,
    sqlite3.SQLITE_PROTOCOL: Trouble.LOCKED,
    sqlite3.SQLITE_READONLY: Trouble.READ_ONLY,
    sqlite3.SQLITE_PERM: Trouble.READ_ONLY,
    sqlite3.SQLITE_FULL: Trouble.FULL,
    sqlite3.SQLITE_IOERR: Trouble.BROKEN_DISK,
    sqlite3.SQLITE_CORRUPT: Trouble.DAMAGED,
    sqlite3.SQLITE_NOTADB: Trouble.DAMAGED,
    sqlite3.SQLITE_FORMAT: Trouble.DAMAGED,
    sqlite3.SQLITE_ERROR: Trouble.STRANGE_TABLES,  # a statement that does not fit: all of ours fit our own tables
    sqlite3.SQLITE_SCHEMA: Trouble.STRANGE_TABLES,
    sqlite3.SQLITE_TOOBIG: Trouble.STRANGE_VALUE,
}
_TORN = {sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}
_OS_TROUBLES = {
    errno.EMFILE: Trouble.OUT_OF_FILES,
    errno.ENFILE: Trouble.OUT_OF_FILES,
    errno.EROFS: Trouble.READ_ONLY,
    errno.EPERM: Trouble.READ_ONLY,
    errno.EACCES: Trouble.READ_ONLY,
    errno.ENOSPC: Trouble.FULL,
    errno.EDQUOT: Trouble.FULL,
}


def recognise(error: sqlite3.Error, path: str | None) -> tuple[Trouble, str]:
    """Return what is wrong, and what came back. `path` is the file, where the database is one."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)  # the module's own complaints have none
    if code & _PRIMARY == sqlite3.SQLITE_CANTOPEN:
        return _why_not_opened(path, str(error))
    if code in _TORN:
        return Trouble.DAMAGED, str(error)
    return _TROUBLES.get(code & _PRIMARY, Trouble.OTHER), str(error)


def _why_not_opened(path: str | None, reply: str) -> tuple[Trouble, str]:
    """Open the file as SQLite would, to hear from the system why that fails."""
    if path is None:
        return Trouble.NOT_OPENED, reply
    try:
        os.close(os.open(path, os.O_RDWR))
        os.close(os.open(Path(path).parent, os.O_RDONLY))  # SQLite opens more than one file
    except OSError as error:
        return _OS_TROUBLES.get(error.errno or 0, Trouble.NOT_OPENED), f"{reply} ({error.strerror})"
    return Trouble.NOT_OPENED, reply
