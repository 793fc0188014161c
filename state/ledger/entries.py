"""The entries of a batch of rows: find what the ledger knows of them, and write what was decided, one statement for each kind.

An event that a draft of a later change replaces is set aside as an earlier event of its row.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, assert_never

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Update,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from mappings.event import as_draft
from mappings.outcome import MappedRow, RowLocation
from mappings.row_key import FeedName, Fingerprint, RowKey, duplicate_digest, fingerprint
from state.database import insert_if_new, rounded
from state.enums import Decision, DriftKind, EntryState
from state.ledger.lease import FencedTransaction
from state.tables import DUPLICATE_MARK, EARLIER, ENTRY, NO_DRIFT, SCOPE, UtcTime, storable

CANCELLED = "cancelled"
"""What stands in place of a payload's fingerprint where the source says that an event is off."""
_PAGE = 500
_ONE = ENTRY.c.id == bindparam("entry")
_OTHER = ENTRY.alias()
_SHOWN = {
    "body": func.coalesce(ENTRY.c.baseline_body, ENTRY.c.body),
    "fingerprint": func.coalesce(ENTRY.c.baseline_fingerprint, ENTRY.c.fingerprint),
}
"""The baseline: what the service shows."""
_EVENT_COLUMNS = (
    *("revision", "idempotency_key", "body", "fingerprint", "row_digest", "twin_digest", "channel_id", "event_id", "attempts"),
    *("answer", "sent_run", "copies", "ends_at"),
)
_NEVER_SENT = {"unanswered_at": None, "is_limited": False, "refused_request_id": "", "denied_request_id": ""}
_UNDECIDED = {"decision": None, "decided_at": None, "decided_by": None, "undo": None}
_NO_BASELINE = {"baseline_body": None, "baseline_fingerprint": None, "ignored_fingerprint": None}


def retire(connection: Connection, entries: Sequence[int], now: datetime) -> None:
    """Set aside the events of these entries as the service shows them, and prepare the entries for another body and key."""
    ours = ENTRY.c.id.in_(entries)
    columns = (_SHOWN.get(name, ENTRY.c[name]) for name in _EVENT_COLUMNS)
    events = select(ENTRY.c.id, *columns, literal(now, EARLIER.c.replaced_at.type), literal(value=False)).where(ours)
    connection.execute(insert(EARLIER).from_select(("entry_id", *_EVENT_COLUMNS, "replaced_at", "is_let_out"), events))
    unsent = {**_NEVER_SENT, "event_id": None, "answer": None, "copies": 0, "sent_run": ""}
    connection.execute(update(ENTRY).where(ours).values(**unsent, **_UNDECIDED, **_NO_BASELINE))


def put_back(connection: Connection, entries: Collection[int], now: datetime) -> None:
    """Make the last event that was set aside the entry's own again, as delivered, or removed by hand, as it was."""
    delivered = {"state": EntryState.DELIVERED.value, "cover_url": None, "cover_on_error": None, **_NEVER_SENT, **NO_DRIFT}
    for entry_id in entries:
        of_entry = select(EARLIER).where(EARLIER.c.entry_id == entry_id).order_by(EARLIER.c.replaced_at.desc()).limit(1)
        row = connection.execute(of_entry).one_or_none()
        if row is not None:
            event = {name: getattr(row, name) for name in (*_EVENT_COLUMNS, "removed_at")}
            connection.execute(update(ENTRY).where(ENTRY.c.id == entry_id).values(**delivered, **event, updated_at=now))
            connection.execute(EARLIER.delete().where(EARLIER.c.entry_id == entry_id, EARLIER.c.revision == row.revision))


def said_before(connection: Connection, entries: Collection[int]) -> Mapping[int, frozenset[str]]:
    """Return the fingerprints of the events that were set aside and not removed since, by entry."""
    fingerprints = select(EARLIER.c.entry_id, EARLIER.c.fingerprint).where(EARLIER.c.removed_at.is_(None))
    return {entry_id: frozenset(found) for entry_id, found in _by_entry(connection, fingerprints, entries).items()}


