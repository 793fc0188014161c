"""Rows that are gone from their source, and whose events are over: partners prune what is past, and nobody needs to hear of it.

What is marked, and what a brake makes of it, is `closing`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select, update

from state.packing import unpacked
from state.seen import Seen
from state.tables import ENTRY, SCOPE
from state.words import EntryState

_FEW = 500
_OUT = (EntryState.DELIVERED.value, EntryState.DELIVERED_UNCONFIRMED.value)
_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
_TOLD = (
    select(ENTRY.c.id, ENTRY.c.body, ENTRY.c.drift_body, SCOPE.c.body_base)
    .join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    .where(_SOME, ENTRY.c.state.in_(_OUT))
)
_PASS = update(ENTRY).where(_SOME).values(past_at=bindparam("now"))


def sort_out(connection: Connection, absent: Iterable[int], seen: Seen, now: datetime) -> None:
    """Tell events that are over from those to come, by what the service has, or by what the source last said instead."""
    for few in in_fews(absent):
        past = {row.id for row in connection.execute(_TOLD, {"entries": few}) if _is_over(row, now)}
        for entry_id in few:
            seen.miss(entry_id, is_over=entry_id in past)


def count_unmarked(connection: Connection, scope_id: int, boundary: int) -> int:
    """Count a feed's entries, up to an id, that are not marked as gone: by indexes alone, as there are many, and few marked."""
    of_feed = (ENTRY.c.scope_id == scope_id, ENTRY.c.id <= boundary)
    is_vanished, is_past = ENTRY.c.vanished_at.is_not(None), ENTRY.c.past_at.is_not(None)
    every, vanished, past, both = (
        connection.execute(select(func.count()).where(*of_feed, *which)).scalar_one()
        for which in ((), (is_vanished,), (is_past,), (is_vanished, is_past))
    )
    return every - vanished - past + both


def mark_past(connection: Connection, past: Iterable[int], now: datetime) -> None:
    """Mark entries as gone, their events being over: no later read counts them again."""
    for few in in_fews(past):
        connection.execute(_PASS, {"entries": few, "now": now})


def in_fews(ids: Iterable[int]) -> Iterator[list[int]]:
    """Yield the ids by so many as one statement takes."""
    rest = iter(ids)
    while few := list(islice(rest, _FEW)):
        yield few


def _is_over(row: Row[*tuple[Any, ...]], now: datetime) -> bool:
    """Whether an event's end has passed, or its start where it has no end."""
    event = json.loads(row.drift_body or unpacked(row.body, row.body_base))
    moment = event.get("endAt") or event.get("startAt")
    return moment is not None and datetime.fromisoformat(moment) <= now
