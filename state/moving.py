"""A state DB moved into another database, SQLite or PostgreSQL, while no run can work on it. What is carried is `contents`'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, literal, select

from mappings.vocabulary import FeedName
from state.contents import TABLES, Tell, compare, count_rows, parts_of, put, sums_of
from state.database import reading, writing
from state.export_file import Carried
from state.lease import LEASE_TTL_S, Lease
from state.ledger import Ledger
from state.tables import LEASE, MEDIA, MEDIA_ADDRESS, NOTICE_SENT, ROUTE_PACE, SCOPE, SERVICE_NOTE

MOVER = "eventsync state migrate"
"""The name by which whoever is kept out meanwhile hears of it."""
_OF_NO_FEED = frozenset(table.name for table in (LEASE, MEDIA, MEDIA_ADDRESS, NOTICE_SENT, ROUTE_PACE, SERVICE_NOTE))
"""What is learned anew by itself, and is written by commands that hold no feed; and the leases, which are ours meanwhile."""
_RENEWED_EVERY = timedelta(seconds=LEASE_TTL_S / 6)


def migrate(source: Engine, target: Engine, now: Callable[[], datetime], expect: Tell, tell: Tell) -> Carried:
    """Copy all of one state DB into an empty one, in one transaction there, and compare the two. The original stays as it is.

    Every feed is held meanwhile. What was copied is read back, and the original is read again: was it changed meanwhile,
    nothing is kept. `expect` hears how many rows will be told of, `tell` how many more are.

    Raises:
        HeldByAnotherError: a run is at work.
        ConfigError: the target is not empty.
        UnlikeError: the original was changed meanwhile, or the copy is not like it.
        SyncError: either of them cannot be read or written.
    """
    with _held(source, now) as leases, writing(target) as connection:
        waker = _Waker(leases, connection, now, tell)
        with reading(source) as origin:
            expect(count_rows(origin) * 3)  # read and written, read back, and looked at once more
            sums = put(connection, parts_of(origin), waker.tell)
        tables = [table for table in TABLES if table.name not in _OF_NO_FEED]
        with reading(source) as origin:
            compare(sums, sums_of(origin, tables, waker.tell))
    return Carried({name: one.rows for name, one in sums.items()})


@contextmanager
def _held(engine: Engine, now: Callable[[], datetime]) -> Iterator[list[Lease]]:
    """Hold every feed for the length of the block, as a run would."""
    with reading(engine) as connection:
        scopes = connection.execute(select(SCOPE.c.destination, SCOPE.c.feed).order_by(SCOPE.c.id)).all()
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Ledger(engine, scope.destination, FeedName(scope.feed), namespace="", now=now).acquire_lease(MOVER)
            )
            for scope in scopes
        ]


class _Waker:
    """Keeps the leases at the original, and the transaction at the copy, from being given up as silent."""

    def __init__(self, leases: list[Lease], connection: Connection, now: Callable[[], datetime], tell: Tell) -> None:
        self._leases, self._connection, self._now, self._tell = leases, connection, now, tell
        self._last = now()

    def tell(self, rows: int) -> None:
        self._tell(rows)
        if abs(self._now() - self._last) >= _RENEWED_EVERY:
            self._last = self._now()
            self._connection.execute(select(literal(1)))
            for lease in self._leases:
                lease.renew()
