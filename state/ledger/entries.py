"""The entries of the ledger: SQL conditions and queries on them, facts in their bodies, and writing a batch of rows.

SQL repeats no rule of `state.facts`: a condition names the combinations of facts for which a rule holds. A batch is written with
one statement per kind of change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from mappings.event import as_draft
from mappings.outcome import MappedRow
from mappings.row_key import FeedName, IdempotencyKey, RowKey, duplicate_digest_of, fingerprint, idempotency_key
from state.database import in_pages, insert_if_new, put_all, rounded
from state.enums import Decision, Grant, Observed, Outcome
from state.facts import (
    NO_ATTEMPTS,
    Attempts,
    Facts,
    Plan,
    Reading,
    Tried,
    has_event,
    may_be_pinned,
    may_exist,
    may_get_event,
    plan,
)
from state.ledger.lease import FencedTransaction
from state.tables import ATTEMPT, BODY, DECISION, DUPLICATE_MARK, ENTRY, OBSERVATION, SCOPE, UtcTime, storable

SOME = ENTRY.c.id.in_(sa.bindparam("entries", expanding=True))
_TRIED, _SEEN, _BODY = ATTEMPT.alias(), OBSERVATION.alias(), BODY.alias()
_OF_KEY = (_TRIED.c.entry_id == ENTRY.c.id, _TRIED.c.revision == ENTRY.c.revision)
_IS_SEEN = _SEEN.c.entry_id == ENTRY.c.id
# Facts beside an entry are looked up one by one. While these tables are filled, PostgreSQL's statistics may say that they are
# empty, and of a join it would make a nested loop over all pairs of rows.
_WAS_TRIED = sa.case((_TRIED.c.requests > 0, Tried.MAYBE.value), (_TRIED.c.is_limited, Tried.LIMITED.value), else_=Tried.NO.value)
TRIED = sa.func.coalesce(sa.select(_WAS_TRIED).where(*_OF_KEY).scalar_subquery(), Tried.NO.value)
"""What was tried under the present key of an entry."""
OBSERVED = sa.func.coalesce(sa.select(_SEEN.c.kind).where(_IS_SEEN).scalar_subquery(), Observed.SAME.value)
"""What the source of an entry says."""
PAYLOAD = sa.func.coalesce(
    sa.select(_BODY.c.body).where(_BODY.c.entry_id == ENTRY.c.id).scalar_subquery(),
    sa.select(_SEEN.c.body).where(_IS_SEEN).scalar_subquery(),
).label("body")
"""The body of an entry; of a held one, which has none, what its source asks for."""
ASKED = sa.select(_SEEN.c.body).where(_IS_SEEN).scalar_subquery().label("asked")
"""What the source of an entry asked for last, where that differs from what was sent."""
EDITED = sa.case((OBSERVED.in_([Observed.EDITED, Observed.TO_PUBLISH, Observed.RETURNED]), PAYLOAD)).label("edited")
"""What an entry shows, if its source asks for something else, else NULL."""
CANDIDATE = sa.select(_SEEN.c.candidate_id).where(_IS_SEEN).scalar_subquery().label("candidate_id")
"""The entry that a held one resembles."""
FACTS = ENTRY.outerjoin(ATTEMPT, sa.and_(ATTEMPT.c.entry_id == ENTRY.c.id, ATTEMPT.c.revision == ENTRY.c.revision)).outerjoin(
    OBSERVATION, OBSERVATION.c.entry_id == ENTRY.c.id
)
"""Entries with the attempts under their present key and what their source says, for few entries."""


def in_facts(which: Iterable[Facts]) -> sa.ColumnElement[bool]:
    """Return the condition that an entry has one of these combinations of facts."""
    return (ENTRY.c.outcome + " " + TRIED + " " + OBSERVED).in_([" ".join(facts) for facts in which])


def in_outcomes(holds: Callable[[Outcome, Tried], bool]) -> sa.ColumnElement[bool]:
    """Return the condition that a rule of outcome and attempts holds for an entry."""
    return (ENTRY.c.outcome + " " + TRIED).in_(
        [f"{outcome} {tried}" for outcome in Outcome for tried in Tried if holds(outcome, tried)]
    )


MAY_HAVE_EVENT = in_outcomes(has_event)
"""The service has, or may have, the event of the entry."""
MAY_GET_EVENT = in_outcomes(may_get_event)
"""The entry has an event or may still get one, so that a row with the same event is a duplicate candidate."""
IS_OPEN = ENTRY.c.outcome != sa.literal_column(f"'{Outcome.CREATED}'")
"""Lets both databases use the index of the entries that are not delivered; SQLite does so only for the same words."""
IS_GONE = OBSERVED.in_([Observed.VANISHED, Observed.GONE])
"""The row of the entry is marked as gone."""
IS_NEVER_SENT = sa.and_(ENTRY.c.outcome == Outcome.OWED, TRIED == Tried.NO)
_NEWER = DECISION.alias()
IS_LAST_DECISION = ~sa.exists().where(_NEWER.c.entry_id == DECISION.c.entry_id, _NEWER.c.id > DECISION.c.id)
IS_UNDECIDED = ~sa.exists().where(DECISION.c.entry_id == ENTRY.c.id)
_ASKED = sa.select(
    sa.case(
        (_SEEN.c.kind.in_([Observed.VANISHED, Observed.CANCELLED]), _SEEN.c.kind),
        else_=_SEEN.c.fingerprint,
    )
).where(_IS_SEEN)
WISH = sa.case(
    (ENTRY.c.outcome == Outcome.HELD, Observed.HELD.value),
    else_=sa.func.coalesce(_ASKED.scalar_subquery(), ENTRY.c.fingerprint),
)
"""What the source says now, as a decision records it."""
IS_GONE_SINCE = sa.exists().where(
    _SEEN.c.entry_id == DECISION.c.entry_id, _SEEN.c.kind == Observed.VANISHED, _SEEN.c.seen_at > DECISION.c.decided_at
)
"""The row of a decision came back after it, and has vanished again."""
_IGNORED_WISH = sa.select(DECISION.c.wish).where(
    DECISION.c.entry_id == ENTRY.c.id, DECISION.c.option == Decision.IGNORE, IS_LAST_DECISION, ~IS_GONE_SINCE
)
IS_IGNORED = sa.func.coalesce(_IGNORED_WISH.scalar_subquery() == WISH, False)
"""A person's last decision ignores what the source says now, so that the entry is on no list."""
MARK_BYTES = 8
"""The bytes of a duplicate mark, of a digest's sixteen: a mark only finds the entries, which have the whole digest."""
MARK = sa.func.substr(ENTRY.c.twin_digest, 1, MARK_BYTES)
"""The duplicate mark of an entry."""
_MARKS = sa.select(MARK).where(SOME)
_FORGET_MARKS = sa.delete(DUPLICATE_MARK).where(
    DUPLICATE_MARK.c.mark.in_(sa.bindparam("marks", expanding=True)),
    DUPLICATE_MARK.c.entry_id.in_(sa.bindparam("entries", expanding=True)),
)


