"""Deletes history older than some days: problems, accounts of runs, answers, ended backfills.

Ledger entries, and anything else that keeps a row from being sent twice, are never deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import product

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, exists, func, or_, select, update

from state.backfills import BackfillState
from state.database import reading, writing
from state.enums import Outcome, ProblemKind
from state.export import Advance
from state.ledger.accounts import READS_COMPARED
from state.ledger.entries import IS_UNDECIDED
from state.tables import BACKFILL, BACKFILL_SLICE, ENTRY, LEASE, PROBLEM, RUN, SCOPE

_PAGE = 1_000
_Clause = ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class PrunedCounts:
    """How many were deleted: raw cells of problem rows, accounts of runs, answers of delivered rows, backfills that are done or
    cancelled.
    """

    problems: int = 0
    runs: int = 0
    answers: int = 0
    backfills: int = 0


@dataclass(frozen=True, slots=True)
class KeptCounts:
    """How many old ones were kept: problems on a feed's current list, runs that its next run or its brakes need, backfills with
    slices left.
    """

    problems: int = 0
    runs: int = 0
    backfills: int = 0


def prune(engine: Engine, before: datetime, advance: Advance, *, is_dry: bool = False) -> tuple[PrunedCounts, KeptCounts]:
    """Delete what was last seen, started, answered or ended before a time; with `is_dry` only count it.

    Runs may work meanwhile: each page is one transaction, during which no stage of that feed can write. `advance` is called
    with the number of deleted records. Raises `StateUnavailableError` or `StateBusyError`; earlier pages stay deleted.
    """
    is_ended = and_(BACKFILL.c.updated_at < before, BACKFILL.c.state != BackfillState.OPEN.value)
    with reading(engine) as connection:
        scopes = connection.execute(select(SCOPE.c.id).order_by(SCOPE.c.id)).scalars().all()
        old = Counter[str](backfills=_count(connection, BACKFILL, is_ended))
        for scope_id, (name, table, _, which) in product(scopes, _HISTORY):
            old[name] += _count(connection, table, which(connection, scope_id, before))
        kept = KeptCounts(
            problems=_count(connection, PROBLEM, PROBLEM.c.seen_at < before) - old["problems"],
            runs=_count(connection, RUN, RUN.c.started_at < before) - old["runs"],
            backfills=_count(connection, BACKFILL, BACKFILL.c.updated_at < before) - old["backfills"],
        )
    if not is_dry:
        old.clear()
        for scope_id, (name, table, key, which) in product(scopes, _HISTORY):
            while count := _delete_page(engine, scope_id, table, key, partial(which, before=before)):
                old[name] += count
                advance(count)
        with writing(engine) as connection:
            ended = select(BACKFILL.c.id).where(is_ended)
            connection.execute(delete(BACKFILL_SLICE).where(BACKFILL_SLICE.c.backfill_id.in_(ended)))
            old["backfills"] = connection.execute(delete(BACKFILL).where(is_ended)).rowcount
    return PrunedCounts(**old), kept


def _count(connection: Connection, table: Table, which: _Clause) -> int:
    return connection.execute(select(func.count()).select_from(table).where(which)).scalar_one()


def _delete_page(
    engine: Engine, scope_id: int, table: Table, key: ColumnElement[int], old: Callable[[Connection, int], _Clause]
) -> int:
    """Delete a page of a feed's old records in one transaction, or empty old answers; return their number."""
    with writing(engine) as connection:
        # Every transaction of a stage and of a drain writes the feed's lease: its lock keeps them out.
        connection.execute(select(LEASE.c.token).where(LEASE.c.scope_id == scope_id).with_for_update()).all()
        which = old(connection, scope_id)
        emptied = update(table).values(answer=None) if table is ENTRY else delete(table)
        return connection.execute(emptied.where(which, key.in_(select(key).where(which).order_by(key).limit(_PAGE)))).rowcount


def _old_problems(connection: Connection, scope_id: int, before: datetime) -> _Clause:
    """Return the condition for old problems that are not on the feed's current list. A warning is listed as long as its entry
    exists.
    """
    lists = _needed_runs(connection, scope_id, for_brakes=False)
    has_entry = exists().where(ENTRY.c.scope_id == PROBLEM.c.scope_id, ENTRY.c.row_key == PROBLEM.c.row_key)
    is_warning = and_(PROBLEM.c.kind == ProblemKind.WARNING.value, PROBLEM.c.listed_run != "", has_entry)
    is_listed = or_(PROBLEM.c.listed_run.in_(lists), is_warning)
    return and_(PROBLEM.c.scope_id == scope_id, PROBLEM.c.seen_at < before, ~is_listed)


def _old_runs(connection: Connection, scope_id: int, before: datetime) -> _Clause:
    needed = _needed_runs(connection, scope_id, for_brakes=True)
    return and_(RUN.c.scope_id == scope_id, RUN.c.started_at < before, RUN.c.id.not_in(needed))


def _old_answers(_connection: Connection, scope_id: int, before: datetime) -> _Clause:
    """Return the condition for old answers of delivered rows without a decision; with one, the answer records it."""
    is_delivered = and_(ENTRY.c.scope_id == scope_id, ENTRY.c.outcome == Outcome.CREATED.value, IS_UNDECIDED)
    return and_(is_delivered, ENTRY.c.answer.is_not(None), ENTRY.c.changed_at < before)


def _needed_runs(connection: Connection, scope_id: int, *, for_brakes: bool) -> list[str]:
    """Return the runs of a feed that are kept whatever their age.

    These are the last run that read, whose list is the feed's; the one that set the gate; and those that never ended.
    `for_brakes`: also the last run, and the full reads that the brakes compare with.
    """
    runs = select(RUN.c.id).where(RUN.c.scope_id == scope_id)
    latest = runs.order_by(RUN.c.started_at.desc(), RUN.c.id)
    queries = [
        latest.where(RUN.c.read_account.is_not(None)).limit(1),
        select(SCOPE.c.gate_run).where(SCOPE.c.id == scope_id),
        runs.where(RUN.c.finished_at.is_(None)),
    ]
    if for_brakes:
        whole = latest.where(RUN.c.is_whole, RUN.c.stage_report.is_not(None)).limit(READS_COMPARED)
        queries += [latest.limit(1), whole.where(RUN.c.brakes == "[]"), whole]
    return sorted({run_id for query in queries for run_id in connection.execute(query).scalars()} - {""})


_HISTORY = (
    ("problems", PROBLEM, PROBLEM.c.id, _old_problems),
    ("runs", RUN, RUN.c.number, _old_runs),
    ("answers", ENTRY, ENTRY.c.id, _old_answers),
)
"""For each kind in `PrunedCounts`: the table, the key for paging, and the condition for old records."""
