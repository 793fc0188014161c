"""The statements of staging: finding the entries of a batch of rows, and writing what was decided, by batches.

What to decide is `plan`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
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

from mappings.outcome import MappedRow, RowLocation, RowOutcome
from state.database import rounded
from state.enums import Decision, DriftKind, EntryState
from state.ledger.claims import IS_SET_ASIDE
from state.ledger.duplicates import Candidate, mark_anew
from state.ledger.lease import FencedTransaction
from state.ledger.plan import Known, Past, content_of, drafted, ends_at_of, is_of_change, revision_of, status_of
from state.ledger.stage_policy import StagePolicy
from state.tables import EARLIER, ENTRY, NO_DRIFT, SCOPE, UtcTime, storable

_KEPT = (
    *("revision", "idempotency_key", "body", "fingerprint", "row_digest", "twin_digest", "channel_id", "event_id", "attempts"),
    *("answer", "sent_run", "copies"),
)
_SOME: BindParameter[int] = bindparam("entries", expanding=True)
_NOW = bindparam("now", type_=EARLIER.c.replaced_at.type)
_SHOWN = {
    "body": func.coalesce(ENTRY.c.baseline_body, ENTRY.c.body),
    "fingerprint": func.coalesce(ENTRY.c.baseline_fingerprint, ENTRY.c.fingerprint),
}
"""An event is set aside as the service shows it."""
_RETIRE = insert(EARLIER).from_select(
    ("entry_id", *_KEPT, "replaced_at", "is_let_out", "ends_at"),
    select(ENTRY.c.id, *(_SHOWN.get(name, ENTRY.c[name]) for name in _KEPT), _NOW, literal(value=False), ENTRY.c.ends_at).where(
        ENTRY.c.id.in_(_SOME)
    ),
)
_CLEAR = (
    update(ENTRY)
    .where(ENTRY.c.id.in_(_SOME))
    .values(event_id=None, answer=None, unanswered_at=None, copies=0, is_limited=False, sent_run="")
    .values(refused_request_id="", denied_request_id="")
    .values(decision=None, decided_at=None, decided_by=None, undo=None)
    .values(baseline_body=None, baseline_fingerprint=None, ignored_fingerprint=None)
)
_LATEST = select(EARLIER.c.entry_id, func.max(EARLIER.c.replaced_at).label("at")).where(EARLIER.c.entry_id.in_(_SOME))
_PAST = select(EARLIER.c.entry_id, EARLIER.c.fingerprint).where(EARLIER.c.entry_id.in_(_SOME), EARLIER.c.removed_at.is_(None))
_REVISIONS = select(EARLIER.c.entry_id, EARLIER.c.revision).where(EARLIER.c.entry_id.in_(_SOME))
_EVENTS = (
    select(EARLIER.c.entry_id, EARLIER.c.event_id)
    .where(EARLIER.c.entry_id.in_(_SOME), EARLIER.c.event_id.is_not(None), EARLIER.c.removed_at.is_(None))
    .order_by(EARLIER.c.replaced_at)
)
_BODIES = select(ENTRY.c.id, _SHOWN["body"].label("body")).where(ENTRY.c.id.in_(_SOME))
_PUT_BACK = (
    update(ENTRY)
    .where(ENTRY.c.id == bindparam("entry"))
    .values(
        state=EntryState.DELIVERED.value,
        **{name: bindparam(f"old_{name}") for name in _KEPT},
        ends_at=bindparam("old_ends_at", type_=ENTRY.c.ends_at.type),
        removed_at=bindparam("old_removed_at", type_=ENTRY.c.removed_at.type),
        cover_url=None,
        cover_on_error=None,
        unanswered_at=None,
        is_limited=False,
        refused_request_id="",
        denied_request_id="",
        **NO_DRIFT,
        updated_at=bindparam("now"),
    )
)
_WAITING = (
    select(EARLIER.c.entry_id)
    .join(ENTRY, ENTRY.c.id == EARLIER.c.entry_id)
    .where(
        ENTRY.c.scope_id == bindparam("scope"),
        EARLIER.c.is_let_out.is_(False),
        ENTRY.c.state == EntryState.PENDING.value,
        ENTRY.c.attempts == 0,
    )
    .distinct()
)


def retire(connection: Connection, entries: Sequence[int], now: datetime) -> None:
    """Set aside the events of these entries, and leave the entries ready for another body and key."""
    connection.execute(_RETIRE, {"entries": entries, "now": now})
    connection.execute(_CLEAR, {"entries": entries})


def put_back(connection: Connection, entries: Collection[int], now: datetime) -> None:
    """Make the last event that was set aside the entry's own again, as delivered, or removed by hand, as it was."""
    if not entries:
        return
    latest = _LATEST.group_by(EARLIER.c.entry_id).subquery()
    rows = connection.execute(
        select(EARLIER).join(latest, and_(latest.c.entry_id == EARLIER.c.entry_id, latest.c.at == EARLIER.c.replaced_at)),
        {"entries": list(entries)},
    ).all()
    for row in rows:
        old = {f"old_{name}": getattr(row, name) for name in (*_KEPT, "ends_at", "removed_at")}
        connection.execute(_PUT_BACK, {"entry": row.entry_id, "now": now, **old})
        connection.execute(EARLIER.delete().where(EARLIER.c.entry_id == row.entry_id, EARLIER.c.revision == row.revision))


