"""Taking out what only tells of the past: rows that people once had to see, accounts of old runs, old answers, ended backfills.

No entry of the ledger is ever taken out, nor anything else that keeps a row from being sent twice.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, and_, delete, exists, func, or_, select, update

from state.backfills import BackfillState
from state.database import reading, writing
from state.enums import EntryState, ProblemKind
from state.ledger.accounts import READS_THAT_TELL
from state.tables import BACKFILL, BACKFILL_SLICE, EARLIER, ENTRY, LEASE, NOTICE_SENT, PROBLEM, RUN, SCOPE

_PAGE = 1_000
_PAGE_OF_BACKFILLS = 10
"""They may have thousands of slices each."""

Take = Callable[[Connection, int, datetime, int], tuple[int, int]]
"""Takes a page out of a feed, beginning after an id; says how many, and after which id the next page begins."""

_IS_ENDED = BACKFILL.c.state != BackfillState.OPEN.value
_YOUNGEST = (RUN.c.started_at.desc(), RUN.c.id)


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many were taken out, or would be. `problems`: rows that were rejected, held or warned of, with their raw cells;
    `runs`: accounts of runs; `answers`: of rows that are delivered; `backfills`: with their slices, done or cancelled;
    `notices`: that something is over, which did not reach their recipients in all that time.

    `standing_problems`, `telling_runs` and `open_backfills` are as old and stay: those on a feed's present list, those that a
    feed's next run, its brakes or a person may still ask about, and those of which slices are left.
    """

    problems: int = 0
    runs: int = 0
    answers: int = 0
    backfills: int = 0
    notices: int = 0
    standing_problems: int = 0
    telling_runs: int = 0
    open_backfills: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        """Return the sums."""
        return Pruned(*map(operator.add, astuple(self), astuple(other)))


def prune(engine: Engine, before: datetime, tell: Callable[[int], None], *, is_dry: bool = False) -> Pruned:
    """Take out what was last seen, begun, answered or ended before an instant; `is_dry` only counts it.

    Runs may be at work meanwhile: it goes page by page, each in one transaction beside which no stage of that feed can write.
    `tell` hears how many more are done. Raises `StateUnavailableError` or `StateBusyError`; what is out by then stays out.
    """
    with reading(engine) as connection:
        scopes = connection.execute(select(SCOPE.c.id).order_by(SCOPE.c.id)).scalars().all()
        found = sum((_count(connection, scope_id, before) for scope_id in scopes), _count_ended(connection, before))
    if is_dry:
        return found
    done = sum((_prune(engine, scope_id, before, tell) for scope_id in scopes), _prune_ended(engine, before, tell))
    return replace(
        done,
        standing_problems=found.standing_problems,
        telling_runs=found.telling_runs,
        open_backfills=found.open_backfills,
    )


def _count(connection: Connection, scope_id: int, before: datetime) -> Pruned:
    lists, kept = _runs_that_list(connection, scope_id), _runs_that_tell(connection, scope_id)
    problems, runs = _old_problems(scope_id, before), _old_runs(scope_id, before)
    counts = (
        select(func.count()).select_from(PROBLEM).where(problems, ~_is_listed(lists)),
        select(func.count()).select_from(RUN).where(runs, RUN.c.id.not_in(kept)),
        select(func.count()).select_from(ENTRY).where(_old_answers(scope_id, before)),
        select(func.count()).select_from(EARLIER).where(_old_earlier(scope_id, before)),
        select(func.count()).select_from(PROBLEM).where(problems, _is_listed(lists)),
        select(func.count()).select_from(RUN).where(runs, RUN.c.id.in_(kept)),
    )
    gone, went, answers, earlier, standing, telling = (connection.execute(count).scalar_one() for count in counts)
    return Pruned(gone, went, answers + earlier, standing_problems=standing, telling_runs=telling)


def _count_ended(connection: Connection, before: datetime) -> Pruned:
    counts = (
        select(func.count()).select_from(BACKFILL).where(_old_backfills(before), _IS_ENDED),
        select(func.count()).select_from(NOTICE_SENT).where(_old_notices(before)),
        select(func.count()).select_from(BACKFILL).where(_old_backfills(before), ~_IS_ENDED),
    )
    ended, over, still_open = (connection.execute(count).scalar_one() for count in counts)
    return Pruned(backfills=ended, notices=over, open_backfills=still_open)


