"""How a feed replaces its rows: whether new rows resemble rows that are gone, and whether earlier reads replaced as many."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import orjson
from sqlalchemy import Connection, bindparam, func, or_, select

from state.enums import EntryState
from state.ledger.accounts import READS_THAT_TELL, StageReport
from state.ledger.lease import FencedTransaction
from state.ledger.over import MAY_BE_OUT, in_fews
from state.ledger.seen import ReadMarks
from state.tables import ENTRY, RUN

MOST_COMPARED = 100_000
"""So many of the youngest absent entries, and of the new rows, are compared: some 25 MB, and a second at most."""

_OF_FEED = ENTRY.c.scope_id == bindparam("scope")
_KNOWN = select(ENTRY.c.id).where(_OF_FEED, MAY_BE_OUT).order_by(ENTRY.c.id.desc()).limit(MOST_COMPARED)
_MARKED = select(ENTRY.c.id).where(_OF_FEED, or_(ENTRY.c.vanished_at.is_not(None), ENTRY.c.past_at.is_not(None)), MAY_BE_OUT)
_NEW = (
    select(ENTRY.c.id)
    .where(_OF_FEED, ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.attempts == 0, ENTRY.c.id > bindparam("after"))
    .order_by(ENTRY.c.id)
    .limit(MOST_COMPARED)
)
_BODIES = select(func.coalesce(ENTRY.c.baseline_body, ENTRY.c.body).label("body")).where(
    ENTRY.c.id.in_(bindparam("entries", expanding=True))
)


def count_alike(connection: Connection, turn: FencedTransaction, marks: ReadMarks, *, is_whole: bool, released_id: int) -> int:
    """Count the new rows that agree with an entry that is not in the source any more in two of title, start and place.

    Both within one channel; the entry's event may be over. `released_id`: the highest entry that an earlier read has let out.
    """
    known = connection.execute(_KNOWN if is_whole else _MARKED, {"scope": turn.scope_id}).scalars()
    absent = [entry_id for entry_id in known if not is_whole or not marks.is_present(entry_id)]
    if not is_whole:
        absent = [*absent, *islice(filter(marks.is_deleted, marks.deleted), MOST_COMPARED)][:MOST_COMPARED]
    if not absent:
        return 0
    pairs = set[int]()
    for body in _bodies(connection, absent):
        pairs.update(_pairs(body))
    new = connection.execute(_NEW, {"scope": turn.scope_id, "after": released_id}).scalars().all()
    return sum(not pairs.isdisjoint(_pairs(body)) for body in _bodies(connection, new))


def with_history(connection: Connection, turn: FencedTransaction, report: StageReport) -> StageReport:
    """Return the report with the earlier whole reads that went out and were like it.

    Those that lost and gained at least half as many rows, and those of whose new rows half as many agreed with absent ones. A
    read that gains many and loses few replaces nothing.
    """
    new = report.account.new - report.restaged + report.waiting
    lost = report.vanished + report.past
    is_replacing = bool(new) and lost * 2 > new
    if not (is_replacing or report.alike):
        return report
    latest = (
        select(RUN.c.stage_report)
        .where(RUN.c.scope_id == turn.scope_id, RUN.c.id != turn.run_id, RUN.c.is_whole, RUN.c.brakes == "[]")
        .where(RUN.c.stage_report.is_not(None))
        .order_by(RUN.c.started_at.desc())
        .limit(READS_THAT_TELL)
    )
    stored = [json.loads(each) for each in connection.execute(latest).scalars()]
    replaced = sum(
        _gained(each) * 2 >= new and (each["vanished"] + each.get("past", 0)) * 2 >= lost for each in stored if is_replacing
    )
    alike = sum(each.get("alike", 0) * 2 >= report.alike for each in stored if report.alike)
    return replace(report, replaced_before=replaced, alike_before=alike)


def _gained(stored: dict[str, Any]) -> int:
    return int(stored["account"]["new"] - stored["restaged"] + stored.get("waiting", 0))


def _bodies(connection: Connection, entries: Iterable[int]) -> Iterator[bytes]:
    for few in in_fews(entries):
        yield from connection.execute(_BODIES, {"entries": few}).scalars()


def _pairs(body: bytes) -> Iterator[int]:
    """Yield a number for each two of title, start and place that a payload has."""
    event = orjson.loads(body)
    channel, title, start = event.get("channelId"), event.get("title"), event.get("startAt")
    city = (event.get("approxLocation") or {}).get("city") or {}
    place = (city.get("placeId"), event.get("locationName", "")) if city.get("placeId") else None
    for first, second in ((title, start), (title, place), (start, place)):
        if first and second:
            yield hash((channel, first is title, second is place, first, second))