def said_before(connection: Connection, entries: Collection[int]) -> Mapping[int, frozenset[str]]:
    """Return the fingerprints of the events that were set aside, by entry."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    for entry_id, fingerprint in connection.execute(_PAST, {"entries": list(entries)}):
        found[entry_id].add(fingerprint)
    return {entry_id: frozenset(said) for entry_id, said in found.items()}


def used_revisions(connection: Connection, entries: Collection[int]) -> Mapping[int, frozenset[int]]:
    """Return the revisions of the events that were set aside, by entry."""
    found: defaultdict[int, frozenset[int]] = defaultdict(frozenset)
    for entry_id, revision in connection.execute(_REVISIONS, {"entries": list(entries)}):
        found[entry_id] |= {revision}
    return found


def earlier_events(connection: Connection, entries: Collection[int]) -> Mapping[int, tuple[int, ...]]:
    """Return the ids of earlier events that are still at the service, oldest first, by entry; few entries have any."""
    found: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
    if not entries:
        return found
    for entry_id, event_id in connection.execute(_EVENTS, {"entries": list(entries)}):
        found[entry_id] = (*found[entry_id], event_id)
    return found


def shown_bodies(connection: Connection, entries: Collection[int]) -> Mapping[int, bytes]:
    """Return the baselines of these entries."""
    rows = connection.execute(_BODIES, {"entries": list(entries)})
    return {row.id: row.body for row in rows}


def waiting(connection: Connection, scope_id: int) -> Iterator[int]:
    """Yield the entries of drafts that were staged, never sent, and that no gate has let out by itself."""
    yield from connection.execute(_WAITING, {"scope": scope_id}).scalars()


def let_out(connection: Connection, scope_id: int) -> None:
    """Note that a gate has let out the drafts of this feed that were staged so far."""
    of_feed = exists().where(ENTRY.c.id == EARLIER.c.entry_id, ENTRY.c.scope_id == scope_id)  # there are few of them, if any
    connection.execute(update(EARLIER).where(EARLIER.c.is_let_out.is_(False), of_feed).values(is_let_out=True))


CANCELLED = "cancelled"
"""What stands in place of a payload's fingerprint where the source says that an event is off."""
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
    *("origin", "staged_run", "updated_at", "ends_at"),
)
_OTHER = ENTRY.alias()
_ONE = ENTRY.c.id == bindparam("entry")
_SOME_of_entries = ENTRY.c.id.in_(bindparam("entries", expanding=True))
# A row that changes at its source is listed again, until it asks for what a person has ignored.
_LISTED_ANEW = {"decision": case((IS_SET_ASIDE, None), else_=ENTRY.c.decision)}
_SHOWN_of_entries = func.coalesce(ENTRY.c.baseline_fingerprint, ENTRY.c.fingerprint)


def _listed_unless_ignored(asked: ColumnElement[str]) -> dict[str, ColumnElement[str]]:
    is_ignored_payload = func.coalesce(ENTRY.c.ignored_fingerprint == asked, False)
    return {"decision": case((is_ignored_payload, Decision.IGNORE.value), (IS_SET_ASIDE, None), else_=ENTRY.c.decision)}