def used_revisions(connection: Connection, entries: Collection[int]) -> Mapping[int, Sequence[int]]:
    """Return the revisions of the events that were set aside, by entry."""
    return _by_entry(connection, select(EARLIER.c.entry_id, EARLIER.c.revision), entries)


def earlier_events(connection: Connection, entries: Collection[int]) -> Mapping[int, tuple[int, ...]]:
    """Return the ids of earlier events that are still at the service, oldest first, by entry; few entries have any."""
    events = select(EARLIER.c.entry_id, EARLIER.c.event_id).where(EARLIER.c.event_id.is_not(None), EARLIER.c.removed_at.is_(None))
    found = _by_entry(connection, events.order_by(EARLIER.c.replaced_at), entries)
    return {entry_id: tuple(events_of) for entry_id, events_of in found.items()}


def _by_entry(connection: Connection, query: Select[Any], entries: Collection[int]) -> dict[int, list[Any]]:
    found: defaultdict[int, list[Any]] = defaultdict(list)
    if entries:
        for entry_id, value in connection.execute(query.where(EARLIER.c.entry_id.in_(entries))):
            found[entry_id].append(value)
    return found


def shown_bodies(connection: Connection, entries: Collection[int]) -> Mapping[int, bytes]:
    """Return the baselines of these entries."""
    rows = connection.execute(select(ENTRY.c.id, _SHOWN["body"].label("body")).where(ENTRY.c.id.in_(entries)))
    return {row.id: row.body for row in rows}


def waiting(connection: Connection, scope_id: int) -> Iterator[int]:
    """Yield the entries of drafts that were staged, never sent, and that no gate has let out by itself."""
    entries = select(EARLIER.c.entry_id).join(ENTRY, ENTRY.c.id == EARLIER.c.entry_id).distinct()
    is_staged = (ENTRY.c.scope_id == scope_id, ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.attempts == 0)
    yield from connection.execute(entries.where(EARLIER.c.is_let_out.is_(False), *is_staged)).scalars()


def let_out(connection: Connection, scope_id: int) -> None:
    """Note that a gate has let out the drafts of this feed that were staged so far."""
    of_feed = exists().where(ENTRY.c.id == EARLIER.c.entry_id, ENTRY.c.scope_id == scope_id)  # there are few of them, if any
    connection.execute(update(EARLIER).where(EARLIER.c.is_let_out.is_(False), of_feed).values(is_let_out=True))


IS_SET_ASIDE = func.coalesce(ENTRY.c.decision, "") == Decision.IGNORE.value
_FIND = select(
    ENTRY.c.id,
    ENTRY.c.row_key,
    ENTRY.c.state,
    ENTRY.c.fingerprint,
    ENTRY.c.row_digest,
    ENTRY.c.drift_fingerprint,
    ENTRY.c.attempts,
    ENTRY.c.unanswered_at.is_not(None),
    or_(ENTRY.c.vanished_at.is_not(None), ENTRY.c.past_at.is_not(None)),
    ENTRY.c.origin,
    ENTRY.c.revision,
    ENTRY.c.refused_request_id,
    ENTRY.c.drift_kind,
    IS_SET_ASIDE,
    ENTRY.c.baseline_fingerprint,
    ENTRY.c.removed_at.is_not(None),
    ENTRY.c.decision,
    ENTRY.c.candidate_id,
).where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.row_key.in_(bindparam("row_keys", expanding=True)))
_PIN_COLUMNS = (
    *("body", "cover_url", "cover_on_error", "fingerprint", "row_digest", "twin_digest", "channel_id"),
    *("origin", "updated_at", "ends_at"),
)
_DRIFT_COLUMNS = ("drift_body", "drift_fingerprint", "drift_kind", "row_digest", "origin", "updated_at")


def _write(*columns: str, **values: object) -> Update:
    """Return the update of one entry: `columns` from parameters of their names, `values` as they are."""
    parameters = {name: bindparam(f"new_{name}", type_=ENTRY.c[name].type) for name in columns}
    return update(ENTRY).where(_ONE).values({**values, **parameters})


