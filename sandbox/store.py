"""The sandbox's SQLite database: channels and access, API keys, used idempotency keys, events, images and audit lines."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

from sandbox.answers import Reply

K = TypeVar("K")
KeyState = Literal["active", "revoked", "disabled", "expired"]
KEY_STATES: Final[tuple[KeyState, ...]] = ("active", "revoked", "disabled", "expired")
STARTING_SCOPES: Final = frozenset({"channels:read", "events:create"})
"""The scopes of a new key (specification, section Authentication)."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as the service stores it."""

    name: str
    owner: str
    digest: bytes = field(repr=False)
    last_four: str
    state: KeyState
    scopes: frozenset[str]


def make_key(name: str, owner: str, secret: str, scopes: Iterable[str], state: KeyState = "active") -> ApiKey:
    """Return a key for `secret`, of which only the digest and the last four characters are stored."""
    return ApiKey(name, owner, digest_of(secret), secret[-4:], state, frozenset(scopes))


def digest_of(secret: str) -> bytes:
    """Return the SHA-256 digest of a secret, 32 bytes; the secret itself is not stored."""
    return hashlib.sha256(secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel to publish to; `owners`: the accounts that own it or have access to it."""

    id: int
    slug: str
    name: str
    owners: frozenset[str]


DEFAULT_KEY: Final = "default"
OWNER: Final = "demo"
ALL_SCOPES: Final = frozenset({*STARTING_SCOPES, "events:read", "media:create"})
_SEED: Final = json.loads(files("sandbox").joinpath("seed.json").read_text("utf-8"))
CHANNELS: Final = tuple(Channel(one["id"], one["slug"], one["name"], frozenset(one["owners"])) for one in _SEED["channels"])
CLASSIFICATIONS: Final[Mapping[str, dict[str, Any]]] = _SEED["classifications"]
"""The lists of classifications, each with its version and its `docs` (slug, name, description)."""
SLUGS: Final = {name: {one["slug"] for one in listed["docs"]} for name, listed in CLASSIFICATIONS.items()}


def seed_keys(default_secret: str) -> tuple[ApiKey, ...]:
    """Return the default key, and one key for each refusal to test, whose secrets are public on purpose."""
    return (
        make_key(DEFAULT_KEY, OWNER, default_secret, ALL_SCOPES),
        make_key("starter", OWNER, "sandbox-key-starter", STARTING_SCOPES),
        make_key("reader", OWNER, "sandbox-key-reader", {"channels:read"}),
        make_key("revoked", OWNER, "sandbox-key-revoked", ALL_SCOPES, "revoked"),
        make_key("disabled", OWNER, "sandbox-key-disabled", ALL_SCOPES, "disabled"),
        make_key("expired", OWNER, "sandbox-key-expired", ALL_SCOPES, "expired"),
    )


class StoredAnswer(NamedTuple):
    """A used idempotency key: the digest of its first body, the answer, and when (seconds since the epoch)."""

    digest: bytes
    answer: Reply
    at: float


_FIRST_EVENT_ID: Final = 100_001
_FIRST_MEDIA_ID: Final = 5_001


class StoredEvent(NamedTuple):
    """A created event; `body`: the exact bytes of the payload. Times in seconds since the epoch."""

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
    """The audit line of one request, filled in during its handling. `digest`: hex digest of the body, "" without a body."""

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


# Not `astuple`: its deep copies would be the slowest part of a request.
_KEY_ROW: Final = attrgetter("name", "owner", "digest", "last_four", "state")
_ATTEMPT_ROW: Final = attrgetter(*(one.name for one in fields(Attempt)))


class Store:
    """The database of one sandbox. Each write is committed at once, or with its transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._next_event_id = self._number("SELECT coalesce(max(id) + 1, ?) FROM events", _FIRST_EVENT_ID)
        self._next_media_id = self._number("SELECT coalesce(max(id) + 1, ?) FROM media", _FIRST_MEDIA_ID)
        self.image_ids: set[int] = {number for (number,) in database.execute("SELECT id FROM media")}

    def close(self) -> None:
        """Close the database; may be called twice."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of the block or, if it raises, none. Never await inside."""
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def access(self) -> list[tuple[str, int]]:
        """Return the access to channels, as pairs of an owner and a channel's id."""
        return self._db.execute("SELECT owner, channel_id FROM access").fetchall()

    def set_access(self, owner: str, channel_id: int, *, is_allowed: bool) -> None:
        """Grant or withdraw an owner's access to a channel."""
        change = "INSERT OR IGNORE INTO access (owner, channel_id) VALUES (?, ?)"
        if not is_allowed:
            change = "DELETE FROM access WHERE owner = ? AND channel_id = ?"
        self._db.execute(change, (owner, channel_id))

    def put_key(self, key: ApiKey) -> None:
        """Add an API key, or replace the one with its name."""
        statement = "INSERT OR REPLACE INTO keys (name, owner, digest, last_four, state, scopes) VALUES (?, ?, ?, ?, ?, ?)"
        self._db.execute(statement, (*_KEY_ROW(key), " ".join(sorted(key.scopes))))

    def api_keys(self) -> list[ApiKey]:
        """Return all API keys, sorted by name."""
        rows = self._db.execute("SELECT name, owner, digest, last_four, state, scopes FROM keys ORDER BY name")
        return [
            ApiKey(name, owner, digest, four, state, frozenset(scopes.split()))
            for name, owner, digest, four, state, scopes in rows
        ]

    def stored_answer(self, slot: tuple[str, str, str]) -> StoredAnswer | None:
        """Return the stored answer of a used idempotency key, None for a new key."""
        row = self._db.execute(
            "SELECT digest, status, body, code, at FROM used_keys WHERE key_name = ? AND route = ? AND idempotency_key = ?", slot
        ).fetchone()
        return StoredAnswer(row[0], Reply(*row[1:4]), row[4]) if row else None

    def store_answer(self, slot: tuple[str, str, str], stored: StoredAnswer) -> None:
        """Store the answer of an idempotency key, replacing an expired one."""
        answer = stored.answer
        row = (*slot, stored.digest, answer.status, answer.code, answer.body, stored.at)
        self._db.execute("INSERT OR REPLACE INTO used_keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def add_event(self, event: StoredEvent) -> None:
        """Add a created event, whose id is from `new_event_id`."""
        self._db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", event)

    def new_event_id(self) -> int:
        """Return a new event id; an unused one leaves a gap."""
        self._next_event_id += 1
        return self._next_event_id - 1

    def add_image(self, media_type: str, image: bytes, key_name: str, at: float) -> int:
        """Add an image and return its id."""
        number = self._next_media_id
        self._db.execute("INSERT INTO media VALUES (?, ?, ?, ?, ?)", (number, media_type, image, key_name, at))
        self._next_media_id += 1
        self.image_ids.add(number)
        return number

    def image(self, number: int) -> tuple[str, bytes] | None:
        """Return an image's media type and bytes, None if there is no such image."""
        found: tuple[str, bytes] | None = self._db.execute(
            "SELECT media_type, image FROM media WHERE id = ?", (number,)
        ).fetchone()
        return found

    def count(self, channel_ids: Iterable[int]) -> int:
        """Count the events of the channels."""
        statement = "SELECT count(*) FROM events WHERE channel_id IN (SELECT value FROM json_each(?))"
        return self._number(statement, json.dumps(list(channel_ids)))

    def created(self, channel_ids: Iterable[int], offset: int, limit: int) -> list[StoredEvent]:
        """Return a page of the channels' events, the newest first."""
        statement = "SELECT * FROM events WHERE channel_id IN (SELECT value FROM json_each(?)) ORDER BY id DESC LIMIT ? OFFSET ?"
        return self._events(statement, json.dumps(list(channel_ids)), limit, offset)

    def programme(self, channel_id: int, offset: int, limit: int) -> list[StoredEvent]:
        """Return a page of a channel's events, in order of their start."""
        return self._events(
            "SELECT * FROM events WHERE channel_id = ? ORDER BY starts_at, id LIMIT ? OFFSET ?", channel_id, limit, offset
        )

    def after(self, event_id: int, limit: int) -> list[StoredEvent]:
        """Return up to `limit` events with a higher id, by id."""
        return self._events("SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?", event_id, limit)

    def count_by_status(self) -> dict[int, dict[str, int]]:
        """Count the events of each channel by status."""
        return _nested(self._db.execute("SELECT channel_id, status, count(*) FROM events GROUP BY 1, 2"))

    def add_attempt(self, attempt: Attempt) -> None:
        """Write a request's audit line."""
        self._db.execute("INSERT INTO audit VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _ATTEMPT_ROW(attempt))

    def attempts(self, route: str, after: int, limit: int) -> list[tuple[int, Attempt]]:
        """Return up to `limit` audit lines of a route ("" for all) with numbers above `after`, and their numbers."""
        statement = "SELECT * FROM audit WHERE id > ? AND (? = '' OR route = ?) ORDER BY id LIMIT ?"
        rows = self._db.execute(statement, (after, route, route, limit))
        return [(row[0], Attempt(*row[1:])) for row in rows]

    def uses(self) -> dict[str, tuple[int, float]]:
        """Return by API key's name how often the key was used, and when last (seconds since the epoch)."""
        rows = self._db.execute("SELECT key_name, count(*), max(at) FROM audit WHERE key_name <> '' GROUP BY 1")
        return {name: (times, last_at) for name, times, last_at in rows}

    def outcomes(self) -> dict[str, dict[str, int]]:
        """Count the requests of each route by outcome."""
        return _nested(self._db.execute("SELECT route, outcome, count(*) FROM audit GROUP BY 1, 2"))

    def clear(self) -> None:
        """Delete everything that callers created, including used idempotency keys and access. Ids are not used again."""
        for table in ("events", "media", "used_keys", "audit", "access"):
            self._db.execute(f"DELETE FROM {table}")  # noqa: S608  # names of our own
        self.image_ids.clear()

    def _number(self, statement: str, value: object) -> int:
        return int(self._db.execute(statement, (value,)).fetchone()[0])

    def _events(self, statement: str, *values: object) -> list[StoredEvent]:
        return [StoredEvent(*row) for row in self._db.execute(statement, values)]


def _nested(rows: Iterable[tuple[K, str, int]]) -> dict[K, dict[str, int]]:
    counts: dict[K, dict[str, int]] = {}
    for outer, inner, count in rows:
        counts.setdefault(outer, {})[inner] = count
    return counts


_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS access (
  owner TEXT NOT NULL, channel_id INTEGER NOT NULL, PRIMARY KEY (owner, channel_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS keys (
  name TEXT PRIMARY KEY, owner TEXT NOT NULL, digest BLOB NOT NULL, last_four TEXT NOT NULL, state TEXT NOT NULL,
  scopes TEXT NOT NULL) WITHOUT ROWID;
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
    """Open the database of a state folder, or one in memory. Raises StateInUseError if another process has it open."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        folder / "sandbox.db" if folder else ":memory:", isolation_level=None, check_same_thread=False, timeout=1
    )
    try:
        # A killed process loses nothing, because the kernel has its writes; a power cut may, which is fine for a sandbox.
        connection.executescript("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;")
        connection.executescript(_SCHEMA)
    except sqlite3.OperationalError as locked:
        connection.close()
        raise StateInUseError(f"{folder} is in use by another sandbox: stop it, or choose another state folder") from locked
    return connection