_NEW_DRIFT = bindparam("new_drift_fingerprint", type_=ENTRY.c.fingerprint.type)
_PIN = (
    update(ENTRY)
    .where(_ONE)
    .values(
        state=EntryState.PENDING.value,
        attempts=0,
        **_LISTED_ANEW,
        **NO_DRIFT,
        **{name: bindparam(f"new_{name}") for name in _PIN_COLUMNS},
    )
)
_NEXT = update(ENTRY).where(_ONE).values(revision=bindparam("next_revision"), idempotency_key=bindparam("next_key"))
_DRIFT_COLUMNS = ("drift_body", "drift_fingerprint", "drift_kind", "row_digest", "origin", "updated_at")
_DRIFT = (
    update(ENTRY)
    .where(_ONE)
    .values(**_listed_unless_ignored(_NEW_DRIFT), **{name: bindparam(f"new_{name}") for name in _DRIFT_COLUMNS})
)
_CANCEL_COLUMNS = ("drift_fingerprint", "drift_kind", "origin", "updated_at")
_CANCEL = (
    update(ENTRY)
    .where(_ONE)
    .values(**_listed_unless_ignored(_NEW_DRIFT), drift_body=None, **{name: bindparam(f"new_{name}") for name in _CANCEL_COLUMNS})
)
_REFRESH_COLUMNS = ("row_digest", "origin", "updated_at")
_REFRESH = (
    update(ENTRY)
    .where(_ONE)
    .values(
        **NO_DRIFT, **_listed_unless_ignored(_SHOWN_of_entries), **{name: bindparam(f"new_{name}") for name in _REFRESH_COLUMNS}
    )
)
_RETURN = (
    update(ENTRY)
    .where(_SOME_of_entries)
    .values(vanished_at=None, past_at=None, vanished_by="", **_listed_unless_ignored(ENTRY.c.drift_fingerprint))
)
_SETTLE = update(ENTRY).where(_SOME_of_entries).values(**NO_DRIFT)
_HOLD_COLUMNS = tuple(name for name in _PIN_COLUMNS if name != "staged_run")
_HOLD = (
    update(ENTRY).where(_ONE).values(state=EntryState.HELD.value, **{name: bindparam(f"new_{name}") for name in _HOLD_COLUMNS})
)
_KEY_OF_CANDIDATE = (
    update(ENTRY)
    .where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.row_key == bindparam("held"))
    .values(
        candidate_id=select(_OTHER.c.id)
        .where(_OTHER.c.scope_id == bindparam("scope"), _OTHER.c.row_key == bindparam("like"))
        .scalar_subquery()
    )
)


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
        self._inserts: list[tuple[object, ...]] = []
        self._bound_now = _bound(turn, self._now)
        self._look_alikes: list[dict[str, object]] = []
        self._holds: list[dict[str, object]] = []
        self._removed: set[int] = set()
        self._settled: list[int] = []
        self._pins: dict[int, MappedRow] = {}
        self._drifts: dict[int, MappedRow] = {}
        self._cancelled: list[dict[str, object]] = []
        self._ignored: list[dict[str, object]] = []
        self._redrafts: dict[int, MappedRow] = {}
        self._withdrawals: list[int] = []
        self._refreshes: list[dict[str, object]] = []
        self._returns: list[int] = []

    def create(self, row: MappedRow) -> None:
        """Pin a new row's body under its key, for life."""
        self._inserts.append(self._new(row))

    def hold(self, row: MappedRow, candidate: Candidate) -> None:
        """Record a new row as held: it looks like a known event."""
        self._inserts.append(self._new(row, EntryState.HELD, candidate.entry_id or None))
        if not candidate.entry_id:
            self._look_alikes.append({"scope": self._turn.scope_id, "held": row.row_key, "like": candidate.row_key})

    def hold_again(self, entry_id: int, row: MappedRow) -> None:
        """Record what a held row asks for now."""
        self._holds.append({name: value for name, value in self._pinned(entry_id, row).items() if name != "new_staged_run"})

    def pin(self, entry_id: int, row: MappedRow) -> None:
        """Put another body in the place of one that was never sent, or was refused."""
        self._pins[entry_id] = row

    def drift(self, entry_id: int, row: MappedRow, *, is_removed: bool = False) -> None:
        """Record what the source asks for now, beside what is pinned. `is_removed`: the event is gone from the service."""
        self._drifts[entry_id] = row
        if is_removed:
            self._removed.add(entry_id)

    def cancel(self, entry_id: int, origin: RowLocation) -> None:
        """Record that the source has called off what is out already: it asks for no other payload."""
        asked = {"new_drift_fingerprint": CANCELLED, "new_drift_kind": DriftKind.CANCELLED.value}
        self._cancelled.append({"entry": entry_id, **asked, "new_origin": origin.place, "new_updated_at": self._now})

    def ignore(self, entry_id: int, row: MappedRow) -> None:
        """Remember that the source asks for something else now, only so as to know the same change again."""
        asked = {"new_drift_body": None, "new_drift_fingerprint": row.fingerprint, "new_drift_kind": None}
        self._ignored.append({**asked, **self._seen(entry_id, row)})

    def redraft(self, entry_id: int, row: MappedRow) -> None:
        """Put the draft of a change in the place of a delivered event, which stays on record."""
        self._redrafts[entry_id] = row

    def withdraw(self, entry_id: int) -> None:
        """Put the event before it back into the place of a draft that was never sent."""
        self._withdrawals.append(entry_id)

    def refresh(self, entry_id: int, row: MappedRow) -> None:
        """Record that the source says again what is pinned, and where."""
        self._refreshes.append(self._seen(entry_id, row))

    def unmark_vanished(self, entry_id: int) -> None:
        """Record that a row which had vanished is in its source again."""
        self._returns.append(entry_id)

    def settle(self, entry_id: int) -> None:
        """Record that nothing about a known difference is left to do."""
        self._settled.append(entry_id)

    def write(self, connection: Connection) -> None:
        """Write it all; a batch without decisions costs nothing."""
        if self._inserts:
            _insert(connection, self._inserts)
        if self._look_alikes:
            connection.execute(_KEY_OF_CANDIDATE, self._look_alikes)
        if self._holds:
            connection.execute(_HOLD, self._holds)
        if self._pins:
            self._put_in_place(connection, self._pins)
        self._write_differences(connection)
        put_back(connection, self._withdrawals, self._now)
        if self._refreshes:
            connection.execute(_REFRESH, self._refreshes)
        if self._returns:
            connection.execute(_RETURN, {"entries": self._returns})
        if self._settled:
            connection.execute(_SETTLE, {"entries": self._settled})

    def _write_differences(self, connection: Connection) -> None:
        if self._drifts:
            connection.execute(_DRIFT, self._drift_rows(connection))
        if self._cancelled:
            connection.execute(_CANCEL, self._cancelled)
        if self._ignored:
            connection.execute(_DRIFT, self._ignored)
        if self._redrafts:
            retire(connection, list(self._redrafts), self._now)
            self._put_in_place(connection, self._redrafts)
            used = used_revisions(connection, self._redrafts)
            connection.execute(_NEXT, [self._next(entry_id, row, used[entry_id]) for entry_id, row in self._redrafts.items()])

    def _put_in_place(self, connection: Connection, rows: Mapping[int, MappedRow]) -> None:
        connection.execute(_PIN, [self._pinned(entry_id, row) for entry_id, row in rows.items()])
        mark_anew(connection, ((entry_id, row.twin_digest) for entry_id, row in rows.items()))

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
            row.twin_digest,
            row.channel_id,
            0,
            "",
            "",
            storable(row.origin.place),
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
            "new_twin_digest": row.twin_digest,
            "new_channel_id": row.channel_id,
            "new_staged_run": self._turn.run_id,
            "new_ends_at": ends_at_of(row.body),
            **self._seen(entry_id, row),
        }

    def _seen(self, entry_id: int, row: MappedRow) -> dict[str, object]:
        return {
            "entry": entry_id,
            "new_row_digest": row.row_digest,
            "new_origin": row.origin.place,
            "new_updated_at": self._now,
        }

    def _next(self, entry_id: int, row: MappedRow, used: Collection[int]) -> dict[str, object]:
        revision = revision_of(row.fingerprint)
        while revision in used:  # by an event that a person has removed
            revision += 1
        return {"entry": entry_id, "next_revision": revision, "next_key": self._turn.key(row.row_key, revision)}

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


