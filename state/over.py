"""Rows that are gone from their source, and whose events are over: partners prune what is past, and nobody needs to hear of it.

What is marked, and what a brake makes of it, is `closing`'s.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from state.tables import ENTRY
from state.words import EntryState

_FEW = 500
_OUT = (EntryState.DELIVERED.value, EntryState.DELIVERED_UNCONFIRMED.value)
_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
_TOLD = select(ENTRY.c.id, ENTRY.c.body, ENTRY.c.drift_body).where(_SOME, ENTRY.c.state.in_(_OUT))
_PASS = update(ENTRY).where(_SOME).values(past_at=bindparam("now"))


@dataclass(frozen=True, slots=True)
class Absent:
    """Entries newly gone from their source: `news` of whose events may still come, and those that are `past`."""

    news: array[int] = field(default_factory=lambda: array("q"))
    past: array[int] = field(default_factory=lambda: array("q"))


def sorted_out(connection: Connection, absent: Sequence[int], now: datetime) -> Absent:
    """Tell events that are over from those to come, by what the service has, or by what the source last said instead."""
    past = {row.id for few in in_fews(absent) for row in connection.execute(_TOLD, {"entries": few}) if _is_over(row, now)}
    found = Absent()
    for entry_id in absent:
        (found.past if entry_id in past else found.news).append(entry_id)
    return found


def mark_past(connection: Connection, past: Sequence[int], now: datetime) -> None:
    """Mark entries as gone, their events being over: no later read counts them again."""
    for few in in_fews(past):
        connection.execute(_PASS, {"entries": few, "now": now})


def in_fews(ids: Sequence[int]) -> Iterator[list[int]]:
    """Yield the ids by so many as one statement takes."""
    for start in range(0, len(ids), _FEW):
        yield list(ids[start : start + _FEW])


def _is_over(row: Row[*tuple[Any, ...]], now: datetime) -> bool:
    """Whether an event's end has passed, or its start where it has no end."""
    event = json.loads(row.drift_body or row.body)
    moment = event.get("endAt") or event.get("startAt")
    return moment is not None and datetime.fromisoformat(moment) <= now
