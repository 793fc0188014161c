"""Whether another scope of the service delivers a feed's rows already: a feed that was renamed, or a namespace that was lost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, bindparam, func, select

from mappings.delivery import split_destination
from state.database import insert_if_new, reading
from state.enums import EntryState
from state.ledger.absent_rows import MAY_BE_OUT, count_to_come
from state.ledger.accounts import Alongside
from state.ledger.duplicates import WITHOUT_EVENT, read_neighbours
from state.tables import ENTRY, SCOPE, SIDE_BY_SIDE

_AT_LEAST = 3
_OTHER = ENTRY.alias()
_COUNT = select(func.count()).where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state != EntryState.SUPERSEDED.value)
_BY_KEY = (
    select(func.count())
    .select_from(ENTRY)
    .join(_OTHER, _OTHER.c.row_key == ENTRY.c.row_key)
    .where(
        ENTRY.c.scope_id == bindparam("scope"),
        _OTHER.c.scope_id == bindparam("other"),
        _OTHER.c.state.not_in(WITHOUT_EVENT),
        _OTHER.c.removed_at.is_(None),
    )
)
_HELD = (
    select(_OTHER.c.scope_id, func.count().label("held"))
    .select_from(ENTRY)
    .join(_OTHER, _OTHER.c.id == ENTRY.c.candidate_id)
    .where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state == EntryState.HELD.value)
    .group_by(_OTHER.c.scope_id)
)


def find_alongside(connection: Connection, scope_id: int) -> Alongside | None:
    """Return the scope that knows at least 3, and more than half, of a feed's rows: the one that knows most of them.

    A feed of the same name knows a row by its key; any feed knows one that is held as a duplicate of its own.
    """
    feed = connection.execute(select(SCOPE.c.feed).where(SCOPE.c.id == scope_id)).scalar_one()
    others = read_neighbours(connection, scope_id)
    others = {other_id: other for other_id, other in others.items() if other_id != scope_id and other.marked_id}
    rows = connection.execute(_COUNT, {"scope": scope_id}).scalar_one() if others else 0
    if rows < _AT_LEAST:
        return None
    held = {row.scope_id: row.held for row in connection.execute(_HELD, {"scope": scope_id})}
    found = []
    for other_id, other in others.items():
        by_key = 0
        if other.feed == feed:
            by_key = connection.execute(_BY_KEY, {"scope": scope_id, "other": other_id}).scalar_one()
        known = max(by_key, held.get(other_id, 0))
        if known >= _AT_LEAST and known * 2 > rows:
            renamed_from = "" if other.feed == feed else other.feed
            found.append(Alongside(other_id, renamed_from, other.namespace, known, rows, held.get(other_id, 0)))
    return max(found, key=lambda each: each.known, default=None)


def put_side_by_side(connection: Connection, scope_id: int, other_id: int) -> None:
    """Record that two feeds deliver side by side on purpose: neither holds the other's rows from now on."""
    pairs = [{"scope_id": scope_id, "other_id": other_id}, {"scope_id": other_id, "other_id": scope_id}]
    connection.execute(insert_if_new(connection, SIDE_BY_SIDE), pairs)


@dataclass(frozen=True, slots=True)
class Estranged:
    """Rows that are delivered under a name that is not used any more: those of `feed`, in another `namespace` unless it is "".

    `rows`: of a feed without a mapping file the events to come, else all that may be at the service.
    """

    feed: str
    namespace: str
    rows: int


def find_estranged(engine: Engine, destination: str, feeds: Collection[str], now: datetime) -> tuple[Estranged, ...]:
    """Return the feeds, of those that have a mapping file, that never delivered here and did so in another namespace; and those
    that have events to come and no mapping file.
    """
    service, namespace = split_destination(destination)
    listed = select(SCOPE.c.id, SCOPE.c.feed, SCOPE.c.namespace, SCOPE.c.released_id).where(SCOPE.c.service == service)
    with reading(engine) as connection:
        scopes = connection.execute(listed.order_by(SCOPE.c.feed, SCOPE.c.namespace)).all()
        let_out = {scope.feed for scope in scopes if scope.namespace == namespace and scope.released_id}
        wanted = {*feeds} - let_out
        apart = {pair.scope_id for pair in connection.execute(select(SIDE_BY_SIDE.c.scope_id))}
        found = []
        for scope in scopes:
            if scope.namespace == namespace and scope.feed not in feeds:
                found.append(Estranged(scope.feed, "", count_to_come(connection, scope.id, now)))
            elif scope.namespace != namespace and scope.feed in wanted and scope.id not in apart:
                out = select(func.count()).where(ENTRY.c.scope_id == scope.id, MAY_BE_OUT)
                found.append(Estranged(scope.feed, scope.namespace, connection.execute(out).scalar_one()))
        return tuple(one for one in found if one.rows)
