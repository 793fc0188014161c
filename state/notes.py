"""Records beside the rows: notes about a service, uploaded images, sent notifications, shared rate limits.

Losing them costs an upload, a request or a repeated notification, never an event.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import ColumnElement, Engine, delete, func, null, select, update

from mappings.row_key import FeedName
from state.database import insert_if_new, put, reading, writing
from state.tables import MEDIA, MEDIA_ADDRESS, NOTICE_SENT, ROUTE_PACE, RUN, SCOPE, SERVICE_NOTE

T = TypeVar("T")


class ServiceNotes:
    """Named texts about one destination, such as a list's version, that outlive a run."""

    def __init__(self, engine: Engine, destination: str, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._destination = destination
        self._now = now

    def read(self, name: str) -> str | None:
        """Return the text stored under `name`, None if there is none."""
        value = select(SERVICE_NOTE.c.value).where(SERVICE_NOTE.c.destination == self._destination, SERVICE_NOTE.c.name == name)
        with reading(self._engine) as connection:
            return connection.execute(value).scalar()

    def write(self, name: str, value: str) -> None:
        """Store a text under `name`; of several concurrent writers the last one wins."""
        key = {"destination": self._destination, "name": name}
        with writing(self._engine) as connection:
            put(connection, SERVICE_NOTE, key, {"value": value, "noted_at": self._now()})

    def read_as(self, name: str, kind: TypeAdapter[T]) -> T | None:
        """Return the value stored under `name`, None if there is none or another version wrote it."""
        stored = self.read(name)
        try:
            return None if stored is None else kind.validate_json(stored)
        except ValidationError:
            return None

    def write_as(self, name: str, kind: TypeAdapter[T], value: T) -> None:
        """Store a value under `name`, to be read by `read_as`."""
        self.write(name, kind.dump_json(value, ensure_ascii=True).decode("ascii"))


@dataclass(frozen=True, slots=True)
class KnownAddress:
    """The content found at an address: the digest of its bytes, the `ETag` header ("" if none), and when it was fetched."""

    content_digest: bytes
    etag: str
    seen_at: datetime


class MediaMemory:
    """The uploaded images of one destination."""

    def __init__(self, engine: Engine, destination: str) -> None:
        self._engine = engine
        self._destination = destination

    def known_content(self, digest: bytes) -> int | None:
        """Return the service's id of these bytes, None if they were never uploaded."""
        media_id = select(MEDIA.c.media_id).where(MEDIA.c.destination == self._destination, MEDIA.c.content_digest == digest)
        with reading(self._engine) as connection:
            return connection.execute(media_id).scalar()

    def known_address(self, url: str) -> KnownAddress | None:
        """Return what an address had when it was last fetched, None if it never was."""
        found = select(MEDIA_ADDRESS.c.content_digest, MEDIA_ADDRESS.c.etag, MEDIA_ADDRESS.c.seen_at).where(
            MEDIA_ADDRESS.c.destination == self._destination, MEDIA_ADDRESS.c.url == url
        )
        with reading(self._engine) as connection:
            row = connection.execute(found).one_or_none()
        return None if row is None else KnownAddress(*row)

    def forget(self, media_id: int) -> None:
        """Delete the record of an image by the service's id: it may not exist there any more."""
        with writing(self._engine) as connection:
            connection.execute(delete(MEDIA).where(MEDIA.c.destination == self._destination, MEDIA.c.media_id == media_id))

    def remember(self, url: str, digest: bytes, media_id: int, *, etag: str, seen_at: datetime) -> None:
        """Record that the bytes at `url` have this digest and, at the service, this id."""
        content = {"destination": self._destination, "content_digest": digest}
        address = {"destination": self._destination, "url": url}
        with writing(self._engine) as connection:
            put(connection, MEDIA, content, {"media_id": media_id, "uploaded_at": seen_at})
            put(connection, MEDIA_ADDRESS, address, {"content_digest": digest, "etag": etag, "seen_at": seen_at})


def put_pace(engine: Engine, destination: str, feed: FeedName, run_id: str, pace: Mapping[str, float]) -> None:
    """Record the speed of a run, in its existing record."""
    with writing(engine) as connection:
        connection.execute(update(RUN).where(*_page(destination, feed, run_id)).values(pace=json.dumps(dict(pace))))


def add_notices(engine: Engine, destination: str, feed: FeedName, run_id: str, notices: Sequence[str]) -> None:
    """Add messages to the record of a run, each once; a run without a record is ignored."""
    is_page = _page(destination, feed, run_id)
    with writing(engine) as connection:
        known = connection.execute(select(RUN.c.notices).where(*is_page)).scalar()
        if known is not None:
            every = dict.fromkeys([*json.loads(known), *notices])
            connection.execute(update(RUN).where(*is_page).values(notices=json.dumps(list(every))))


def _page(destination: str, feed: FeedName, run_id: str) -> tuple[ColumnElement[bool], ...]:
    scope = select(SCOPE.c.id).where(SCOPE.c.destination == destination, SCOPE.c.feed == feed).scalar_subquery()
    return RUN.c.scope_id == scope, RUN.c.id == run_id


class NoticesSent:
    """The causes that the recipients of the feeds of one destination were last notified of."""

    def __init__(self, engine: Engine, destination: str, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._destination = destination
        self._now = now

    def causes(self) -> dict[tuple[FeedName, str], frozenset[str]]:
        """Return the causes of each feed and recipient that has any."""
        sent = select(NOTICE_SENT.c.feed, NOTICE_SENT.c.recipient, NOTICE_SENT.c.cause)
        found = defaultdict[tuple[FeedName, str], set[str]](set)
        with reading(self._engine) as connection:
            for feed, recipient, cause in connection.execute(sent.where(NOTICE_SENT.c.destination == self._destination)):
                found[FeedName(feed), recipient].add(cause)
        return {key: frozenset(causes) for key, causes in found.items()}

    def forget_others(self, feed: FeedName, recipients: Collection[str]) -> None:
        """Delete what is recorded of recipients that a feed no longer has."""
        is_feed = NOTICE_SENT.c.destination == self._destination, NOTICE_SENT.c.feed == feed
        with writing(self._engine) as connection:
            connection.execute(delete(NOTICE_SENT).where(*is_feed, NOTICE_SENT.c.recipient.not_in(sorted(recipients))))

    def replace(self, feed: FeedName, recipient: str, causes: Collection[str]) -> None:
        """Record that a recipient was notified of these causes of a feed, and of no others."""
        key = {"destination": self._destination, "feed": feed, "recipient": recipient}
        with writing(self._engine) as connection:
            connection.execute(delete(NOTICE_SENT).where(*(NOTICE_SENT.c[name] == value for name, value in key.items())))
            for cause in sorted(causes):
                put(connection, NOTICE_SENT, {**key, "cause": cause}, {"noted_at": self._now()})


@dataclass(frozen=True, slots=True)
class SharedRate:
    """The state of the rate limiters of one `route` of a `destination`: one text for all workers (optimistic locking).

    The clock is the database's own on PostgreSQL, and `now` (aware times) on SQLite, which only processes of one host use.
    """

    engine: Engine
    destination: str
    route: str
    now: Callable[[], datetime]

    def exchange(self, compute: Callable[[str, float], str | None]) -> None:
        """Replace the text by the result of `compute` for the text ("" at first) and its age in seconds; None leaves it.

        `compute` is called again if another worker has changed the text meanwhile. The age is negative after a clock was set
        back. Raises `StateUnavailableError` or `StateBusyError` if the state DB fails.
        """
        is_server = self.engine.dialect.name == "postgresql"
        clock = func.clock_timestamp(type_=ROUTE_PACE.c.updated_at.type) if is_server else null()
        is_route = ROUTE_PACE.c.destination == self.destination, ROUTE_PACE.c.route == self.route
        query = select(ROUTE_PACE.c.pace, ROUTE_PACE.c.version, ROUTE_PACE.c.updated_at, clock.label("now")).where(*is_route)
        is_written = False
        while not is_written:
            with reading(self.engine, autocommit=True) as connection:
                row = connection.execute(query).one_or_none()
            if row is None:
                blank = {"destination": self.destination, "route": self.route, "version": 0, "pace": ""}
                with writing(self.engine, autocommit=True) as connection:
                    connection.execute(insert_if_new(connection, ROUTE_PACE), blank | {"updated_at": self.now()})
                continue
            now = row.now or self.now()
            text = compute(row.pace, (now - row.updated_at).total_seconds() if row.pace else 0.0)
            if text is None:
                return
            new = {"pace": text, "version": row.version + 1, "updated_at": now}
            with writing(self.engine, autocommit=True) as connection:
                change = update(ROUTE_PACE).where(*is_route, ROUTE_PACE.c.version == row.version).values(new)
                is_written = connection.execute(change).rowcount == 1
