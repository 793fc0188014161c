"""The entries of the ledger: SQL conditions and queries on them, facts in their bodies, and writing a batch of rows.

A batch is written with one statement per kind of change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import orjson
import sqlalchemy as sa

from mappings.event import as_draft
from mappings.outcome import MappedRow
from mappings.row_key import RowKey, duplicate_digest, fingerprint
from state.database import in_pages, insert_if_new, rounded
from state.enums import Decision, DriftKind, EntryState
from state.ledger.accounts import Candidate
from state.ledger.lease import FencedTransaction
from state.tables import DUPLICATE_MARK, ENTRY, NO_DRIFT, SCOPE, UtcTime, storable

T = TypeVar("T")
CANCELLED = "cancelled"
"""Stands in for a payload's fingerprint if the source says that the event is cancelled."""
UNDECIDED = {"decision": None, "decided_at": None, "decided_by": None, "undo": None}
WITHOUT_EVENT = (EntryState.REFUSED.value, EntryState.SUPERSEDED.value, EntryState.HELD.value)
SOME = ENTRY.c.id.in_(sa.bindparam("entries", expanding=True))
IS_SET_ASIDE = sa.func.coalesce(ENTRY.c.decision, "") == Decision.IGNORE.value
"""A person has ignored the entry: it is unchanged, and on no list."""
IS_IN_SOURCE = sa.and_(ENTRY.c.vanished_at.is_(None), ENTRY.c.past_at.is_(None))
"""The row of the entry is not marked as gone."""
IS_NEVER_SENT = sa.and_(ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.attempts == 0)
_OUT = (EntryState.DELIVERED, EntryState.DELIVERED_UNCONFIRMED, EntryState.UNCERTAIN, EntryState.CONFLICT)
_IS_UNANSWERED = sa.and_(
    ENTRY.c.state.in_((EntryState.PENDING.value, EntryState.BLOCKED.value)), ENTRY.c.unanswered_at.is_not(None)
)
MAY_BE_OUT = sa.and_(sa.or_(ENTRY.c.state.in_([state.value for state in _OUT]), _IS_UNANSWERED), ENTRY.c.removed_at.is_(None))
"""The service has, or may have, the event of the entry."""
BASELINE = sa.func.coalesce(ENTRY.c.baseline_body, ENTRY.c.body).label("body")
_BASELINE_FINGERPRINT = sa.func.coalesce(ENTRY.c.baseline_fingerprint, ENTRY.c.fingerprint)
MARK_BYTES = 8
"""The bytes of a duplicate mark, of a digest's sixteen: a mark only finds the entries, which have the whole digest."""
MARK = sa.func.substr(ENTRY.c.twin_digest, 1, MARK_BYTES)
"""The duplicate mark of an entry."""


def is_forgotten(now: datetime, key_memory_s: float) -> sa.ColumnElement[bool]:
    """Return the condition that an attempt stayed unanswered for so long that the service may have forgotten its key; never
    NULL.

    Answers 429 do not count: a service that limits its rate has created nothing.
    """
    is_late = sa.func.coalesce(ENTRY.c.unanswered_at <= now - timedelta(seconds=key_memory_s), False)
    return sa.and_(is_late, ~ENTRY.c.is_limited)


def is_to_come(ends_at: sa.ColumnElement[datetime | None], now: datetime | None) -> sa.ColumnElement[bool]:
    """Return the condition that an event is not over at a time; without a time, none is over."""
    return sa.true() if now is None else sa.or_(ends_at.is_(None), ends_at > now)