def _listed_unless_ignored(asked: ColumnElement[str]) -> ColumnElement[str | None]:
    """A row that changes at its source is listed again, unless it asks for what a person has ignored."""
    is_ignored_payload = func.coalesce(ENTRY.c.ignored_fingerprint == asked, False)
    return case((is_ignored_payload, Decision.IGNORE.value), (IS_SET_ASIDE, None), else_=ENTRY.c.decision)


_NEW_DRIFT = bindparam("new_drift_fingerprint", type_=ENTRY.c.fingerprint.type)
_LISTED = case((IS_SET_ASIDE, None), else_=ENTRY.c.decision)
_PENDING: dict[str, Any] = {"state": EntryState.PENDING.value, "attempts": 0, "decision": _LISTED, **NO_DRIFT}
_LOOKS_LIKE = (
    select(_OTHER.c.id).where(_OTHER.c.scope_id == bindparam("scope"), _OTHER.c.row_key == bindparam("like")).scalar_subquery()
)
_HELD_LIKE = (
    update(ENTRY)
    .where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.row_key == bindparam("held"))
    .values(candidate_id=_LOOKS_LIKE)
)
_HOLD = _write(*_PIN_COLUMNS, state=EntryState.HELD.value)
_PIN = _write(*_PIN_COLUMNS, "staged_run", **_PENDING)
_REDRAFT = _write(*_PIN_COLUMNS, "staged_run", "revision", "idempotency_key", **_PENDING)
_DRIFT = _write(*_DRIFT_COLUMNS, decision=_listed_unless_ignored(_NEW_DRIFT))
_CANCEL = _write(
    *("drift_fingerprint", "drift_kind", "origin", "updated_at"), drift_body=None, decision=_listed_unless_ignored(_NEW_DRIFT)
)
_REFRESH = _write("row_digest", "origin", "updated_at", **NO_DRIFT, decision=_listed_unless_ignored(_SHOWN["fingerprint"]))
_RETURN = _write(vanished_at=None, past_at=None, vanished_by="", decision=_listed_unless_ignored(ENTRY.c.drift_fingerprint))
_SETTLE = _write(**NO_DRIFT)


def entry_ids(connection: Connection, scope_id: int, row_keys: Collection[str]) -> set[int]:
    """Return the ids of the entries of these rows."""
    ids = select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, ENTRY.c.row_key.in_(row_keys))
    return set(connection.execute(ids).scalars()) if row_keys else set()


def find_known(connection: Connection, scope_id: int, row_keys: Collection[str]) -> dict[str, Known]:
    """Return what the ledger remembers of these rows; those that it does not know are absent."""
    if not row_keys:
        return {}
    found = connection.execute(_FIND, {"scope": scope_id, "row_keys": rounded(row_keys)})
    return {row[1]: Known._make(row) for row in found}


_NEW_COLUMNS = (
    *("scope_id", "row_key", "state", "idempotency_key", "revision", "body", "cover_url", "cover_on_error", "fingerprint"),
    *("row_digest", "twin_digest", "channel_id", "attempts", "refused_request_id", "denied_request_id"),
    *("origin", "staged_run", "sent_run", "created_at", "updated_at", "ends_at", "candidate_id", "vanished_by"),
    *("copies", "is_limited"),
)
_INSERT = insert(ENTRY).values({name: bindparam(name) for name in _NEW_COLUMNS})


def _bound(turn: FencedTransaction, instant: datetime | None) -> datetime | str | None:
    """Return an instant as the driver takes it."""
    return UtcTime().process_bind_param(instant, turn.engine.dialect)


def _insert(connection: Connection, entries: list[tuple[object, ...]]) -> None:
    """Insert new entries, whose ids follow their order, past SQLAlchemy's parameters: these cost 25 us a row (budget 4)."""
    compiled = _INSERT.compile(dialect=connection.dialect)
    rows: Any = entries if compiled.positional else [dict(zip(_NEW_COLUMNS, entry, strict=True)) for entry in entries]
    connection.exec_driver_sql(str(compiled), rows)


