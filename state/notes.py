"""What is known beside the rows: notes about a service, uploaded images, and which notices were sent to whom.

Losing any of it costs an upload, a question or a repeated notice, never an event.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, delete, func, or_, select, update

from mappings.row_key import FeedName
from state.database import insert_if_new, put, reading, writing
from state.tables import MEDIA, MEDIA_ADDRESS, NOTICE_SENT, ROUTE_PACE, RUN, SCOPE, SERVICE_NOTE


class ServiceNotes:
    """Small texts about one destination by name, such as a list's version, which outlive a run."""

    def __init__(self, engine: Engine, destination: str, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._destination = destination
        self._now = now

    def read(self, name: str) -> str | None:
        """Return the text noted under `name`, None if there is none."""
        value = select(SERVICE_NOTE.c.value).where(SERVICE_NOTE.c.destination == self._destination, SERVICE_NOTE.c.name == name)
        with reading(self._engine) as connection:
            return connection.execute(value).scalar()

    def write(self, name: str, value: str) -> None:
        """Note a text, in place of what stood there; of several writers at once, the last one stands."""
        key = {"destination": self._destination, "name": name}
        with writing(self._engine) as connection:
            put(connection, SERVICE_NOTE, key, {"value": value, "noted_at": self._now()})


@dataclass(frozen=True, slots=True)
class KnownAddress:
    """What lay at an address: the digest of the bytes, the `ETag` header ("" if there was none), and when it was seen."""

    content_digest: bytes
    etag: str
    seen_at: datetime


class MediaMemory:
    """The images of one destination."""

    def __init__(self, engine: Engine, destination: str) -> None:
        self._engine = engine
        self._destination = destination

    def known_content(self, digest: bytes) -> int | None:
        """Return the id that the service gave to these bytes, None if they were never uploaded."""
        media_id = select(MEDIA.c.media_id).where(MEDIA.c.destination == self._destination, MEDIA.c.content_digest == digest)
        with reading(self._engine) as connection:
            return connection.execute(media_id).scalar()

    def known_address(self, url: str) -> KnownAddress | None:
        """Return what lay at an address when it was last fetched, None if it never was."""
        found = select(MEDIA_ADDRESS.c.content_digest, MEDIA_ADDRESS.c.etag, MEDIA_ADDRESS.c.seen_at).where(
            MEDIA_ADDRESS.c.destination == self._destination, MEDIA_ADDRESS.c.url == url
        )
        with reading(self._engine) as connection:
            row = connection.execute(found).one_or_none()
        return None if row is None else KnownAddress(*row)

    def forget(self, media_id: int) -> None:
        """Forget the image that the service gave this id to: it may be there no longer."""
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
    """Put how fast it went on the page of a run that has begun."""
    with writing(engine) as connection:
        connection.execute(update(RUN).where(*_page(destination, feed, run_id)).values(pace=json.dumps(dict(pace))))


def add_notices(engine: Engine, destination: str, feed: FeedName, run_id: str, notices: Sequence[str]) -> None:
    """Add sentences to the page of a run that has begun, each once; a run that was not recorded has none."""
    is_page = _page(destination, feed, run_id)
    with writing(engine) as connection:
        known = connection.execute(select(RUN.c.notices).where(*is_page)).scalar()
        if known is not None:
            every = dict.fromkeys([*json.loads(known), *notices])
            connection.execute(update(RUN).where(*is_page).values(notices=json.dumps(list(every))))


def _page(destination: str, feed: FeedName, run_id: str) -> tuple[ColumnElement[bool], ...]:
    scope = select(SCOPE.c.id).where(SCOPE.c.destination == destination, SCOPE.c.feed == feed).scalar_subquery()
    return RUN.c.scope_id == scope, RUN.c.id == run_id


CLAIM_S = 300.0
"""How long a process has to send what it has claimed. If it dies meanwhile, a notice may be sent twice."""
_IS_DUE = or_(NOTICE_SENT.c.told_at.is_(None), NOTICE_SENT.c.is_over)
"""What `Notice.is_due` says."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One cause for one recipient. `told_at`: when it was sent, None if not yet; `is_over`: it has ended, which is not sent yet.

    `noted_at`: since when we know of it, or of its end.
    """

    feed: FeedName
    recipient: str
    cause: str
    words: str
    noted_at: datetime
    told_at: datetime | None = None
    is_over: bool = False

    @property
    def is_due(self) -> bool:
        """Whether something about it is still to be sent."""
        return self.told_at is None or self.is_over


_NOTICES = select(*(NOTICE_SENT.c[each.name] for each in fields(Notice)))


class NoticesSent:
    """The notices about the feeds of one destination."""

    def __init__(self, engine: Engine, destination: str, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._destination = destination
        self._now = now

    def all(self) -> tuple[Notice, ...]:
        """Return all that is open or still to be sent, by feed, recipient and cause."""
        which = _NOTICES.where(NOTICE_SENT.c.destination == self._destination)
        with reading(self._engine) as connection:
            rows = connection.execute(which.order_by(NOTICE_SENT.c.feed, NOTICE_SENT.c.recipient, NOTICE_SENT.c.cause))
            return tuple(Notice(*row) for row in rows)

    def unfinished(self) -> frozenset[FeedName]:
        """Return the feeds with notices that are still to be sent."""
        which = select(NOTICE_SENT.c.feed).where(NOTICE_SENT.c.destination == self._destination, _IS_DUE).distinct()
        with reading(self._engine) as connection:
            return frozenset(FeedName(feed) for feed in connection.execute(which).scalars())

    def note(self, feed: FeedName, recipient: str, wanted: Mapping[str, str]) -> None:
        """Note what a recipient should know: the causes that there are now, each in words.

        What was sent and is not among them is over; what was not sent yet is forgotten. A cause that comes back before its
        end was sent has never ended.
        """
        ours = self._ours(feed, recipient)
        with writing(self._engine) as connection:
            # Rows are locked in the order of their causes, as everywhere: the updates below take several at once.
            connection.execute(select(NOTICE_SENT.c.cause).where(*ours).order_by(NOTICE_SENT.c.cause).with_for_update())
            for cause in sorted(wanted):
                key = {"destination": self._destination, "feed": feed, "recipient": recipient, "cause": cause}
                new = {"words": wanted[cause], "noted_at": self._now(), "is_over": False}
                connection.execute(insert_if_new(connection, NOTICE_SENT), {**key, **new})
                is_unsent = (*ours, NOTICE_SENT.c.cause == cause, NOTICE_SENT.c.told_at.is_(None))
                connection.execute(update(NOTICE_SENT).where(*is_unsent).values(words=wanted[cause]))
            is_gone = NOTICE_SENT.c.cause.not_in(sorted(wanted))
            connection.execute(delete(NOTICE_SENT).where(*ours, is_gone, NOTICE_SENT.c.told_at.is_(None), self._is_free()))
            is_ending = (*ours, is_gone, NOTICE_SENT.c.told_at.is_not(None), ~NOTICE_SENT.c.is_over)
            connection.execute(update(NOTICE_SENT).where(*is_ending).values(is_over=True, noted_at=self._now()))
            connection.execute(update(NOTICE_SENT).where(*ours, ~is_gone).values(is_over=False))

    def claim(self, feed: FeedName, recipient: str) -> tuple[Notice, ...]:
        """Return what is still to be sent to a recipient about a feed; no other process gets it meanwhile."""
        which = (*self._ours(feed, recipient), _IS_DUE, self._is_free())
        with writing(self._engine) as connection:
            due = connection.execute(_NOTICES.where(*which).order_by(NOTICE_SENT.c.cause).with_for_update()).all()
            until = self._now() + timedelta(seconds=CLAIM_S)
            connection.execute(update(NOTICE_SENT).where(*which).values(claimed_until=until))
        return tuple(Notice(*row) for row in due)

    def settle(self, sent: Collection[Notice]) -> None:
        """Record that these were sent; one whose end was sent is forgotten, unless it has begun anew since."""
        with writing(self._engine) as connection:
            for notice in sent:
                if notice.told_at is None:
                    sent_now = {"told_at": self._now(), "words": notice.words, "claimed_until": None}
                    connection.execute(update(NOTICE_SENT).where(*self._this(notice)).values(**sent_now))
                else:
                    connection.execute(delete(NOTICE_SENT).where(*self._this(notice), NOTICE_SENT.c.is_over))
                    connection.execute(update(NOTICE_SENT).where(*self._this(notice)).values(told_at=None, claimed_until=None))

    def release(self, claimed: Collection[Notice]) -> None:
        """Give back what could not be sent."""
        with writing(self._engine) as connection:
            for notice in claimed:
                connection.execute(update(NOTICE_SENT).where(*self._this(notice)).values(claimed_until=None))

    def forget_others(self, feed: FeedName, recipients: Collection[str]) -> None:
        """Forget what was sent to recipients that a feed does not have any more."""
        others = (*self._of_feed(feed), NOTICE_SENT.c.recipient.not_in(sorted(recipients)))
        with writing(self._engine) as connection:
            connection.execute(delete(NOTICE_SENT).where(*others))

    def _of_feed(self, feed: FeedName) -> tuple[ColumnElement[bool], ...]:
        return NOTICE_SENT.c.destination == self._destination, NOTICE_SENT.c.feed == feed

    def _ours(self, feed: FeedName, recipient: str) -> tuple[ColumnElement[bool], ...]:
        return (*self._of_feed(feed), NOTICE_SENT.c.recipient == recipient)

    def _this(self, notice: Notice) -> tuple[ColumnElement[bool], ...]:
        return (*self._ours(notice.feed, notice.recipient), NOTICE_SENT.c.cause == notice.cause)

    def _is_free(self) -> ColumnElement[bool]:
        """It is not claimed, or was too long ago; or the clock was set back since, so that the claim would last too long."""
        now, until = self._now(), NOTICE_SENT.c.claimed_until
        return or_(until.is_(None), until <= now, until > now + timedelta(seconds=CLAIM_S))


@dataclass(frozen=True, slots=True)
class SharedRate:
    """What the workers of a `destination` know of the rate limit of one `route`, as text that one of them changes at a time.

    The clock is the database's own on PostgreSQL, and `now` (aware times) on SQLite, which only processes of one host use. Every
    call raises `StateUnavailableError` or `StateBusyError` where the state DB fails.
    """

    engine: Engine
    destination: str
    route: str
    now: Callable[[], datetime]

    def read(self) -> tuple[str, float]:
        """Return the text ("" at first) and how many seconds ago it was written, below 0 where the clock was set back."""
        with reading(self.engine) as connection:
            return self._read(connection, self._row)[:2]

    def change(self, compute: Callable[[str, float], str]) -> None:
        """Replace the text by what `compute` makes of it and its age, while every other worker that would do the same waits."""
        with writing(self.engine) as connection:
            blank = {"destination": self.destination, "route": self.route, "version": 0, "pace": "", "updated_at": self.now()}
            connection.execute(insert_if_new(connection, ROUTE_PACE), blank)
            text, age_s, now = self._read(connection, self._row.with_for_update())
            new = {"pace": compute(text, age_s), "version": ROUTE_PACE.c.version + 1, "updated_at": now}
            connection.execute(update(ROUTE_PACE).where(*self._is_route).values(new))

    @property
    def _is_route(self) -> tuple[ColumnElement[bool], ...]:
        return ROUTE_PACE.c.destination == self.destination, ROUTE_PACE.c.route == self.route

    @property
    def _row(self) -> Select[Any]:
        return select(ROUTE_PACE.c.pace, ROUTE_PACE.c.updated_at).where(*self._is_route)

    def _read(self, connection: Connection, query: Select[Any]) -> tuple[str, float, datetime]:
        row = connection.execute(query).one_or_none()
        is_server = connection.dialect.name == "postgresql"
        clock = select(func.clock_timestamp(type_=ROUTE_PACE.c.updated_at.type))
        now = connection.execute(clock).scalar_one() if is_server else self.now().astimezone(UTC)
        return (row.pace, (now - row.updated_at).total_seconds(), now) if row is not None and row.pace else ("", 0.0, now)
