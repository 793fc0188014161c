"""What callers leave behind: events, images, and one audit line per request.

Channels, API keys and used idempotency keys are `store`'s; the tables are `database`'s.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

_FIRST_EVENT_ID: Final = 100_001
_FIRST_MEDIA_ID: Final = 5_001
_NEXT_EVENT: Final = "SELECT coalesce(max(id) + 1, ?) FROM events"
_NEXT_IMAGE: Final = "SELECT coalesce(max(id) + 1, ?) FROM media"
_IN_CHANNELS: Final = "SELECT count(*) FROM events WHERE channel_id IN (SELECT value FROM json_each(?))"
_NEWEST: Final = "SELECT * FROM events WHERE channel_id IN (SELECT value FROM json_each(?)) ORDER BY id DESC LIMIT ? OFFSET ?"
_OLDEST: Final = "SELECT * FROM events WHERE channel_id IN (SELECT value FROM json_each(?)) ORDER BY id ASC LIMIT ? OFFSET ?"
_PROGRAMME: Final = "SELECT * FROM events WHERE channel_id = ? ORDER BY starts_at, id LIMIT ? OFFSET ?"
_AFTER: Final = "SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?"
_ATTEMPTS: Final = "SELECT * FROM audit WHERE id > ? AND (? = '' OR route = ?) ORDER BY id LIMIT ?"
_FORGET: Final = ("DELETE FROM events", "DELETE FROM media", "DELETE FROM used_keys", "DELETE FROM audit")


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it was created; `body` is the payload's very bytes. Times in seconds since the epoch."""

    id: int
    channel_id: int
    title: str
    status: str
    starts_at: float
    body: bytes
    key_name: str
    idempotency_key: str
    request_id: str
    created_at: float


@dataclass(slots=True)
class Attempt:
    """The audit line of one request, filled in as it is handled. `digest`: hex of the body's, "" without a body."""

    at: float
    request_id: str
    route: str
    key_name: str = ""
    idempotency_key: str = ""
    digest: str = ""
    status: int = 0
    code: str = ""
    outcome: str = ""
    fault: str = ""
    event_id: int | None = None


class KeyUse(NamedTuple):
    """How often an API key was used, and when last (seconds since the epoch)."""

    times: int
    last_at: float


class Records:
    """Events, images and audit lines. Each write counts at once, or with the transaction it is part of."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._next_event_id = self._next(_NEXT_EVENT, _FIRST_EVENT_ID)
        self._next_media_id = self._next(_NEXT_IMAGE, _FIRST_MEDIA_ID)
        self.image_ids: set[int] = {number for (number,) in database.execute("SELECT id FROM media")}

    def add_event(self, event: StoredEvent) -> None:
        """Keeps a created event, whose id came from `new_event_id`."""
        row = (event.id, event.channel_id, event.title, event.status, event.starts_at, event.body)
        origin = (event.key_name, event.idempotency_key, event.request_id, event.created_at)
        self._db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row + origin)

    def new_event_id(self) -> int:
        """An id that no event has; one that goes unused leaves a gap."""
        self._next_event_id += 1
        return self._next_event_id - 1

    def add_image(self, media_type: str, image: bytes, key_name: str, at: float) -> int:
        """Keeps an image and returns its id."""
        number = self._next_media_id
        self._db.execute("INSERT INTO media VALUES (?, ?, ?, ?, ?)", (number, media_type, image, key_name, at))
        self._next_media_id += 1
        self.image_ids.add(number)
        return number

    def image(self, number: int) -> tuple[str, bytes] | None:
        """An image's media type and bytes."""
        row = self._db.execute("SELECT media_type, image FROM media WHERE id = ?", (number,)).fetchone()
        return (row[0], row[1]) if row else None

    def count(self, channel_ids: Iterable[int]) -> int:
        """How many events the channels hold together."""
        return int(self._db.execute(_IN_CHANNELS, (_listed(channel_ids),)).fetchone()[0])

    def created(self, channel_ids: Iterable[int], offset: int, limit: int, *, newest_first: bool) -> list[StoredEvent]:
        """A page of the channels' events in the order of their creation."""
        return self._events(_NEWEST if newest_first else _OLDEST, (_listed(channel_ids), limit, offset))

    def programme(self, channel_id: int, offset: int, limit: int) -> list[StoredEvent]:
        """A page of a channel's events in the order in which they start."""
        return self._events(_PROGRAMME, (channel_id, limit, offset))

    def after(self, event_id: int, limit: int) -> list[StoredEvent]:
        """Up to `limit` events with a higher id, by id."""
        return self._events(_AFTER, (event_id, limit))

    def per_channel(self) -> dict[int, dict[str, int]]:
        """Events of each channel by status."""
        counts: dict[int, dict[str, int]] = {}
        for channel_id, status, count in self._db.execute("SELECT channel_id, status, count(*) FROM events GROUP BY 1, 2"):
            counts.setdefault(channel_id, {})[status] = count
        return counts

    def add_attempt(self, attempt: Attempt) -> None:
        """Writes a request's audit line."""
        self._db.execute("INSERT INTO audit VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(attempt))

    def attempts(self, route: str, after: int, limit: int) -> list[tuple[int, Attempt]]:
        """Up to `limit` audit lines of a route ("" for all) with a higher number than `after`, with their numbers."""
        rows = self._db.execute(_ATTEMPTS, (after, route, route, limit))
        return [(row[0], Attempt(*row[1:])) for row in rows]

    def uses(self) -> dict[str, KeyUse]:
        """How each API key was used, by its name."""
        rows = self._db.execute("SELECT key_name, count(*), max(at) FROM audit WHERE key_name <> '' GROUP BY 1")
        return {name: KeyUse(times, last_at) for name, times, last_at in rows}

    def outcomes(self) -> dict[str, dict[str, int]]:
        """How many requests of each route came to which outcome."""
        counts: dict[str, dict[str, int]] = {}
        for route, outcome, count in self._db.execute("SELECT route, outcome, count(*) FROM audit GROUP BY 1, 2"):
            counts.setdefault(route, {})[outcome] = count
        return counts

    def clear(self) -> None:
        """Forgets all that callers left, their used keys too. Ids are not used again."""
        for statement in _FORGET:
            self._db.execute(statement)
        self.image_ids.clear()

    def _next(self, statement: str, first: int) -> int:
        return int(self._db.execute(statement, (first,)).fetchone()[0])

    def _events(self, statement: str, values: tuple[object, ...]) -> list[StoredEvent]:
        return [StoredEvent(*row) for row in self._db.execute(statement, values)]


def _row(attempt: Attempt) -> tuple[object, ...]:
    # By hand: `astuple` copies deeply, which would be the dearest part of a request.
    who = (attempt.at, attempt.request_id, attempt.route, attempt.key_name, attempt.idempotency_key, attempt.digest)
    return (*who, attempt.status, attempt.code, attempt.outcome, attempt.fault, attempt.event_id)


def _listed(channel_ids: Iterable[int]) -> str:
    return orjson.dumps(list(channel_ids)).decode()