def count_entries(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> int:
    """Count the entries under these conditions."""
    return connection.execute(sa.select(sa.func.count()).select_from(ENTRY).where(*which)).scalar_one()


def count_unmarked(connection: sa.Connection, scope_id: int, boundary: int) -> int:
    """Count a feed's entries, up to an id, that have a row and are not marked as gone.

    Only indexes are used: there are many entries, and few marked ones.
    """
    is_vanished, is_past = ENTRY.c.vanished_at.is_not(None), ENTRY.c.past_at.is_not(None)
    is_without_row = sa.and_(ENTRY.c.state.in_((EntryState.HELD.value, EntryState.SUPERSEDED.value)), IS_IN_SOURCE)
    every, vanished, past, both, without_row = (
        count_entries(connection, ENTRY.c.scope_id == scope_id, ENTRY.c.id <= boundary, which)
        for which in (sa.true(), is_vanished, is_past, sa.and_(is_vanished, is_past), is_without_row)
    )
    return every - vanished - past + both - without_row


def count_to_come(connection: sa.Connection, scope_id: int, now: datetime) -> int:
    """Count the entries with future events that are or may be at the service."""
    return count_entries(connection, ENTRY.c.scope_id == scope_id, MAY_BE_OUT, IS_IN_SOURCE, is_to_come(ENTRY.c.ends_at, now))


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


def kind_of_drift(shown: bytes, wanted: bytes) -> DriftKind:
    """Return the kind of drift between what the service shows and what the source asks for."""
    statuses = orjson.loads(shown).get("status"), orjson.loads(wanted).get("status")
    return DriftKind.TO_PUBLISH if statuses[0] != statuses[1] == "published" else DriftKind.EDITED


def channel_of(body: bytes) -> int:
    """Return the channel id of a payload."""
    return int(orjson.loads(body)["channelId"])


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


def duplicate_digest_of(body: bytes) -> bytes:
    """Return the duplicate digest of a payload, from channel, title, start and place."""
    event = orjson.loads(body)
    place = f"{event['approxLocation']['city']['placeId']} {event.get('locationName', '')}"
    return duplicate_digest(event["channelId"], event["title"], event["startAt"], place)


def may_be_pinned_anew(state: EntryState, attempts: int, *, is_unanswered: bool) -> bool:
    """Return whether certainly no event was created from an entry's pinned body."""
    if state is EntryState.PENDING:
        return attempts == 0
    return state.value in WITHOUT_EVENT or (state is EntryState.BLOCKED and not is_unanswered)


class Known(NamedTuple):
    """The facts of the ledger about a row, in the order of the columns read; a named tuple, since there are millions.

    A drift without a kind is one that the feed ignores (`on_change: ignore`).
    """

    entry_id: int
    row_key: RowKey
    state: str
    fingerprint: str
    row_digest: bytes
    drift_fingerprint: str | None
    attempts: int
    is_unanswered: bool
    is_vanished: bool
    origin: str
    drift_kind: str | None = DriftKind.EDITED.value
    is_set_aside: bool = False
    baseline_fingerprint: str | None = None
    is_removed: bool = False
    candidate_id: int | None = None

    @property
    def shown(self) -> str:
        """The fingerprint of the baseline."""
        return self.baseline_fingerprint or self.fingerprint

    @property
    def is_never_sent(self) -> bool:
        """Whether the pinned body was certainly never sent."""
        return self.state == EntryState.PENDING and self.attempts == 0

    @property
    def may_be_pinned_anew(self) -> bool:
        """Whether certainly no event was created from the pinned body, so that another body may replace it."""
        return may_be_pinned_anew(EntryState(self.state), self.attempts, is_unanswered=self.is_unanswered)


_FIND = sa.select(
    *(ENTRY.c[name] for name in ("id", "row_key", "state", "fingerprint", "row_digest", "drift_fingerprint", "attempts")),
    *(ENTRY.c.unanswered_at.is_not(None), ~IS_IN_SOURCE, ENTRY.c.origin, ENTRY.c.drift_kind, IS_SET_ASIDE),
    *(ENTRY.c.baseline_fingerprint, ENTRY.c.removed_at.is_not(None), ENTRY.c.candidate_id),
).where(ENTRY.c.scope_id == sa.bindparam("scope"), ENTRY.c.row_key.in_(sa.bindparam("row_keys", expanding=True)))


def find_known(connection: sa.Connection, scope_id: int, row_keys: Collection[str]) -> dict[str, Known]:
    """Return the ledger's facts about these rows; unknown rows are absent."""
    if not row_keys:
        return {}
    found = connection.execute(_FIND, {"scope": scope_id, "row_keys": rounded(row_keys)})
    return {row[1]: Known._make(row) for row in found}


def find_ids(connection: sa.Connection, scope_id: int, row_keys: Collection[str]) -> list[int]:
    """Return the ids of these rows' entries, oldest first; unknown rows are absent."""
    ids = sa.select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id)
    pages = in_pages(sorted(row_keys))
    return sorted(found for page in pages for found in connection.execute(ids.where(ENTRY.c.row_key.in_(page))).scalars())