class Batch:
    """What was decided for a batch of rows, gathered to be written with one statement per kind."""

    def __init__(self, turn: FencedTransaction) -> None:
        self._turn = turn
        self._now: datetime = turn.now()
        self._bound_now = _bound(turn, self._now)
        self._inserts: list[tuple[object, ...]] = []
        self._drifts: dict[int, MappedRow] = {}
        self._removed: set[int] = set()
        self._redrafts: dict[int, MappedRow] = {}
        self._withdrawals: list[int] = []
        self._marks: dict[int, bytes] = {}
        self._rows: defaultdict[Update, list[dict[str, object]]] = defaultdict(list)

    def create(self, row: MappedRow) -> None:
        """Pin a new row's body under its key, for life."""
        self._inserts.append(self._new(row))

    def hold(self, row: MappedRow, candidate: Candidate) -> None:
        """Record a new row as held: it looks like a known event."""
        self._inserts.append(self._new(row, EntryState.HELD, candidate.entry_id or None))
        if not candidate.entry_id:
            self._rows[_HELD_LIKE].append({"scope": self._turn.scope_id, "held": row.row_key, "like": candidate.row_key})

    def hold_again(self, entry_id: int, row: MappedRow) -> None:
        """Record what a held row asks for now."""
        self._rows[_HOLD].append(self._pinned(entry_id, row))

    def pin(self, entry_id: int, row: MappedRow) -> None:
        """Put another body in the place of one that was never sent, or was refused."""
        self._rows[_PIN].append({**self._pinned(entry_id, row), "new_staged_run": self._turn.run_id})
        self._marks[entry_id] = row.duplicate_digest

    def drift(self, entry_id: int, row: MappedRow, *, is_removed: bool = False) -> None:
        """Record what the source asks for now, beside what is pinned. `is_removed`: the event is gone from the service."""
        self._drifts[entry_id] = row
        if is_removed:
            self._removed.add(entry_id)

    def cancel(self, entry_id: int, origin: RowLocation) -> None:
        """Record that the source has called off what is out already: it asks for no other payload."""
        asked = {"new_drift_fingerprint": CANCELLED, "new_drift_kind": DriftKind.CANCELLED.value}
        self._rows[_CANCEL].append({"entry": entry_id, **asked, "new_origin": origin.place, "new_updated_at": self._now})

    def ignore(self, entry_id: int, row: MappedRow) -> None:
        """Remember that the source asks for something else now, only so as to know the same change again."""
        asked = {"new_drift_body": None, "new_drift_fingerprint": row.fingerprint, "new_drift_kind": None}
        self._rows[_DRIFT].append({**asked, **self._seen(entry_id, row)})

    def redraft(self, entry_id: int, row: MappedRow) -> None:
        """Put the draft of a change in the place of a delivered event, which stays on record."""
        self._redrafts[entry_id] = row

    def withdraw(self, entry_id: int) -> None:
        """Put the event before it back into the place of a draft that was never sent."""
        self._withdrawals.append(entry_id)

    def refresh(self, entry_id: int, row: MappedRow) -> None:
        """Record that the source says again what is pinned, and where."""
        self._rows[_REFRESH].append(self._seen(entry_id, row))

    def unmark_vanished(self, entry_id: int) -> None:
        """Record that a row which had vanished is in its source again."""
        self._rows[_RETURN].append({"entry": entry_id})

    def settle(self, entry_id: int) -> None:
        """Record that nothing about a known difference is left to do."""
        self._rows[_SETTLE].append({"entry": entry_id})

    def write(self, connection: Connection) -> None:
        """Write it all; a batch without decisions costs nothing."""
        if self._inserts:
            _insert(connection, self._inserts)
        if self._drifts:
            self._rows[_DRIFT] += self._drift_rows(connection)
        if self._redrafts:
            retire(connection, list(self._redrafts), self._now)
            self._rows[_REDRAFT] += self._redraft_rows(connection)
        for statement in (_HELD_LIKE, _HOLD, _PIN, _DRIFT, _CANCEL, _REDRAFT):
            self._execute(connection, statement)
        put_back(connection, self._withdrawals, self._now)
        for statement in (_REFRESH, _RETURN, _SETTLE):
            self._execute(connection, statement)
        if self._marks:
            mark_anew(connection, self._marks.items())

    def _execute(self, connection: Connection, statement: Update) -> None:
        if rows := self._rows.get(statement):
            connection.execute(statement, rows)

    def _new(self, row: MappedRow, state: EntryState = EntryState.PENDING, candidate_id: int | None = None) -> tuple[object, ...]:
        return (  # in the order of _NEW_COLUMNS
            self._turn.scope_id,
            row.row_key,
            state.value,
            self._turn.key(row.row_key),
            0,
            row.body,
            row.cover and storable(row.cover.url),
            row.cover and row.cover.on_error,
            row.fingerprint,
            row.row_digest,
            row.duplicate_digest,
            row.channel_id,
            0,
            "",
            "",
            storable(row.location.place),
            self._turn.run_id,
            "",
            self._bound_now,
            self._bound_now,
            _bound(self._turn, ends_at_of(row.body)),
            candidate_id,
            "",
            0,
            False,
        )

    def _pinned(self, entry_id: int, row: MappedRow) -> dict[str, object]:
        return {
            "new_body": row.body,
            "new_cover_url": row.cover and row.cover.url,
            "new_cover_on_error": row.cover and row.cover.on_error,
            "new_fingerprint": row.fingerprint,
            "new_twin_digest": row.duplicate_digest,
            "new_channel_id": row.channel_id,
            "new_ends_at": ends_at_of(row.body),
            **self._seen(entry_id, row),
        }

    def _seen(self, entry_id: int, row: MappedRow) -> dict[str, object]:
        return {
            "entry": entry_id,
            "new_row_digest": row.row_digest,
            "new_origin": row.location.place,
            "new_updated_at": self._now,
        }

    def _redraft_rows(self, connection: Connection) -> Iterator[dict[str, object]]:
        used = used_revisions(connection, self._redrafts)
        for entry_id, row in self._redrafts.items():
            revision = revision_of(row.fingerprint)
            while revision in used[entry_id]:  # by an event that a person has removed
                revision += 1
            key = {"new_revision": revision, "new_idempotency_key": self._turn.key(row.row_key, revision)}
            self._marks[entry_id] = row.duplicate_digest
            yield {**self._pinned(entry_id, row), **key, "new_staged_run": self._turn.run_id}

    def _kind_of_drift(self, entry_id: int, shown: bytes, asked: bytes) -> DriftKind:
        return DriftKind.RETURNED if entry_id in self._removed else kind_of_drift(shown, asked)

    def _drift_rows(self, connection: Connection) -> list[dict[str, object]]:
        shown = shown_bodies(connection, self._drifts)
        return [
            {
                "new_drift_body": row.body,
                "new_drift_fingerprint": row.fingerprint,
                "new_drift_kind": self._kind_of_drift(entry_id, shown[entry_id], row.body).value,
                **self._seen(entry_id, row),
            }
            for entry_id, row in self._drifts.items()
        ]


