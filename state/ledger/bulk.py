"""New ledger entries at the driver's own speed: the one statement that runs for every row of a first read.

Building parameters through the statement layer costs as much again as SQLite's work; every other statement takes it.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, insert

from mappings.outcome import MappedRow
from mappings.row_key import IdempotencyKey
from state.enums import EntryState
from state.ledger.lease import Turn
from state.ledger.plan import ends_at_of
from state.tables import ENTRY, UtcTime, storable

_COLUMNS = (
    *("scope_id", "row_key", "state", "idempotency_key", "revision", "body", "cover_url", "cover_on_error", "fingerprint"),
    *("row_digest", "twin_digest", "channel_id", "attempts", "refused_request_id", "denied_request_id"),
    *("origin", "staged_run", "sent_run", "created_at", "updated_at", "ends_at", "candidate_id", "vanished_by"),
    *("copies", "is_limited"),
)
_INSERT = insert(ENTRY).values({name: bindparam(name) for name in _COLUMNS})

_TIME = UtcTime()

EntryTuple = tuple[object, ...]
"""One new entry, in the order of the columns above, which is the table's; times as the driver takes them."""


def new_entry(
    turn: Turn, key: IdempotencyKey, row: MappedRow, now: object, state: EntryState = EntryState.PENDING, candidate: int = 0
) -> EntryTuple:
    """Record a new row under its key. `now` comes from `bound_time`; `candidate` is the entry that a held row looks like."""
    return (
        turn.scope_id,
        row.row_key,
        state.value,
        key,
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
        turn.run_id,
        "",
        now,
        now,
        bound_time(turn, ends_at_of(row.body)),
        candidate or None,
        "",
        0,
        False,
    )


def bound_time(turn: Turn, now: datetime | None) -> datetime | str | None:
    """Return an instant as the driver takes it."""
    return _TIME.process_bind_param(now, turn.engine.dialect)


def insert_entries(connection: Connection, entries: list[EntryTuple]) -> None:
    """Insert new entries; ids follow their order."""
    compiled = _INSERT.compile(dialect=connection.dialect)
    if compiled.positional:
        connection.exec_driver_sql(str(compiled), entries)
    else:
        connection.exec_driver_sql(str(compiled), [dict(zip(_COLUMNS, entry, strict=True)) for entry in entries])
