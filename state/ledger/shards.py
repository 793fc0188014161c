"""The shards of a run: shares of its rows that several workers publish, each under a lease and with a record of its own.

The run's record stays open until every shard has ended. Whoever sees that first closes it, with the sum of the accounts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, insert, null, select, update

from state.enums import EntryState, Phase
from state.errors import LeaseLostError
from state.ledger.accounts import PublishAccount, dump, load_publish, sum_of
from state.ledger.lease import FencedTransaction, LeaseClock, Shard, end_if_free, server_now
from state.ledger.standing import Standing, dump_standing, read_standing
from state.tables import ENTRY, LEASE, RUN, SCOPE, SHARD_RUN

LEAST_ROWS = 100
"""The fewest rows of a shard: fewer are sent before another worker has started."""
LOST = "lost"
"""The outcome of a run or shard whose process was killed."""


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """The record of one shard of a run. `started_at` None: it waits for its worker; `publish` None: it has not ended in order."""

    shard: int
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str | None
    exit_code: int | None
    message: str
    publish: PublishAccount | None
    pace: Mapping[str, float]
    dagster_run_id: str | None


class End(NamedTuple):
    """The end of a run or shard: its outcome in one word, a message for people, and its speed in numbers."""

    outcome: str
    exit_code: int
    message: str
    pace: Mapping[str, float]

    @property
    def columns(self) -> dict[str, object]:
        """The columns of the record."""
        return {
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "message": self.message,
            "pace": json.dumps(dict(self.pace)),
        }


@dataclass(frozen=True, slots=True)
class Closing:
    """How a run of several shards ends: its outcome, from theirs and from what waits for a person.

    `key_memory_s`: how long the service remembers keys, in seconds. `is_left`: no worker will begin any more; `ends`: the ends of
    shards whose workers could not record them, by number.
    """

    judge: Callable[[Sequence[ShardRecord], Standing], End]
    key_memory_s: float
    is_left: bool = field(default=False, kw_only=True)
    ends: Mapping[int, End] = field(default_factory=dict, kw_only=True)


def plan_shards(run: FencedTransaction, most: int) -> int:
    """Divide what the run owes into at most `most` shards of at least `LEAST_ROWS` rows; return how many, 1 for no division.

    The run after one that was stopped is not divided, because it sends one row first.
    """
    with run.transaction() as connection:
        take_over(connection, run)
        is_owed = (ENTRY.c.scope_id == run.scope_id, ENTRY.c.state == EntryState.PENDING.value)
        owed = connection.execute(select(func.count()).select_from(ENTRY).where(*is_owed)).scalar_one()
        stopped_by = connection.execute(select(SCOPE.c.stopped_by).where(SCOPE.c.id == run.scope_id)).scalar_one()
        count = 1 if stopped_by else max(min(most, owed // LEAST_ROWS), 1)
        key = {"scope_id": run.scope_id, "run_id": run.run_id}
        connection.execute(delete(SHARD_RUN).where(*(SHARD_RUN.c[name] == value for name, value in key.items())))
        if count > 1:
            connection.execute(insert(SHARD_RUN), [{**key, "shard": number} for number in range(1, count + 1)])
        run.note(connection, shards=count, phase=Phase.PUBLISHING.value)
    return count


def check_open(connection: Connection, *, scope_id: int, run_id: str, shard: Shard) -> None:
    """Raise `LeaseLostError` if the run of a shard has ended, or a newer one continues."""
    is_open = (*_is_run(scope_id, run_id), RUN.c.finished_at.is_(None), RUN.c.shards == shard.of)
    if connection.execute(select(RUN.c.id).where(*is_open)).first() is None:
        message = f"run {run_id} has ended, or a newer run continues: its {shard} sends nothing"
        raise LeaseLostError(message, hint="nothing is lost: a newer run sends what is pending")


def begin_shard(run: FencedTransaction, dagster_run_id: str | None) -> None:
    """Record that the worker of a shard begins. Raises `LeaseLostError` if the shard is done, or the run has ended."""
    anew = {"finished_at": None, "outcome": None, "exit_code": None, "message": "", "publish_account": None}
    with run.transaction() as connection:
        _lock(connection, run.scope_id, run.run_id)  # it may be closed in this moment
        check_open(connection, scope_id=run.scope_id, run_id=run.run_id, shard=run.shard)
        before = next(one for one in read_shards(connection, run.scope_id, run.run_id) if one.shard == run.shard.number)
        if before.exit_code == 0:  # its account stays
            raise LeaseLostError(f"{run.shard} is done: run {run.run_id} has no rows left in it", hint="nothing is to be done")
        _write(connection, run, **anew, started_at=run.now(), dagster_run_id=dagster_run_id)


def finish_shard(run: FencedTransaction, end: End, account: PublishAccount | None, closing: Closing) -> bool:
    """Record the end of a shard; if it is the last one, close the run's record. Return whether it did.

    Raises `LeaseLostError` if the shard is another worker's by now.
    """
    columns = {**end.columns, "publish_account": account and dump(account)}
    with run.transaction() as connection:
        _lock(connection, run.scope_id, run.run_id)
        _write(connection, run, **columns, finished_at=run.now())
        return close_if_over(connection, run.scope_id, run.run_id, run.now(), run.lease_clock, closing)


def close_if_over(connection: Connection, scope_id: int, run_id: str, now: datetime, clock: LeaseClock, closing: Closing) -> bool:
    """Close the record of a run if none of its shards is at work or waits for its worker. Return whether it was closed now.

    A shard whose worker has died is lost: its rows stay pending.
    """
    if not _lock(connection, scope_id, run_id):
        return False
    unfinished = [one for one in read_shards(connection, scope_id, run_id) if one.finished_at is None]
    if any(one.started_at is None for one in unfinished) and not closing.is_left:
        return False
    at = server_now() if clock.is_servers else null()
    begun = [one.shard for one in unfinished if one.started_at is not None]
    of_begun = (LEASE.c.scope_id == scope_id, LEASE.c.shard.in_(begun))
    held = select(LEASE, at.label("server_now")).where(*of_begun).with_for_update(skip_locked=True)
    leases = connection.execute(held).all()  # a worker that holds the lock is at work, and may wait for ours
    if len(leases) < len(begun) or not all(end_if_free(connection, lease, clock) for lease in leases):
        return False
    _give_up(connection, scope_id, run_id, now, closing.ends)
    shards = read_shards(connection, scope_id, run_id)
    standing = read_standing(connection, scope_id, now, closing.key_memory_s)
    end, account = closing.judge(shards, standing), sum_of(one.publish for one in shards if one.publish)
    columns = {**end.columns, "finished_at": now, "phase": Phase.FINISHED.value, "standing": dump_standing(standing)}
    if account:
        account.check()
        columns["publish_account"] = dump(account)
    connection.execute(update(RUN).where(*_is_run(scope_id, run_id)).values(**columns))
    return True


def take_over(connection: Connection, run: FencedTransaction) -> None:
    """Close the records of killed runs: an open record needs a lease, and this run holds that of the whole feed."""
    others = (RUN.c.scope_id == run.scope_id, RUN.c.id != run.run_id, RUN.c.finished_at.is_(None))
    for run_id in connection.execute(select(RUN.c.id).where(*others, RUN.c.shards > 1)).scalars().all():
        _give_up(connection, run.scope_id, run_id, run.now(), {})
        shards = read_shards(connection, run.scope_id, run_id)
        if account := sum_of(one.publish for one in shards if one.publish):
            connection.execute(update(RUN).where(*_is_run(run.scope_id, run_id)).values(publish_account=dump(account)))
    columns = {"finished_at": run.now(), "phase": Phase.FINISHED.value, "outcome": LOST}
    message = f"the process was killed; run {run.run_id} continues"
    connection.execute(update(RUN).where(*others).values(**columns, message=message))


def read_shards(connection: Connection, scope_id: int, run_id: str) -> tuple[ShardRecord, ...]:
    """Return the shards of a run, in order; none for a run of one worker."""
    names = ("shard", "started_at", "finished_at", "outcome", "exit_code", "message", "dagster_run_id")
    of_run = (SHARD_RUN.c.scope_id == scope_id, SHARD_RUN.c.run_id == run_id)
    return tuple(
        ShardRecord(
            **{name: getattr(row, name) for name in names},
            publish=row.publish_account and load_publish(row.publish_account),
            pace=json.loads(row.pace),
        )
        for row in connection.execute(select(SHARD_RUN).where(*of_run).order_by(SHARD_RUN.c.shard))
    )


def _lock(connection: Connection, scope_id: int, run_id: str) -> bool:
    """Lock a run's record until the transaction ends; return whether it is open."""
    record = select(RUN.c.finished_at).where(*_is_run(scope_id, run_id)).with_for_update()
    found = connection.execute(record).first()
    return found is not None and found.finished_at is None


def _give_up(connection: Connection, scope_id: int, run_id: str, now: datetime, ends: Mapping[int, End]) -> None:
    """Record the ends of unfinished shards of a run; those without one are lost."""
    unfinished = (SHARD_RUN.c.scope_id == scope_id, SHARD_RUN.c.run_id == run_id, SHARD_RUN.c.finished_at.is_(None))
    for shard, end in ends.items():
        own = update(SHARD_RUN).where(*unfinished, SHARD_RUN.c.shard == shard)
        connection.execute(own.values(**end.columns, finished_at=now))
    lost = End(LOST, 1, "ended early: its rows stay pending", {})
    connection.execute(update(SHARD_RUN).where(*unfinished).values(**lost.columns, finished_at=now))


def _write(connection: Connection, run: FencedTransaction, **columns: object) -> None:
    own = (SHARD_RUN.c.scope_id == run.scope_id, SHARD_RUN.c.run_id == run.run_id, SHARD_RUN.c.shard == run.shard.number)
    connection.execute(update(SHARD_RUN).where(*own).values(**columns))


def _is_run(scope_id: int, run_id: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return RUN.c.scope_id == scope_id, RUN.c.id == run_id