def _prune(engine: Engine, scope_id: int, before: datetime, tell: Callable[[int], None]) -> Pruned:
    def of_feed(take: Take) -> int:
        def page(connection: Connection, after: int) -> tuple[int, int]:
            _be_alone(connection, scope_id)
            return take(connection, scope_id, before, after)

        return _in_pages(engine, page, tell)

    return Pruned(of_feed(_take_problems), of_feed(_take_runs), of_feed(_take_answers) + of_feed(_take_earlier_answers))


def _prune_ended(engine: Engine, before: datetime, tell: Callable[[int], None]) -> Pruned:
    """Take out what no run of any feed writes any more."""
    backfills = _in_pages(engine, lambda connection, _after: (_take_backfills(connection, before), 0), tell)
    with writing(engine) as connection:
        notices = connection.execute(delete(NOTICE_SENT).where(_old_notices(before))).rowcount
    if notices:
        tell(notices)
    return Pruned(backfills=backfills, notices=notices)


def _in_pages(engine: Engine, page: Callable[[Connection, int], tuple[int, int]], tell: Callable[[int], None]) -> int:
    """Take out page by page, each in one transaction, until there is none; return how many that were."""
    done = after = 0
    while True:
        with writing(engine) as connection:
            count, after = page(connection, after)
        if not count:
            return done
        done += count
        tell(count)


def _be_alone(connection: Connection, scope_id: int) -> None:
    """Every transaction of a stage and of a drain writes the feed's lease: whoever has it locked is alone with the feed."""
    connection.execute(select(LEASE.c.token).where(LEASE.c.scope_id == scope_id).with_for_update()).all()


def _take_problems(connection: Connection, scope_id: int, before: datetime, _after: int) -> tuple[int, int]:
    is_listed = _is_listed(_runs_that_list(connection, scope_id))
    page = select(PROBLEM.c.id).where(_old_problems(scope_id, before), ~is_listed).limit(_PAGE)
    return connection.execute(delete(PROBLEM).where(PROBLEM.c.id.in_(page))).rowcount, 0


def _take_runs(connection: Connection, scope_id: int, before: datetime, _after: int) -> tuple[int, int]:
    is_silent = RUN.c.id.not_in(_runs_that_tell(connection, scope_id))
    page = select(RUN.c.id).where(_old_runs(scope_id, before), is_silent).limit(_PAGE)
    return connection.execute(delete(RUN).where(RUN.c.scope_id == scope_id, RUN.c.id.in_(page))).rowcount, 0


def _take_answers(connection: Connection, scope_id: int, before: datetime, after: int) -> tuple[int, int]:
    which = and_(_old_answers(scope_id, before), ENTRY.c.id > after)
    return _emptied(connection, ENTRY, ENTRY.c.id, which)


def _take_earlier_answers(connection: Connection, scope_id: int, before: datetime, after: int) -> tuple[int, int]:
    return _emptied(connection, EARLIER, EARLIER.c.entry_id, and_(_old_earlier(scope_id, before), EARLIER.c.entry_id > after))


def _take_backfills(connection: Connection, before: datetime) -> int:
    which = select(BACKFILL.c.id).where(_old_backfills(before), _IS_ENDED).order_by(BACKFILL.c.id).limit(_PAGE_OF_BACKFILLS)
    page = connection.execute(which.with_for_update()).scalars().all()
    connection.execute(delete(BACKFILL_SLICE).where(BACKFILL_SLICE.c.backfill_id.in_(page)))
    return connection.execute(delete(BACKFILL).where(BACKFILL.c.id.in_(page))).rowcount


def _emptied(connection: Connection, table: Table, key: ColumnElement[int], which: ColumnElement[bool]) -> tuple[int, int]:
    """Empty a page of answers; return how many, and where the next page begins."""
    page = connection.execute(select(key).where(which).order_by(key).limit(_PAGE)).scalars().all()
    if not page:
        return 0, 0
    return connection.execute(update(table).where(key.between(page[0], page[-1]), which).values(answer=None)).rowcount, page[-1]


