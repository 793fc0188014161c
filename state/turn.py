"""One run's turn at one feed: what `stage` and `outbox` share. Each of its transactions first shows the lease's token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, update

from mappings.row_key import FeedName, IdempotencyKey, RowKey, idempotency_key
from state.database import writing
from state.lease import Keeping, show_token
from state.tables import RUN
from state.words import Phase

_LONG = 0.25
"""A transaction that takes so much of the lease's time is a long one."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Who acts (`run_id`, `token` of the lease), on what (`scope_id` is `feed` at one destination), and by which clock."""

    engine: Engine
    scope_id: int
    feed: FeedName
    namespace: str
    run_id: str
    token: int
    now: Callable[[], datetime]
    keeping: Keeping

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One durable transaction that also renews the lease. Raises `LeaseLostError` if another run has the feed.

        A long one renews it once more at its end: nobody heard of us meanwhile, and who waits for us would come in.
        """
        with writing(self.engine) as connection:
            began_s = self.keeping.seconds()
            show_token(connection, self.scope_id, self.token, self.keeping)
            yield connection
            if self.keeping.seconds() - began_s > self.keeping.ttl_s * _LONG:
                show_token(connection, self.scope_id, self.token, self.keeping)

    def key(self, row_key: RowKey, revision: int = 0) -> IdempotencyKey:
        """Return the row's idempotency key: a pure function, so that a lost ledger leads to the same keys again."""
        return idempotency_key(self.namespace, self.feed, row_key, revision=revision)

    def take_over(self, connection: Connection) -> None:
        """Close the records of runs that ended without a word: a record is open only under the lease, which this run holds."""
        told = {
            "finished_at": self.now(),
            "phase": Phase.FINISHED.value,
            "outcome": "lost",
            "message": f"the process ended without a word; run {self.run_id} carries on",
        }
        others = (RUN.c.scope_id == self.scope_id, RUN.c.id != self.run_id)
        connection.execute(update(RUN).where(*others, RUN.c.finished_at.is_(None)).values(**told))

    def note(self, connection: Connection, **columns: object) -> None:
        """Write how far the run has come."""
        connection.execute(update(RUN).where(RUN.c.scope_id == self.scope_id, RUN.c.id == self.run_id).values(**columns))