def find_owners(
    connection: sa.Connection, destination: str | sa.ColumnElement[str], event_ids: Collection[int]
) -> dict[int, str]:
    """Return which of these events of a destination belong to a row already, by id, with row and feed as text."""
    events = sa.select(ENTRY.c.event_id, SCOPE.c.feed, ENTRY.c.row_key).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    found: dict[int, str] = {}
    for page in in_pages(sorted(set(event_ids))):
        owned = events.where(SCOPE.c.destination == destination, ENTRY.c.event_id.in_(page))
        found |= {row.event_id: f"row {row.row_key} of {row.feed}" for row in connection.execute(owned)}
    return found


def read_baselines(connection: sa.Connection, entries: Collection[int]) -> Mapping[int, bytes]:
    """Return the baselines of these entries."""
    rows = connection.execute(sa.select(ENTRY.c.id, BASELINE).where(ENTRY.c.id.in_(entries)))
    return {row.id: row.body for row in rows}


def mark_anew(connection: sa.Connection, entries: Iterable[tuple[int, bytes]]) -> None:
    """Add duplicate marks for entries with changed digests. Their old marks stay, and are ignored."""
    marks = [{"mark": digest[:MARK_BYTES], "entry_id": entry_id} for entry_id, digest in entries]
    if marks:
        connection.execute(insert_if_new(connection, DUPLICATE_MARK), marks)


_BODY_COLUMNS = ("body", "cover_url", "cover_on_error", "fingerprint", "row_digest", "twin_digest", "channel_id", "origin")
_PIN_COLUMNS = (*_BODY_COLUMNS, "ends_at", "updated_at")
_DRIFT_COLUMNS = ("drift_body", "drift_fingerprint", "drift_kind", "row_digest", "origin", "updated_at")


def _write(*columns: str, **values: object) -> sa.Update:
    """Return the update of one entry: `columns` from parameters of their names, `values` as they are."""
    parameters = {name: sa.bindparam(f"new_{name}", type_=ENTRY.c[name].type) for name in columns}
    return sa.update(ENTRY).where(ENTRY.c.id == sa.bindparam("entry")).values({**values, **parameters})


def _listed_unless_ignored(wanted: sa.ColumnElement[str]) -> sa.ColumnElement[str | None]:
    """Return the decision column after a change: a changed row is listed again, unless its payload is the ignored one."""
    is_ignored_payload = sa.func.coalesce(ENTRY.c.ignored_fingerprint == wanted, False)
    return sa.case((is_ignored_payload, Decision.IGNORE.value), (IS_SET_ASIDE, None), else_=ENTRY.c.decision)