def is_forgotten(now: datetime, key_memory_s: float) -> sa.ColumnElement[bool]:
    """Return the condition that the first request without a usable answer is so old that the service may have forgotten its key;
    never NULL.

    Answers 429 do not count: a service that limits its rate has created nothing.
    """
    is_late = sa.select(_TRIED.c.since <= now - timedelta(seconds=key_memory_s)).where(*_OF_KEY)
    return sa.func.coalesce(is_late.scalar_subquery(), False)


def is_to_come(now: datetime | None) -> sa.ColumnElement[bool]:
    """Return the condition that an event is not over at a time; without a time, none is over."""
    return sa.true() if now is None else sa.or_(ENTRY.c.ends_at.is_(None), ENTRY.c.ends_at > now)


def count_entries(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> int:
    """Count the entries under these conditions."""
    return connection.execute(sa.select(sa.func.count()).select_from(ENTRY).where(*which)).scalar_one()


def newest_and_count(connection: sa.Connection, scope_id: int) -> tuple[int, int]:
    """Return the highest id of a feed's entries, and their number."""
    newest = sa.func.coalesce(sa.func.max(ENTRY.c.id), 0)
    found = connection.execute(sa.select(newest, sa.func.count()).where(ENTRY.c.scope_id == scope_id)).one()
    return found[0], found[1]


def count_in_source(connection: sa.Connection, scope_id: int, boundary: int) -> int:
    """Count a feed's entries, up to an id, whose rows are in the source as far as is known.

    Only indexes are used: there are many entries, and few of the others.
    """
    of_feed = (ENTRY.c.scope_id == scope_id, ENTRY.c.id <= boundary)
    every = connection.execute(sa.select(sa.func.count()).select_from(ENTRY).where(*of_feed)).scalar_one()
    seen = (OBSERVATION.c.scope_id == scope_id, OBSERVATION.c.entry_id <= boundary)
    gone = sa.select(sa.func.count()).select_from(OBSERVATION).where(*seen, OBSERVATION.c.kind.in_(("vanished", "gone")))
    without_row = (Outcome.HELD, Outcome.MOVED, Outcome.IDLE, Outcome.REMOVED)
    others = sa.and_(ENTRY.c.outcome.in_(without_row), IS_OPEN, OBSERVED != Observed.RETURNED, ~IS_GONE)
    return every - connection.execute(gone).scalar_one() - count_entries(connection, *of_feed, others)


def count_to_come(connection: sa.Connection, scope_id: int, now: datetime) -> int:
    """Count the entries with future events that are or may be at the service."""
    return count_entries(connection, ENTRY.c.scope_id == scope_id, MAY_HAVE_EVENT, ~IS_GONE, is_to_come(now))


def destination_of(scope_id: int) -> sa.ColumnElement[str]:
    """Return the destination of a scope, as an SQL expression."""
    return sa.select(SCOPE.c.destination).where(SCOPE.c.id == scope_id).scalar_subquery()


def drafted(row: MappedRow) -> MappedRow:
    """Return the row with status `draft`."""
    body = as_draft(row.body)
    return replace(row, body=body, fingerprint=fingerprint(body, row.cover.url if row.cover else ""))


def differing_fields(shown: bytes, wanted: bytes) -> set[str]:
    """Return the fields in which two payloads differ."""
    before, after = orjson.loads(shown), orjson.loads(wanted)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def kind_of_drift(shown: bytes, wanted: bytes) -> Observed:
    """Return the kind of drift between what the service shows and what the source asks for."""
    statuses = orjson.loads(shown).get("status"), orjson.loads(wanted).get("status")
    return Observed.TO_PUBLISH if statuses[0] != statuses[1] == "published" else Observed.EDITED


def ends_at_of(body: bytes) -> datetime | None:
    """Return when the event of a payload is over: its end, or its start if it has no end; None if neither can be parsed."""
    event = orjson.loads(body) if body else {}
    return _instant(event.get("endAt") or event.get("startAt") or "")


@lru_cache(maxsize=4_096)  # events share their times
def _instant(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _later(shown: datetime | None, asked: datetime | None) -> datetime | None:
    return None if shown is None or asked is None else max(shown, asked)


def columns_of(body: bytes) -> dict[str, Any]:
    """Return the columns of an entry that are functions of its body."""
    event = orjson.loads(body)
    return {"channel_id": int(event["channelId"]), "twin_digest": duplicate_digest_of(event), "ends_at": ends_at_of(body)}


class Known(NamedTuple):
    """The facts of the ledger about a row, in the order of the columns read; a named tuple, since there are millions."""

    entry_id: int
    row_key: RowKey
    outcome: Outcome
    fingerprint: str
    row_digest: bytes
    origin: str
    tried: Tried
    observed: str | None
    asked: str | None
    """The fingerprint of another payload that the source asks for."""
    candidate_id: int | None

    def plan(self, reading: Reading) -> Plan:
        """Return the action for what a read says about the row."""
        return plan(self.outcome, self.tried, reading)

    @property
    def may_be_pinned(self) -> bool:
        """Whether certainly no event was created from the body, so that another one may replace it."""
        return may_be_pinned(self.outcome, may_exist(self.outcome, self.tried))

    @property
    def is_never_sent(self) -> bool:
        """Whether the body is owed, and was certainly never sent."""
        return self.outcome is Outcome.OWED and self.tried is Tried.NO

    @property
    def is_gone(self) -> bool:
        """Whether the row is marked as gone from its source."""
        return self.observed in (Observed.VANISHED, Observed.GONE)

    @property
    def wish(self) -> str:
        """What the source says now, as a decision records it."""
        if self.outcome is Outcome.HELD:
            return Observed.HELD
        if self.observed in (Observed.VANISHED, Observed.CANCELLED):
            return str(self.observed)
        return self.asked or self.fingerprint


_NAMES = ("id", "row_key", "outcome", "fingerprint", "row_digest", "origin", "revision")
_FIND = sa.select(*(ENTRY.c[name] for name in _NAMES)).where(
    ENTRY.c.scope_id == sa.bindparam("scope"), ENTRY.c.row_key.in_(sa.bindparam("row_keys", expanding=True))
)
_THESE: sa.BindParameter[int] = sa.bindparam("entries", expanding=True)
_FIND_TRIED = sa.select(_TRIED.c.entry_id, _TRIED.c.revision, _WAS_TRIED).where(_TRIED.c.entry_id.in_(_THESE))
_FIND_SEEN = sa.select(_SEEN.c.entry_id, _SEEN.c.kind, _SEEN.c.fingerprint, _SEEN.c.candidate_id)
_FIND_SEEN = _FIND_SEEN.where(_SEEN.c.entry_id.in_(_THESE))
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def find_known(connection: sa.Connection, scope_id: int, row_keys: Collection[str]) -> dict[str, Known]:
    """Return the ledger's facts about these rows; unknown rows are absent."""
    found = connection.execute(_FIND, {"scope": scope_id, "row_keys": rounded(row_keys)}).all() if row_keys else ()
    if not found:
        return {}
    entries = {"entries": rounded([row[0] for row in found])}
    tried = {(row[0], row[1]): Tried(row[2]) for row in connection.execute(_FIND_TRIED, entries)}
    seen = {row[0]: tuple(row[1:]) for row in connection.execute(_FIND_SEEN, entries)}
    return {
        row[1]: Known._make(
            (
                *(row[0], row[1], _OUTCOMES[row[2]], *row[3:-1], tried.get((row[0], row[-1]), Tried.NO)),
                *seen.get(row[0], (None, None, None)),
            )
        )
        for row in found
    }


def find_ids(connection: sa.Connection, scope_id: int, row_keys: Collection[str]) -> list[int]:
    """Return the ids of these rows' entries, oldest first; unknown rows are absent."""
    ids = sa.select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id)
    pages = in_pages(sorted(row_keys))
    return sorted(found for page in pages for found in connection.execute(ids.where(ENTRY.c.row_key.in_(page))).scalars())


def find_owners(
    connection: sa.Connection, destination: str | sa.ColumnElement[str], event_ids: Collection[int]
) -> dict[int, str]:
    """Return which of these events of a destination belong to a row already, by id, with row and feed as text."""
    found: dict[int, str] = {}
    events = sa.select(ENTRY.c.event_id, SCOPE.c.feed, ENTRY.c.row_key).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    for page in in_pages(sorted(set(event_ids))):
        owned = events.where(SCOPE.c.destination == destination, ENTRY.c.event_id.in_(page))
        found |= {row.event_id: f"row {row.row_key} of {row.feed}" for row in connection.execute(owned)}
    return found


def read_bodies(connection: sa.Connection, entries: Collection[int]) -> Mapping[int, bytes]:
    """Return the bodies of these entries."""
    rows = connection.execute(sa.select(BODY.c.entry_id, BODY.c.body).where(BODY.c.entry_id.in_(rounded(list(entries)))))
    return dict(map(tuple, rows))


def find_takers(connection: sa.Connection, entries: Collection[int]) -> Mapping[int, int]:
    """Return, for entries whose event was moved, the entry that has it now."""
    is_taken = (DECISION.c.other_id.in_(list(entries)), DECISION.c.option == Decision.SAME_AS.value)
    taken = sa.select(DECISION.c.other_id, DECISION.c.entry_id).where(*is_taken)
    return dict(map(tuple, connection.execute(taken.order_by(DECISION.c.id)))) if entries else {}


def mark_anew(connection: sa.Connection, entries: Iterable[tuple[int, bytes]]) -> None:
    """Add duplicate marks for entries with changed digests. Their old marks stay, and are ignored."""
    marks = [{"mark": digest[:MARK_BYTES], "entry_id": entry_id} for entry_id, digest in entries]
    if marks:
        connection.execute(insert_if_new(connection, DUPLICATE_MARK), marks)


def observe(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Record what the source says of these entries, in place of what it said before: `entry_id`, `scope_id`, `kind`, `seen_at`
    and the other columns that differ from NULL.
    """
    blank = dict.fromkeys(("body", "fingerprint", "cover_url", "cover_on_error", "candidate_id", "rule"))
    put_all(connection, OBSERVATION, [{**blank, **row} for row in rows])


def forget_observations(connection: sa.Connection, entries: Iterable[int]) -> None:
    """Record that the source asks for what these entries show."""
    for page in in_pages(entries):
        connection.execute(OBSERVATION.delete().where(OBSERVATION.c.entry_id.in_(page)))


def delete_entries(connection: sa.Connection, entries: Iterable[int]) -> None:
    """Delete entries that the service does not know."""
    for page in in_pages(entries):
        marks = connection.execute(_MARKS, {"entries": page}).scalars().all()
        connection.execute(_FORGET_MARKS, {"entries": page, "marks": marks})
        for table in (OBSERVATION, DECISION, BODY):
            connection.execute(sa.delete(table).where(table.c.entry_id.in_(page)))
        connection.execute(sa.delete(ENTRY).where(ENTRY.c.id.in_(page)))


def end_at(connection: sa.Connection, ends: Mapping[int, datetime | None]) -> None:
    """Record when the events of these entries are over."""
    if ends:
        connection.execute(_END, [{"entry": entry_id, "new_ends_at": end} for entry_id, end in ends.items()])


def release(connection: sa.Connection, entries: Collection[int], **columns: object) -> None:
    """Make held entries owe what is held; `columns`: others to write."""
    names = ("entry_id", *_BODY_COLUMNS[1:])
    for page in in_pages(entries):
        held = sa.select(*(OBSERVATION.c[name] for name in names)).where(OBSERVATION.c.entry_id.in_(page))
        connection.execute(sa.insert(BODY).from_select(names, held))
        owed = sa.update(ENTRY).where(ENTRY.c.id.in_(page)).values(outcome=Outcome.OWED.value, **columns)
        connection.execute(owed)
        forget_observations(connection, page)


def next_ids(connection: sa.Connection, count: int) -> Iterator[int]:
    """Return ids for new entries; they are never given again."""
    if connection.dialect.name == "postgresql":
        series = sa.text("SELECT nextval(pg_get_serial_sequence('entry', 'id')) FROM generate_series(1, :count)")
        return iter(connection.execute(series, {"count": count}).scalars().all())
    last = connection.exec_driver_sql("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry'").scalar_one()
    return iter(range(last + 1, last + count + 1))


def insert_rows(connection: sa.Connection, table: sa.Table, names: Sequence[str], rows: list[tuple[object, ...]]) -> None:
    """Insert rows without SQLAlchemy's parameter processing, which costs 25 us a row (budget 4)."""
    if not rows:
        return
    compiled = sa.insert(table).values({name: sa.bindparam(name) for name in names}).compile(dialect=connection.dialect)
    # The columns are rendered in the order of the table, and so must be the names.
    values: Any = rows if compiled.positional else [dict(zip(names, row, strict=True)) for row in rows]
    connection.exec_driver_sql(str(compiled), values)


_BODY_COLUMNS = ("entry_id", "body", "cover_url", "cover_on_error")
_OBSERVED_COLUMNS = (
    *("entry_id", "scope_id", "kind", "body", "fingerprint", "cover_url", "cover_on_error", "candidate_id", "seen_at"),
)
_NEW_COLUMNS = (
    *("id", "scope_id", "row_key", "outcome", "revision", "fingerprint", "row_digest", "twin_digest", "channel_id", "ends_at"),
    *("origin", "staged_run", "changed_at", "created_at"),
)


def _write(*columns: str, **values: object) -> sa.Update:
    """Return the update of one entry: `columns` from parameters of their names, `values` as they are."""
    parameters = {name: sa.bindparam(f"new_{name}", type_=ENTRY.c[name].type) for name in columns}
    return sa.update(ENTRY).where(ENTRY.c.id == sa.bindparam("entry")).values({**values, **parameters})


_OF_BODY = ("fingerprint", "twin_digest", "channel_id", "ends_at")
_MET = ("row_digest", "origin", "changed_at")
_PIN = _write(*_OF_BODY, *_MET, "staged_run", outcome=Outcome.OWED.value)
_HOLD = _write(*_OF_BODY, *_MET, outcome=Outcome.HELD.value)
_REFRESH = _write(*_MET)
_MOVE = _write("origin", "changed_at")
_END = _write("ends_at")
_PIN_BODY = sa.update(BODY).where(BODY.c.entry_id == sa.bindparam("entry"))
_PIN_BODY = _PIN_BODY.values({name: sa.bindparam(f"new_{name}") for name in _BODY_COLUMNS[1:]})


def cover_of(row: MappedRow) -> tuple[str | None, str | None]:
    """Return the columns of a row's cover image."""
    return (storable(row.cover.url), row.cover.on_error) if row.cover else (None, None)


class Batch:
    """The decisions about a batch of rows, collected and written with one statement per kind."""

    def __init__(self, run: FencedTransaction, ids: Iterator[int]) -> None:
        self._run = run
        self._ids = ids
        self._now: datetime = run.now()
        self._entries: list[tuple[object, ...]] = []
        self._bodies: list[tuple[object, ...]] = []
        self._held: list[tuple[object, ...]] = []
        self._pins: dict[int, MappedRow] = {}
        self._drifts: dict[int, tuple[MappedRow, Observed | None]] = {}
        self._observed: list[dict[str, Any]] = []
        self._refreshed: list[dict[str, object]] = []
        self._moved: list[dict[str, object]] = []
        self._holds: list[dict[str, object]] = []
        self._as_shown: list[int] = []
        self._settled: list[int] = []

    def create(self, row: MappedRow, candidate_id: int | None = None) -> int:
        """Add a new entry that owes the row's body, or a held one if the row resembles a known event; return its id."""
        entry_id, now = next(self._ids), self._bound(self._now)
        outcome = Outcome.OWED if candidate_id is None else Outcome.HELD
        self._entries.append(
            (
                *(entry_id, self._run.scope_id, row.row_key, outcome.value, 0, row.fingerprint, row.row_digest),
                *(row.duplicate_digest, row.channel_id, self._bound(ends_at_of(row.body)), storable(row.location.place)),
                *(self._run.number, now, now),
            )
        )
        if candidate_id is None:
            self._bodies.append((entry_id, row.body, *cover_of(row)))
        else:
            self._held.append(
                (entry_id, self._run.scope_id, Observed.HELD.value, row.body, row.fingerprint, *cover_of(row), candidate_id, now)
            )
        return entry_id

    def hold(self, entry_id: int, row: MappedRow, candidate_id: int | None) -> None:
        """Record the current payload of a held row."""
        self._holds.append({**self._of_body(row), **self._met(entry_id, row)})
        self._observe(entry_id, Observed.HELD, row, candidate_id=candidate_id)

    def pin(self, entry_id: int, row: MappedRow) -> None:
        """Replace a body that was never sent, or was refused."""
        self._pins[entry_id] = row
        self._as_shown.append(entry_id)

    def drift(self, entry_id: int, row: MappedRow) -> None:
        """Record the source's payload beside the body that may be at the service."""
        self._drifts[entry_id] = row, None
        self._refreshed.append(self._met(entry_id, row))

    def bring_back(self, entry_id: int, row: MappedRow) -> None:
        """Record that the row of an event that a person has removed is back."""
        self._drifts[entry_id] = row, Observed.RETURNED
        self._refreshed.append(self._met(entry_id, row))

    def count(self, entry_id: int, row: MappedRow) -> None:
        """Record the source's payload only to recognise the same change again."""
        said = {"kind": Observed.COUNTED.value, "fingerprint": row.fingerprint}
        self._observed.append({**self._of_entry(entry_id), **said})
        self._refreshed.append(self._met(entry_id, row))

    def cancel(self, entry_id: int, place: str) -> None:
        """Record that the source has cancelled an event that may be at the service."""
        self._observed.append({**self._of_entry(entry_id), "kind": Observed.CANCELLED.value})
        self._moved.append({"entry": entry_id, "new_origin": storable(place), "new_changed_at": self._now})

    def refresh(self, entry_id: int, row: MappedRow) -> None:
        """Record the row's cells and place."""
        self._refreshed.append(self._met(entry_id, row))

    def settle(self, entry_id: int) -> None:
        """Record that the source asks for what the entry shows."""
        self._settled.append(entry_id)

    def write(self, connection: sa.Connection) -> None:
        """Write all decisions; an empty batch costs nothing."""
        insert_rows(connection, ENTRY, _NEW_COLUMNS, self._entries)
        insert_rows(connection, BODY, _BODY_COLUMNS, self._bodies)
        insert_rows(connection, OBSERVATION, _OBSERVED_COLUMNS, self._held)
        if self._pins:
            pins = [
                {**self._of_body(row), **self._met(entry_id, row), "new_staged_run": self._run.number}
                for entry_id, row in self._pins.items()
            ]
            connection.execute(_PIN, pins)
            bodies = ((entry_id, row.body, *cover_of(row)) for entry_id, row in self._pins.items())
            names = ("entry", *(f"new_{name}" for name in _BODY_COLUMNS[1:]))
            connection.execute(_PIN_BODY, [dict(zip(names, body, strict=True)) for body in bodies])
            mark_anew(connection, ((entry_id, row.duplicate_digest) for entry_id, row in self._pins.items()))
        ends = dict[int, datetime | None]()
        shown = read_bodies(connection, (*self._drifts, *self._settled)) if self._drifts or self._settled else {}
        for entry_id, (row, kind) in self._drifts.items():
            self._observe(entry_id, kind or kind_of_drift(shown[entry_id], row.body), row)
            ends[entry_id] = _later(ends_at_of(shown[entry_id]), ends_at_of(row.body))
        ends |= {entry_id: ends_at_of(shown[entry_id]) for entry_id in shown.keys() - self._drifts}
        for statement, rows in ((_HOLD, self._holds), (_REFRESH, self._refreshed), (_MOVE, self._moved)):
            if rows:
                connection.execute(statement, rows)
        end_at(connection, ends)
        forget_observations(connection, (*self._as_shown, *self._settled))
        if self._observed:
            observe(connection, self._observed)

    def _bound(self, instant: datetime | None) -> datetime | str | None:
        """Return a time in the driver's type."""
        return UtcTime().process_bind_param(instant, self._run.engine.dialect)

    def _observe(self, entry_id: int, kind: Observed, row: MappedRow, candidate_id: int | None = None) -> None:
        cover = dict(zip(("cover_url", "cover_on_error"), cover_of(row), strict=True))
        said = {"kind": kind.value, "body": row.body, "fingerprint": row.fingerprint, "candidate_id": candidate_id, **cover}
        self._observed.append({**self._of_entry(entry_id), **said})

    def _of_entry(self, entry_id: int) -> dict[str, Any]:
        return {"entry_id": entry_id, "scope_id": self._run.scope_id, "seen_at": self._now}

    def _of_body(self, row: MappedRow) -> dict[str, object]:
        values = (row.fingerprint, row.duplicate_digest, row.channel_id, ends_at_of(row.body))
        return {f"new_{name}": value for name, value in zip(_OF_BODY, values, strict=True)}

    def _met(self, entry_id: int, row: MappedRow) -> dict[str, object]:
        place = storable(row.location.place)
        return {"entry": entry_id, "new_row_digest": row.row_digest, "new_origin": place, "new_changed_at": self._now}


def attempts_of(row: Any) -> Attempts:
    """Return the attempts under the present key, from a row of `FACTS` with the columns of `attempt`."""
    if row.requests is None:
        return NO_ATTEMPTS
    return Attempts(row.requests, row.is_limited, row.refused_id, row.denied_id, row.granted and Grant(row.granted))


def key_of(row: Any) -> IdempotencyKey:
    """Return the present idempotency key of an entry, from a row with its scope's `namespace` and `feed`."""
    return idempotency_key(row.namespace, FeedName(row.feed), RowKey(row.row_key), revision=row.revision)