_FEW = 500


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
    for start in range(0, len(ids), _FEW):
        some = ids[start : start + _FEW]
        for rows, event_id in ((before, EARLIER.c.event_id), (of_entries, ENTRY.c.event_id)):
            owned = rows.where(SCOPE.c.destination == destination, event_id.in_(some))
            found |= {row.event_id: f"row {row.row_key} of {row.feed}" for row in connection.execute(owned)}
    return found


def destination_of(scope_id: int) -> ColumnElement[str]:
    """Return the destination of a scope, for a statement."""
    return select(SCOPE.c.destination).where(SCOPE.c.id == scope_id).scalar_subquery()


def find_pasts(
    connection: Connection, known: Mapping[str, Known], outcomes: Sequence[RowOutcome], policy: StagePolicy
) -> dict[int, Past]:
    """Return the pasts of those rows whose change could be drafted, or was, by entry."""
    if policy.on_change != "create_draft_again" and not any(entry.revision for entry in known.values()):
        return {}
    rows = [row for row in outcomes if isinstance(row, MappedRow)]
    changed = {entry.entry_id: (entry, row) for entry, row in _changed(known, rows, policy)}
    if not changed:
        return {}
    said, shown = said_before(connection, changed), shown_bodies(connection, changed)
    return {
        entry_id: Past(
            is_said=bool({row.fingerprint, drafted(row).fingerprint} & said.get(entry_id, frozenset())),
            is_status_only=_is_status_only(shown[entry_id], drafted(row) if is_of_change(entry.revision) else row),
        )
        for entry_id, (entry, row) in changed.items()
    }


def _changed(known: Mapping[str, Known], rows: Sequence[MappedRow], policy: StagePolicy) -> Iterator[tuple[Known, MappedRow]]:
    asks_for_drafts = policy.on_change == "create_draft_again"
    for row in rows:
        entry = known.get(row.row_key)
        if entry is None or entry.shown == row.fingerprint:
            continue
        if is_of_change(entry.revision) or (asks_for_drafts and entry.state == EntryState.DELIVERED):
            yield entry, row


def _is_status_only(shown: bytes, asked: MappedRow) -> bool:
    return status_of(shown) != status_of(asked.body) and content_of(shown) == content_of(asked.body)