def kind_of_drift(shown: bytes, asked: bytes) -> DriftKind:
    """Return how what the source asks for differs from what the service shows."""
    is_release = status_of(shown) != "published" and status_of(asked) == "published"
    return DriftKind.TO_PUBLISH if is_release else DriftKind.EDITED


def find_owners(connection: Connection, destination: str | ColumnElement[str], event_ids: Collection[int]) -> dict[int, str]:
    """Return which of these events of a destination are rows already, by id, each with its row and feed for people.

    An earlier event of a row, in whose place a later draft of it stands, is that row's too.
    """
    found: dict[int, str] = {}
    ids = sorted(set(event_ids))
    names = (SCOPE.c.feed, ENTRY.c.row_key)
    of_entries = select(ENTRY.c.event_id, *names).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    before = select(EARLIER.c.event_id, *names).join(ENTRY, ENTRY.c.id == EARLIER.c.entry_id)
    before = before.join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    for start in range(0, len(ids), _PAGE):
        some = ids[start : start + _PAGE]
        for rows, event_id in ((before, EARLIER.c.event_id), (of_entries, ENTRY.c.event_id)):
            owned = rows.where(SCOPE.c.destination == destination, event_id.in_(some))
            found |= {row.event_id: f"row {row.row_key} of {row.feed}" for row in connection.execute(owned)}
    return found


