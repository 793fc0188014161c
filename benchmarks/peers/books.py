"""The ledger of the scripts by hand: which row was sent with which content, in SQLite, one transaction a row.

It is as much as such scripts have: a row that was sent is not sent again. What the frameworks remember is their own affair.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

from job import Event


def body_of(event: Event) -> tuple[bytes, str]:
    """Return the event's JSON and its digest."""
    body = json.dumps(event, sort_keys=True).encode()
    return body, hashlib.sha256(body).hexdigest()


class Books:
    def __init__(self, folder: Path) -> None:
        self.database = sqlite3.connect(folder / "books.db")
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("PRAGMA synchronous=NORMAL")
        self.database.execute("CREATE TABLE IF NOT EXISTS sent (id TEXT PRIMARY KEY, digest TEXT, event INTEGER)")

    def has(self, row_id: str, digest: str) -> bool:
        known = self.database.execute("SELECT digest FROM sent WHERE id = ?", (row_id,)).fetchone()
        return known is not None and known[0] == digest

    def write(self, row_id: str, digest: str, event_id: int) -> None:
        self.database.execute("INSERT OR REPLACE INTO sent VALUES (?, ?, ?)", (row_id, digest, event_id))
        self.database.commit()