_PENDING: dict[str, Any] = {
    "state": EntryState.PENDING.value,
    "attempts": 0,
    "decision": sa.case((IS_SET_ASIDE, None), else_=ENTRY.c.decision),
    **NO_DRIFT,
}
_HOLD = _write(*_PIN_COLUMNS, state=EntryState.HELD.value)
_PIN = _write(*_PIN_COLUMNS, "staged_run", **_PENDING)
_DRIFT = _write(
    *_DRIFT_COLUMNS, decision=_listed_unless_ignored(sa.bindparam("new_drift_fingerprint", type_=ENTRY.c.fingerprint.type))
)
_CANCELLED = {"drift_body": None, "drift_fingerprint": CANCELLED, "drift_kind": DriftKind.CANCELLED.value}
_CANCEL = _write("origin", "updated_at", **_CANCELLED, decision=_listed_unless_ignored(sa.literal(CANCELLED)))
_REFRESH = _write("row_digest", "origin", "updated_at", **NO_DRIFT, decision=_listed_unless_ignored(_BASELINE_FINGERPRINT))
_RETURN = _write(vanished_at=None, past_at=None, vanished_by="", decision=_listed_unless_ignored(ENTRY.c.drift_fingerprint))
_SETTLE = _write(**NO_DRIFT)
_OTHER = ENTRY.alias()
_LIKE = sa.select(_OTHER.c.id).where(_OTHER.c.scope_id == sa.bindparam("scope"), _OTHER.c.row_key == sa.bindparam("like"))
_IS_HELD_ROW = sa.and_(ENTRY.c.scope_id == sa.bindparam("scope"), ENTRY.c.row_key == sa.bindparam("held"))
_HELD_LIKE = sa.update(ENTRY).where(_IS_HELD_ROW).values(candidate_id=_LIKE.scalar_subquery())
_NEW_COLUMNS = (  # in the order of the table
    *("scope_id", "row_key", "state", "idempotency_key", *_BODY_COLUMNS),
    *("staged_run", "created_at", "updated_at", "ends_at", "candidate_id"),
)
_ZEROS: dict[str, Any] = {name: sa.literal_column("0") for name in ("revision", "attempts", "copies")}
_BLANKS: dict[str, Any] = {
    name: sa.literal_column("''") for name in ("refused_request_id", "denied_request_id", "sent_run", "vanished_by")
}
_INSERT = sa.insert(ENTRY).values(
    {name: sa.bindparam(name) for name in _NEW_COLUMNS} | _ZEROS | _BLANKS | {"is_limited": sa.false()}
)


def _insert(connection: sa.Connection, entries: list[tuple[object, ...]]) -> None:
    """Insert new entries, with ids in their order, without SQLAlchemy's parameter processing, which costs 25 us a row (budget
    4).
    """
    compiled = _INSERT.compile(dialect=connection.dialect)
    rows: Any = entries if compiled.positional else [dict(zip(_NEW_COLUMNS, entry, strict=True)) for entry in entries]
    connection.exec_driver_sql(str(compiled), rows)


def _body_of(row: MappedRow) -> tuple[object, ...]:
    """Return the values of `_BODY_COLUMNS`."""
    url, on_error = (storable(row.cover.url), row.cover.on_error) if row.cover else (None, None)
    digests = (row.fingerprint, row.row_digest, row.duplicate_digest)
    return (row.body, url, on_error, *digests, row.channel_id, storable(row.location.place))


