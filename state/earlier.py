"""Events that a later draft of their row has taken the place of: set aside with all that their entry said, put back, counted.

When a change is drafted is `plan`'s; what is staged in the event's place is `entries`'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from sqlalchemy import BindParameter, Connection, and_, bindparam, exists, func, insert, literal, select, update

from state.enums import EntryState
from state.packing import unpacked
from state.tables import EARLIER, ENTRY, NO_DRIFT, SCOPE

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
_BODIES = (
    select(ENTRY.c.id, _SHOWN["body"].label("body"), SCOPE.c.body_base)
    .join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    .where(ENTRY.c.id.in_(_SOME))
)
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
    return {row.id: unpacked(row.body, row.body_base) for row in rows}


def waiting(connection: Connection, scope_id: int) -> Iterator[int]:
    """Yield the entries of drafts that were staged, never sent, and that no gate has let out by itself."""
    yield from connection.execute(_WAITING, {"scope": scope_id}).scalars()


def let_out(connection: Connection, scope_id: int) -> None:
    """Note that a gate has let out the drafts of this feed that were staged so far."""
    of_feed = exists().where(ENTRY.c.id == EARLIER.c.entry_id, ENTRY.c.scope_id == scope_id)  # there are few of them, if any
    connection.execute(update(EARLIER).where(EARLIER.c.is_let_out.is_(False), of_feed).values(is_let_out=True))