def destination_of(scope_id: int) -> ColumnElement[str]:
    """Return the destination of a scope, for a statement."""
    return select(SCOPE.c.destination).where(SCOPE.c.id == scope_id).scalar_subquery()


_IS_TO_RESEND = ENTRY.c.decision == Decision.RESEND.value


def is_forgotten(now: datetime, key_memory_s: float) -> ColumnElement[bool]:
    """Whether an attempt went unanswered so long ago that the service may have forgotten its key; never unknown.

    Answers 429 aside: a service that keeps to its limit has created nothing.
    """
    is_late = func.coalesce(ENTRY.c.unanswered_at <= now - timedelta(seconds=key_memory_s), False)
    return and_(is_late, ~ENTRY.c.is_limited)


def may_be_pinned_anew(state: EntryState, attempts: int, *, is_unanswered: bool) -> bool:
    """Return whether nothing can have been created from an entry's pinned body."""
    match state:
        case EntryState.PENDING:
            return attempts == 0
        case EntryState.BLOCKED:
            return not is_unanswered
        case EntryState.REFUSED | EntryState.HELD | EntryState.SUPERSEDED:
            return True
        case EntryState.DELIVERED | EntryState.DELIVERED_UNCONFIRMED | EntryState.UNCERTAIN | EntryState.CONFLICT:
            return False
        case _:
            assert_never(state)


