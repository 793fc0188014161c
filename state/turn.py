"""One run's turn at one feed: what `stage` and `outbox` share. Each of its transactions first shows the lease's token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, update

from mappings.identity import idempotency_key
from mappings.vocabulary import FeedName, IdempotencyKey, RowKey
from state.database import writing
from state.lease import show_token
from state.tables import RUN
from state.words import Phase


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
    ttl_s: float

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One durable transaction that also renews the lease. Raises `LeaseLostError` if another run has the feed."""
        with writing(self.engine) as connection:
            show_token(connection, self.scope_id, self.token, self.now(), self.ttl_s)
            yield connection

    def key(self, row_key: RowKey, revision: int = 0) -> IdempotencyKey:
        """Return the row's idempotency key: a pure function, so that a lost ledger leads to the same keys again."""
        return idempotency_key(self.namespace, self.feed, row_key, revision=revision)

    def take_over(self, connection: Connection) -> None:
        """Close the records of runs that ended without a word: this run holds the lease, so they cannot be alive."""
        is_dead = (RUN.c.finished_at.is_(None), RUN.c.phase.in_((Phase.STAGING.value, Phase.PUBLISHING.value)))
        told = {
            "finished_at": self.now(),
            "phase": Phase.FINISHED.value,
            "outcome": "lost",
            "message": f"the process ended without a word; run {self.run_id} carries on",
        }
        others = (RUN.c.scope_id == self.scope_id, RUN.c.id != self.run_id)
        connection.execute(update(RUN).where(*others, *is_dead).values(**told))

    def note(self, connection: Connection, **columns: object) -> None:
        """Write how far the run has come."""
        connection.execute(update(RUN).where(RUN.c.scope_id == self.scope_id, RUN.c.id == self.run_id).values(**columns))
