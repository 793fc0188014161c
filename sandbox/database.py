"""The sandbox's one SQLite file: its tables, how it is opened, what a transaction is.

The statements that fill and question the tables are `store`'s and `records`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS channels (id INTEGER PRIMARY KEY, slug TEXT NOT NULL UNIQUE, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS access (
  owner TEXT NOT NULL, channel_id INTEGER NOT NULL, PRIMARY KEY (owner, channel_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS keys (
  name TEXT PRIMARY KEY, owner TEXT NOT NULL, digest BLOB NOT NULL, last_four TEXT NOT NULL, state TEXT NOT NULL,
  scopes TEXT NOT NULL, expires_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY, channel_id INTEGER NOT NULL, title TEXT NOT NULL, status TEXT NOT NULL, starts_at REAL NOT NULL,
  body BLOB NOT NULL, key_name TEXT NOT NULL, idempotency_key TEXT NOT NULL, request_id TEXT NOT NULL, created_at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_channel ON events (channel_id, starts_at);
CREATE TABLE IF NOT EXISTS media (
  id INTEGER PRIMARY KEY, media_type TEXT NOT NULL, image BLOB NOT NULL, key_name TEXT NOT NULL, created_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS used_keys (
  key_name TEXT NOT NULL, route TEXT NOT NULL, idempotency_key TEXT NOT NULL, digest BLOB NOT NULL, status INTEGER NOT NULL,
  code TEXT NOT NULL, body BLOB NOT NULL, at REAL NOT NULL, PRIMARY KEY (key_name, route, idempotency_key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS audit (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, request_id TEXT NOT NULL, route TEXT NOT NULL, key_name TEXT NOT NULL,
  idempotency_key TEXT NOT NULL, digest TEXT NOT NULL, status INTEGER NOT NULL, code TEXT NOT NULL, outcome TEXT NOT NULL,
  fault TEXT NOT NULL,
  event_id INTEGER);
"""


class StateInUseError(RuntimeError):
    """Another sandbox holds the state folder."""


def open_database(folder: Path | None) -> sqlite3.Connection:
    """The database of a state folder, made if need be, or one in memory. Raises StateInUseError if another process has it."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        folder / "sandbox.db" if folder else ":memory:", isolation_level=None, check_same_thread=False, timeout=1
    )
    try:
        # What a killed process wrote is the kernel's to keep; only a power cut could take it, and this is a sandbox.
        connection.executescript("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;")
        connection.executescript(_SCHEMA)
    except sqlite3.OperationalError as locked:
        connection.close()
        raise StateInUseError(f"{folder} is in use by another sandbox: stop it, or choose another state folder") from locked
    return connection


@contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """One transaction: all of the block or, if it raises, none of it. Never await inside."""
    database.execute("BEGIN")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
