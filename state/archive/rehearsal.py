"""A copy of one feed's ledger, to rehearse a run on: the very code of a real run works on it, and the ledger never knows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Select, Table, insert, literal, or_, select

from mappings.delivery import split_destination
from mappings.row_key import FeedName
from state.database import open_database, reading, writing
from state.ledger.accounts import READS_THAT_TELL
from state.ledger.duplicates import DuplicateIndex
from state.tables import EARLIER, ENTRY, RUN, SCOPE, SIDE_BY_SIDE

_PAGE = 1_000
_BODIES = frozenset({"body", "drift_body", "baseline_body", "answer", "undo"})


@contextmanager
def rehearsal_copy(engine: Engine | None, destination: str, feed: FeedName) -> Iterator[Engine]:
    """Lend a state DB that holds one feed's gate, entries and decisions as they are at this moment, and of what runs left
    only the pages of the latest whole reads, by which a brake knows the feed's habits. Of the other feeds of the service it
    has what duplicates are found by, and no bodies.

    It is a SQLite file in a folder for this user alone, gone when the block ends. `engine` is only read; None stands
    for a state DB that does not exist. The lease is not copied: a rehearsal disturbs no run, and no run the rehearsal.
    """
    with tempfile.TemporaryDirectory(prefix="eventsync-rehearsal-") as folder:
        copy = open_database(f"sqlite:///{Path(folder) / 'state.db'}")
        try:
            if engine is not None:
                _copy(engine, copy, destination, feed)
            yield copy
        finally:
            copy.dispose()


def _copy(engine: Engine, copy: Engine, destination: str, feed: FeedName) -> None:
    with reading(engine) as source, writing(copy) as target:
        scope = source.execute(select(SCOPE).where(SCOPE.c.destination == destination, SCOPE.c.feed == feed)).mappings().first()
        service = split_destination(destination)[0] if scope is None else scope["service"]
        of_service = select(SCOPE).where(SCOPE.c.service == service, SCOPE.c.id != (scope["id"] if scope else 0))
        others = source.execute(of_service).mappings().all()
        # Without the evidence of the last read: a rehearsal shows rows, and looks at all of them. It makes marks of its own.
        scopes = [{**each, "stamp": "", "marked_id": 0} for each in (*filter(None, [scope]), *others)]
        if scopes:
            target.execute(insert(SCOPE), scopes)
        for other in others:
            _copy_rows(source, target, ENTRY, _without_bodies(other["id"]))
            DuplicateIndex(target, other["id"])
        if scope is not None:
            of_feed = ENTRY.c.scope_id == scope["id"]
            pairs = or_(SIDE_BY_SIDE.c.scope_id == scope["id"], SIDE_BY_SIDE.c.other_id == scope["id"])
            _copy_rows(source, target, SIDE_BY_SIDE, select(SIDE_BY_SIDE).where(pairs))
            _copy_rows(source, target, ENTRY, select(ENTRY).where(of_feed).order_by(ENTRY.c.id))
            _copy_rows(source, target, EARLIER, select(EARLIER).join(ENTRY, ENTRY.c.id == EARLIER.c.entry_id).where(of_feed))
            reads = select(RUN).where(RUN.c.scope_id == scope["id"], RUN.c.is_whole, RUN.c.stage_report.is_not(None))
            _copy_rows(source, target, RUN, reads.order_by(RUN.c.started_at.desc()).limit(READS_THAT_TELL))


def _without_bodies(scope_id: int) -> Select[Any]:
    """Select the columns of a feed's entries by which duplicates are found."""
    kept = (column for column in ENTRY.c if column.name not in _BODIES)
    return select(*kept, literal(b"").label("body")).where(ENTRY.c.scope_id == scope_id).order_by(ENTRY.c.id)


def _copy_rows(source: Connection, target: Connection, table: Table, rows: Select[Any]) -> None:
    for page in source.execution_options(yield_per=_PAGE).execute(rows).mappings().partitions():
        target.execute(insert(table), [dict(row) for row in page])
