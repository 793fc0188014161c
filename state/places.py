"""Which file an open SQLite connection writes to, and whether that file still lies where it lay."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and the file that lay there when it was opened, by the system's own numbers."""

    path: str
    device: int
    inode: int

    def change(self) -> str:
        """Return what has become of it, "" while it is the same file."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 # twice in every transaction: a Path costs more than the question
        except OSError as error:
            return str(error.strerror)
        is_same = (found.st_dev, found.st_ino) == (self.device, self.inode)
        return "" if is_same else "another file lies there now"


def place_of(connection: sqlite3.Connection) -> Place | None:
    """Return where a connection's file lies; None for a database in memory."""
    path = str(connection.execute("PRAGMA database_list").fetchone()[2] or "")
    if not path:
        return None
    found = os.stat(path)  # noqa: PTH116 # as above
    return Place(path, found.st_dev, found.st_ino)
