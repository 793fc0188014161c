"""Taking out what only tells of the past: rows that people once had to see, accounts of old runs, old answers.

No entry of the ledger is ever taken out, nor anything else that keeps a row from being sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, and_, delete, func, select, update

from state.accounts import READS_THAT_TELL
from state.database import reading, writing
from state.tables import EARLIER, ENTRY, LEASE, PROBLEM, RUN, SCOPE
from state.words import EntryState

_PAGE = 1_000

Take = Callable[[Connection, int, datetime, int], tuple[int, int]]
"""Takes a page out of a feed, beginning after an id; says how many, and after which id the next page begins."""

_YOUNGEST = (RUN.c.started_at.desc(), RUN.c.id)


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many were taken out, or would be. `problems`: rows that were rejected, held or warned of, with their raw cells;
    `runs`: accounts of runs; `answers`: of rows that are delivered.

    `standing_problems` and `telling_runs` are as old and stay: those on a feed's present list, and those that a feed's next
    run, its brakes or a person may still ask about.
    """

    problems: int = 0
    runs: int = 0
    answers: int = 0
    standing_problems: int = 0
    telling_runs: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        """Return the sums."""
        return Pruned(
            self.problems + other.problems,
            self.runs + other.runs,
            self.answers + other.answers,
            self.standing_problems + other.standing_problems,
            self.telling_runs + other.telling_runs,
        )


def prune(engine: Engine, before: datetime, tell: Callable[[int], None], *, is_dry: bool = False) -> Pruned:
    """Take out what was last seen, begun or answered before an instant; `is_dry` only counts it.

    Runs may be at work meanwhile: it goes page by page, each in one transaction beside which no stage of that feed can write.
    `tell` hears how many more are done. Raises `StateUnavailableError` or `StateBusyError`; what is out by then stays out.
    """
    with reading(engine) as connection:
        scopes = connection.execute(select(SCOPE.c.id).order_by(SCOPE.c.id)).scalars().all()
        found = sum((_count(connection, scope_id, before) for scope_id in scopes), Pruned())
    if is_dry:
        return found
    done = sum((_prune(engine, scope_id, before, tell) for scope_id in scopes), Pruned())
    return Pruned(done.problems, done.runs, done.answers, found.standing_problems, found.telling_runs)


def _count(connection: Connection, scope_id: int, before: datetime) -> Pruned:
    lists, kept = _runs_that_list(connection, scope_id), _runs_that_tell(connection, scope_id)
    problems, runs = _old_problems(scope_id, before), _old_runs(scope_id, before)
    counts = (
        select(func.count()).select_from(PROBLEM).where(problems, PROBLEM.c.listed_run.not_in(lists)),
        select(func.count()).select_from(RUN).where(runs, RUN.c.id.not_in(kept)),
        select(func.count()).select_from(ENTRY).where(_old_answers(scope_id, before)),
        select(func.count()).select_from(EARLIER).where(_old_earlier(scope_id, before)),
        select(func.count()).select_from(PROBLEM).where(problems, PROBLEM.c.listed_run.in_(lists)),
        select(func.count()).select_from(RUN).where(runs, RUN.c.id.in_(kept)),
    )
    gone, went, answers, earlier, *stay = (connection.execute(count).scalar_one() for count in counts)
    return Pruned(gone, went, answers + earlier, *stay)


def _prune(engine: Engine, scope_id: int, before: datetime, tell: Callable[[int], None]) -> Pruned:
    def in_pages(take: Take) -> int:
        done = after = 0
        while True:
            with writing(engine) as connection:
                _be_alone(connection, scope_id)
                count, after = take(connection, scope_id, before, after)
            if not count:
                return done
            done += count
            tell(count)

    return Pruned(in_pages(_take_problems), in_pages(_take_runs), in_pages(_take_answers) + in_pages(_take_earlier_answers))


def _be_alone(connection: Connection, scope_id: int) -> None:
    """Every transaction of a stage and of a drain writes the feed's lease: whoever has it locked is alone with the feed."""
    connection.execute(select(LEASE.c.token).where(LEASE.c.scope_id == scope_id).with_for_update()).all()


def _take_problems(connection: Connection, scope_id: int, before: datetime, _after: int) -> tuple[int, int]:
    is_unlisted = PROBLEM.c.listed_run.not_in(_runs_that_list(connection, scope_id))
    page = select(PROBLEM.c.id).where(_old_problems(scope_id, before), is_unlisted).limit(_PAGE)
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


def _emptied(connection: Connection, table: Table, key: ColumnElement[int], which: ColumnElement[bool]) -> tuple[int, int]:
    """Empty a page of answers; return how many, and where the next page begins."""
    page = connection.execute(select(key).where(which).order_by(key).limit(_PAGE)).scalars().all()
    if not page:
        return 0, 0
    return connection.execute(update(table).where(key.between(page[0], page[-1]), which).values(answer=None)).rowcount, page[-1]


def _old_problems(scope_id: int, before: datetime) -> ColumnElement[bool]:
    return and_(PROBLEM.c.scope_id == scope_id, PROBLEM.c.seen_at < before)


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
