"""What the sandbox knows of its callers: channels and who may use them, API keys, used idempotency keys.

The events, images and audit lines that callers leave are `records`'s; the tables are `database`'s.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from sandbox.answers import Answer
from sandbox.keys import ApiKey
from sandbox.seed import Channel


class Kept(NamedTuple):
    """A used idempotency key: the first body's digest, its answer, when (seconds since the epoch)."""

    digest: bytes
    answer: Answer
    at: float


class Store:
    """What callers are held against. Each write counts at once, or with the transaction it is part of."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def add_channel(self, channel: Channel) -> None:
        """Adds a channel with its owners' access, unless it is there."""
        self._db.execute("INSERT OR IGNORE INTO channels VALUES (?, ?, ?)", (channel.id, channel.slug, channel.name))
        for owner in channel.owners:
            self.give_access(owner, channel.id)

    def channels(self) -> list[Channel]:
        """All channels by id, each with the owners that may use it now."""
        owners: dict[int, set[str]] = {}
        for owner, channel_id in self._db.execute("SELECT owner, channel_id FROM access"):
            owners.setdefault(channel_id, set()).add(owner)
        rows = self._db.execute("SELECT id, slug, name FROM channels ORDER BY id")
        return [Channel(number, slug, name, frozenset(owners.get(number, ()))) for number, slug, name in rows]

    def give_access(self, owner: str, channel_id: int) -> None:
        """Lets `owner` use the channel from now on."""
        self._db.execute("INSERT OR IGNORE INTO access VALUES (?, ?)", (owner, channel_id))

    def take_access(self, owner: str, channel_id: int) -> None:
        """Ends `owner`'s use of the channel."""
        self._db.execute("DELETE FROM access WHERE owner = ? AND channel_id = ?", (owner, channel_id))

    def clear_access(self) -> None:
        """Ends everybody's use of every channel."""
        self._db.execute("DELETE FROM access")

    def put_key(self, key: ApiKey) -> None:
        """Adds an API key, or replaces the one of its name."""
        row = (key.name, key.owner, key.digest, key.last_four, key.state, " ".join(sorted(key.scopes)), key.expires_at)
        self._db.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def api_keys(self) -> list[ApiKey]:
        """All API keys by name."""
        rows = self._db.execute("SELECT name, owner, digest, last_four, state, scopes, expires_at FROM keys ORDER BY name")
        return [
            ApiKey(name, owner, digest, last_four, state, frozenset(scopes.split()), expires_at)
            for name, owner, digest, last_four, state, scopes, expires_at in rows
        ]

    def kept(self, slot: tuple[str, str, str]) -> Kept | None:
        """What is stored of a used idempotency key."""
        row = self._db.execute(
            "SELECT digest, status, body, code, at FROM used_keys WHERE key_name = ? AND route = ? AND idempotency_key = ?", slot
        ).fetchone()
        return Kept(row[0], Answer(row[1], row[2], row[3]), row[4]) if row else None

    def keep(self, slot: tuple[str, str, str], kept: Kept) -> None:
        """Stores an idempotency key's answer, in place of a forgotten one."""
        answer = kept.answer
        row = (*slot, kept.digest, answer.status, answer.code, answer.body, kept.at)
        self._db.execute("INSERT OR REPLACE INTO used_keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