class Known(NamedTuple):
    """What the ledger remembers of a row, in the order of the columns that are read; a named tuple, for there are millions.

    A drift of no kind is one that the feed ignores (`on_change: ignore`).
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
    revision: int
    refused_request_id: str
    drift_kind: str | None = DriftKind.EDITED.value
    is_set_aside: bool = False
    baseline_fingerprint: str | None = None
    is_removed: bool = False
    decision: str | None = None
    candidate_id: int | None = None

    @property
    def shown(self) -> str:
        """The fingerprint of the baseline."""
        return self.baseline_fingerprint or self.fingerprint

    @property
    def said(self) -> str:
        """The fingerprint of what the source last asked for: the drift where there is one, else the baseline."""
        return self.drift_fingerprint or self.shown

    @property
    def is_never_sent(self) -> bool:
        """Whether the pinned body certainly never left this host."""
        return self.state == EntryState.PENDING and self.attempts == 0

    @property
    def may_be_pinned_anew(self) -> bool:
        """Whether nothing can have been created from the pinned body, so that another one may take its place."""
        return may_be_pinned_anew(EntryState(self.state), self.attempts, is_unanswered=self.is_unanswered)


_FIRST_CHANGE = 1 << 30
_CHANGES = 1 << 29


def drafted(row: MappedRow) -> MappedRow:
    """Return the same row, asking for a draft."""
    body = as_draft(row.body)
    return replace(row, body=body, fingerprint=fingerprint(body, row.cover.url if row.cover else ""))


def revision_of(change: Fingerprint) -> int:
    """Return the revision of the key under which a changed payload is drafted: a number drawn from the payload itself.

    A ledger that counted would begin anew when it is lost, and give one key to two changes, or one change two keys. So
    the same change of the same row has the same key for ever. Revisions that count (after a refusal) stay far below.
    """
    return _FIRST_CHANGE + int(change[:8], 16) % _CHANGES


def is_of_change(revision: int) -> bool:
    """Return whether a revision came from `revision_of`, or counts on from one."""
    return revision >= _FIRST_CHANGE


def status_of(body: bytes) -> object:
    """Return the status that a payload asks for, None if it names none."""
    return json.loads(body).get("status")


def content_of(body: bytes) -> object:
    """Return a payload without its status and its cover image: what people would have to compare."""
    return {name: value for name, value in json.loads(body).items() if name not in {"status", "coverImage"}}


def ends_at_of(body: bytes) -> datetime | None:
    """Return when the event of a payload is over: its end, or its start where it has no end; None where neither can be read."""
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
    """Return the duplicate digest of a payload: channel, title, start and place."""
    event = orjson.loads(body)
    place = f"{event['approxLocation']['city']['placeId']} {event.get('locationName', '')}"
    return duplicate_digest(event["channelId"], event["title"], event["startAt"], place)


_OUT = (
    EntryState.DELIVERED.value,
    EntryState.DELIVERED_UNCONFIRMED.value,
    EntryState.UNCERTAIN.value,
    EntryState.CONFLICT.value,
)
_WITHOUT_ROW = (EntryState.HELD.value, EntryState.SUPERSEDED.value)
_IS_UNMARKED = (ENTRY.c.vanished_at.is_(None), ENTRY.c.past_at.is_(None))
_IS_UNANSWERED = and_(ENTRY.c.state.in_((EntryState.PENDING.value, EntryState.BLOCKED.value)), ENTRY.c.unanswered_at.is_not(None))
MAY_BE_OUT = and_(or_(ENTRY.c.state.in_(_OUT), _IS_UNANSWERED), ENTRY.c.removed_at.is_(None))


def count_unmarked(connection: Connection, scope_id: int, boundary: int) -> int:
    """Count a feed's entries, up to an id, that stand for a row and are not marked as gone.

    By indexes alone: there are many entries, and few marked ones.
    """
    of_feed = (ENTRY.c.scope_id == scope_id, ENTRY.c.id <= boundary)
    is_vanished, is_past = ENTRY.c.vanished_at.is_not(None), ENTRY.c.past_at.is_not(None)
    is_without_row = (ENTRY.c.state.in_(_WITHOUT_ROW), *_IS_UNMARKED)
    every, vanished, past, both, without_row = (
        connection.execute(select(func.count()).where(*of_feed, *which)).scalar_one()
        for which in ((), (is_vanished,), (is_past,), (is_vanished, is_past), is_without_row)
    )
    return every - vanished - past + both - without_row


def count_to_come(connection: Connection, scope_id: int, now: datetime) -> int:
    """Count the entries whose events are, or may be, at the service, and are still to come."""
    is_to_come = or_(ENTRY.c.ends_at.is_(None), ENTRY.c.ends_at > now)
    listed = select(func.count()).where(ENTRY.c.scope_id == scope_id, MAY_BE_OUT, *_IS_UNMARKED, is_to_come)
    return connection.execute(listed).scalar_one()


_MARK_BYTES = 8
MARK = func.substr(ENTRY.c.twin_digest, 1, _MARK_BYTES)
WITHOUT_EVENT = (EntryState.REFUSED.value, EntryState.SUPERSEDED.value, EntryState.HELD.value)


class Candidate(NamedTuple):
    """A known entry that a row looks like: its id (0 for one that is written with the same batch), its key, and where it is.

    `feed` is "" for an entry of the row's own feed, `namespace` for one of the row's own namespace.
    """

    entry_id: int
    row_key: RowKey
    feed: FeedName = FeedName("")
    namespace: str = ""

    def __str__(self) -> str:
        """Name it for people."""
        return " ".join(filter(None, (self.row_key, place_of(self.feed, self.namespace))))


def place_of(feed: str, namespace: str) -> str:
    """Say where an entry of another feed is; "" for one of the row's own feed."""
    return " in ".join(filter(None, (f"of feed {feed}" if feed else "", f"namespace {namespace}" if namespace else "")))


def mark_anew(connection: Connection, entries: Iterable[tuple[int, bytes]]) -> None:
    """Add the marks of entries whose digests have changed. Their old marks stay, and are ignored."""
    marks = [{"mark": digest[:_MARK_BYTES], "entry_id": entry_id} for entry_id, digest in entries]
    if marks:
        connection.execute(insert_if_new(connection, DUPLICATE_MARK), marks)