class Batch:
    """The decisions about a batch of rows, collected and written with one statement per kind."""

    def __init__(self, run: FencedTransaction) -> None:
        self._run = run
        self._now: datetime = run.now()
        self._bound_now = self._bound(self._now)
        self._inserts: list[tuple[object, ...]] = []
        self._drifts: dict[int, MappedRow] = {}
        self._removed: set[int] = set()
        self._marks: dict[int, bytes] = {}
        self._rows: defaultdict[sa.Update, list[dict[str, object]]] = defaultdict(list)

    def create(self, row: MappedRow, candidate: Candidate | None = None) -> None:
        """Add a new entry that pins the row's body under its key, or a held one if the row resembles a known event."""
        state, candidate_id = EntryState.PENDING, None
        if candidate is not None:
            state, candidate_id = EntryState.HELD, candidate.entry_id or None
            if not candidate.entry_id:
                like = {"scope": self._run.scope_id, "held": row.row_key, "like": candidate.row_key}
                self._rows[_HELD_LIKE].append(like)
        key = (self._run.scope_id, row.row_key, state.value, self._run.key(row.row_key))
        times = (self._bound_now, self._bound_now, self._bound(ends_at_of(row.body)))
        self._inserts.append((*key, *_body_of(row), self._run.run_id, *times, candidate_id))

    def hold(self, entry_id: int, row: MappedRow) -> None:
        """Record the current payload of a held row."""
        self._rows[_HOLD].append(self._pinned(entry_id, row))

    def pin(self, entry_id: int, row: MappedRow) -> None:
        """Replace a body that was never sent, or was refused."""
        self._rows[_PIN].append({**self._pinned(entry_id, row), "new_staged_run": self._run.run_id})
        self._marks[entry_id] = row.duplicate_digest

    def drift(self, entry_id: int, row: MappedRow, *, is_removed: bool = False) -> None:
        """Record the source's payload as drift beside the pinned body. `is_removed`: the event was removed from the service."""
        self._drifts[entry_id] = row
        if is_removed:
            self._removed.add(entry_id)

    def cancel(self, entry_id: int, place: str) -> None:
        """Record that the source has cancelled an event that may be at the service."""
        self._rows[_CANCEL].append({"entry": entry_id, "new_origin": place, "new_updated_at": self._now})

    def ignore(self, entry_id: int, row: MappedRow) -> None:
        """Record the source's payload without drift, only to recognise the same change again."""
        wanted = {"new_drift_body": None, "new_drift_fingerprint": row.fingerprint, "new_drift_kind": None}
        self._rows[_DRIFT].append({**wanted, **self._met(entry_id, row)})

    def refresh(self, entry_id: int, row: MappedRow) -> None:
        """Record that the source still asks for the pinned payload, and the row's place."""
        self._rows[_REFRESH].append(self._met(entry_id, row))

    def unmark_vanished(self, entry_id: int) -> None:
        """Record that a vanished row is back in its source."""
        self._rows[_RETURN].append({"entry": entry_id})

    def settle(self, entry_id: int) -> None:
        """Record that a known difference is settled."""
        self._rows[_SETTLE].append({"entry": entry_id})

    def write(self, connection: sa.Connection) -> None:
        """Write all decisions; an empty batch costs nothing."""
        if self._inserts:
            _insert(connection, self._inserts)
        if self._drifts:
            self._rows[_DRIFT] += self._drift_rows(connection)
        for statement in (_HELD_LIKE, _HOLD, _PIN, _DRIFT, _CANCEL, _REFRESH, _RETURN, _SETTLE):
            if rows := self._rows.get(statement):
                connection.execute(statement, rows)
        mark_anew(connection, self._marks.items())

    def _bound(self, instant: datetime | None) -> datetime | str | None:
        """Return a time in the driver's type."""
        return UtcTime().process_bind_param(instant, self._run.engine.dialect)

    def _pinned(self, entry_id: int, row: MappedRow) -> dict[str, object]:
        body = {f"new_{name}": value for name, value in zip(_BODY_COLUMNS, _body_of(row), strict=True)}
        return {**body, "new_ends_at": ends_at_of(row.body), **self._met(entry_id, row)}

    def _met(self, entry_id: int, row: MappedRow) -> dict[str, object]:
        place = {"new_origin": row.location.place, "new_updated_at": self._now}
        return {"entry": entry_id, "new_row_digest": row.row_digest, **place}

    def _drift_rows(self, connection: sa.Connection) -> Iterator[dict[str, object]]:
        shown = read_baselines(connection, self._drifts)
        for entry_id, row in self._drifts.items():
            kind = DriftKind.RETURNED if entry_id in self._removed else kind_of_drift(shown[entry_id], row.body)
            wanted = {"new_drift_body": row.body, "new_drift_fingerprint": row.fingerprint, "new_drift_kind": kind.value}
            yield {**wanted, **self._met(entry_id, row)}