def _old_problems(scope_id: int, before: datetime) -> ColumnElement[bool]:
    return and_(PROBLEM.c.scope_id == scope_id, PROBLEM.c.seen_at < before)


def _is_listed(lists: Sequence[str]) -> ColumnElement[bool]:
    """On a feed's present list. A warning is on it whatever run listed it, for as long as its entry is there."""
    has_entry = exists().where(ENTRY.c.scope_id == PROBLEM.c.scope_id, ENTRY.c.row_key == PROBLEM.c.row_key)
    is_warning = and_(PROBLEM.c.kind == ProblemKind.WARNING.value, PROBLEM.c.listed_run != "", has_entry)
    return or_(PROBLEM.c.listed_run.in_(lists), is_warning)


def _old_runs(scope_id: int, before: datetime) -> ColumnElement[bool]:
    return and_(RUN.c.scope_id == scope_id, RUN.c.started_at < before)


def _old_answers(scope_id: int, before: datetime) -> ColumnElement[bool]:
    """Of delivered rows alone, and of none that a person has decided about: that answer says what was decided, and by what."""
    is_delivered = and_(ENTRY.c.state == EntryState.DELIVERED.value, ENTRY.c.decision.is_(None))
    return and_(ENTRY.c.scope_id == scope_id, is_delivered, ENTRY.c.answer.is_not(None), ENTRY.c.updated_at < before)


def _old_earlier(scope_id: int, before: datetime) -> ColumnElement[bool]:
    """Of events that a later draft has taken the place of."""
    ours = select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id)
    return and_(EARLIER.c.entry_id.in_(ours), EARLIER.c.answer.is_not(None), EARLIER.c.replaced_at < before)


def _old_backfills(before: datetime) -> ColumnElement[bool]:
    return BACKFILL.c.updated_at < before


def _old_notices(before: datetime) -> ColumnElement[bool]:
    """Of causes that are over, and of none that is being told at this moment; what still stands is told, however late."""
    is_free = or_(NOTICE_SENT.c.claimed_until.is_(None), NOTICE_SENT.c.claimed_until < before)
    return and_(NOTICE_SENT.c.is_over, NOTICE_SENT.c.noted_at < before, is_free)


def _runs_that_list(connection: Connection, scope_id: int) -> Sequence[str]:
    """Name the runs whose problems are on the feed's list now, or will be: see `_listing`."""
    return _ids(connection, _listing(scope_id))


def _runs_that_tell(connection: Connection, scope_id: int) -> Sequence[str]:
    """Name the runs of a feed that are needed, however old: see `_listing` and `_telling`."""
    return _ids(connection, chain(_listing(scope_id), _telling(scope_id)))


def _ids(connection: Connection, queries: Iterable[Select[Any]]) -> Sequence[str]:
    """Return what they name; "" is no run, and no list."""
    return sorted({run_id for query in queries for run_id in connection.execute(query).scalars()} - {""})


def _listing(scope_id: int) -> Iterator[Select[Any]]:
    """Yield the last run that read, whose list is the feed's, the one that the gate stands by, and those that never ended."""
    runs = select(RUN.c.id).where(RUN.c.scope_id == scope_id)
    yield runs.where(RUN.c.read_account.is_not(None)).order_by(*_YOUNGEST).limit(1)
    yield select(SCOPE.c.gate_run).where(SCOPE.c.id == scope_id)
    yield runs.where(RUN.c.finished_at.is_(None))


def _telling(scope_id: int) -> Iterator[Select[Any]]:
    """Yield the last run, and the whole reads by which a brake, or a rehearsal of one, knows what is usual."""
    runs = select(RUN.c.id).where(RUN.c.scope_id == scope_id).order_by(*_YOUNGEST)
    whole = runs.where(RUN.c.is_whole, RUN.c.stage_report.is_not(None))
    yield runs.limit(1)
    yield whole.where(RUN.c.brakes == "[]").limit(READS_THAT_TELL)
    yield whole.limit(READS_THAT_TELL)
