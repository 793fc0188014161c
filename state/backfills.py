"""Backfills: requested windows of a feed's past, and the progress of each of their slices.

This is progress only; the ledger ensures that each row is sent once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, Engine, func, insert, select, update

from mappings.row_key import FeedName
from state.database import reading, writing
from state.tables import BACKFILL, BACKFILL_SLICE


class BackfillState(StrEnum):
    """`open`: slices are left; `done`: no slice is left; `cancelled`: a person cancelled the backfill."""

    OPEN = "open"
    DONE = "done"
    CANCELLED = "cancelled"


class SliceState(StrEnum):
    """`left`: not run yet, or not to its end; `working`: a run works on it, or was killed; `done`: all its rows are sent."""

    LEFT = "left"
    WORKING = "working"
    DONE = "done"
    CANCELLED = "cancelled"


_STILL = (SliceState.LEFT, SliceState.WORKING)
"""The states of unfinished slices; a run may work on one, or was killed there."""
_IS_LEFT = BACKFILL_SLICE.c.state.in_([state.value for state in _STILL])


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """The result of a slice's run. `counts`: numbers of rows by outcome."""

    state: SliceState
    run_id: str
    exit_code: int
    message: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """A slice: its ISO days, and the result of its last run; `exit_code` is None before the first."""

    number: int
    first: str
    last: str
    state: SliceState
    run_id: str
    exit_code: int | None
    message: str
    counts: Mapping[str, int]
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """A backfill: the caller's `plan`, and its slices in order."""

    backfill_id: str
    plan: str
    state: BackfillState
    created_at: datetime
    slices: tuple[SliceRecord, ...]

    @property
    def left(self) -> tuple[SliceRecord, ...]:
        """The unfinished slices, including one whose run was killed."""
        return tuple(one for one in self.slices if one.state in _STILL)

    @property
    def is_at_work(self) -> bool:
        """Whether a run works on one of the slices, or was killed there."""
        return any(one.state is SliceState.WORKING for one in self.slices)


class Backfills:
    """The backfills of one feed at one destination."""

    def __init__(self, engine: Engine, destination: str, feed: FeedName, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._is_of_feed = (BACKFILL.c.destination == destination, BACKFILL.c.feed == feed)
        self._names = {"destination": destination, "feed": feed}
        self._now = now

    def open(self, backfill_id: str, plan: str, days: Sequence[tuple[str, str]]) -> BackfillRecord:
        """Record a new backfill, with a slice for each pair of ISO days."""
        at = self._now()
        head = {"id": backfill_id, **self._names, "plan": plan, "state": BackfillState.OPEN.value}
        blank = {"state": SliceState.LEFT.value, "claim": "", "run_id": "", "message": "", "counts": "{}"}
        rows = [
            {"backfill_id": backfill_id, "number": number, "first_day": first, "last_day": last, **blank}
            for number, (first, last) in enumerate(days, start=1)
        ]
        with writing(self._engine) as connection:
            connection.execute(insert(BACKFILL), {**head, "created_at": at, "updated_at": at})
            connection.execute(insert(BACKFILL_SLICE), rows)
        return self.one(backfill_id)

    def one(self, backfill_id: str) -> BackfillRecord:
        """Return the current state of one of the feed's backfills."""
        (found,) = self._found(BACKFILL.c.id == backfill_id)
        return found

    def all(self) -> tuple[BackfillRecord, ...]:
        """Return the feed's backfills, the youngest first."""
        return self._found()

    def _found(self, *which: ColumnElement[bool]) -> tuple[BackfillRecord, ...]:
        heads = select(BACKFILL).where(*self._is_of_feed, *which).order_by(BACKFILL.c.created_at.desc(), BACKFILL.c.id.desc())
        with reading(self._engine) as connection:
            return tuple(
                BackfillRecord(head.id, head.plan, BackfillState(head.state), head.created_at, _slices(connection, head.id))
                for head in connection.execute(heads).all()
            )

    def begin_slice(self, backfill_id: str, number: int, claim: str) -> bool:
        """Record that a run starts a slice; return False if it is finished or cancelled.

        `claim` identifies this attempt; the claim of a killed run stays until the next run replaces it.
        """
        with writing(self._engine) as connection:
            if not _is_open(connection, backfill_id):
                return False
            begun = {"state": SliceState.WORKING.value, "claim": claim, "started_at": self._now(), "finished_at": None}
            which = (*_of(backfill_id, number), _IS_LEFT)
            return connection.execute(update(BACKFILL_SLICE).where(*which).values(begun)).rowcount == 1

    def end_slice(self, backfill_id: str, number: int, claim: str, end: SliceEnd) -> bool:
        """Record the result of a slice, and the backfill as done after the last one; return False if another run has taken the
        slice.
        """
        ended = {**asdict(end), "state": end.state.value, "counts": json.dumps(dict(end.counts)), "finished_at": self._now()}
        working = (BACKFILL_SLICE.c.state == SliceState.WORKING.value, BACKFILL_SLICE.c.claim == claim)
        with writing(self._engine) as connection:
            _is_open(connection, backfill_id)
            count = connection.execute(update(BACKFILL_SLICE).where(*_of(backfill_id, number), *working).values(ended)).rowcount
            is_left = BACKFILL_SLICE.c.backfill_id == backfill_id, BACKFILL_SLICE.c.state != SliceState.DONE.value
            if connection.execute(select(BACKFILL_SLICE.c.number).where(*is_left).limit(1)).first() is None:
                _set(connection, backfill_id, BackfillState.DONE, self._now())
            return count == 1

    def cancel(self, backfill_id: str) -> int:
        """Cancel a backfill; return the number of unfinished slices. Staged and sent rows stay as they are."""
        with writing(self._engine) as connection:
            if not _is_open(connection, backfill_id):
                return 0
            slices = update(BACKFILL_SLICE).where(BACKFILL_SLICE.c.backfill_id == backfill_id, _IS_LEFT)
            count = connection.execute(slices.values(state=SliceState.CANCELLED.value)).rowcount
            _set(connection, backfill_id, BackfillState.CANCELLED, self._now())
            return count


def count_slices_left(connection: Connection, destination: str, feed: FeedName) -> int:
    """Count the unfinished slices of a feed's open backfills."""
    ours = (BACKFILL.c.destination == destination, BACKFILL.c.feed == feed, BACKFILL.c.state == BackfillState.OPEN.value)
    slices = select(func.count()).select_from(BACKFILL_SLICE.join(BACKFILL, BACKFILL.c.id == BACKFILL_SLICE.c.backfill_id))
    return connection.execute(slices.where(*ours, _IS_LEFT)).scalar_one()


def _of(backfill_id: str, number: int) -> tuple[ColumnElement[bool], ...]:
    return BACKFILL_SLICE.c.backfill_id == backfill_id, BACKFILL_SLICE.c.number == number


def _is_open(connection: Connection, backfill_id: str) -> bool:
    """Return whether the backfill is open; its row is locked, so that no other process cancels or ends it in this transaction."""
    state = connection.execute(select(BACKFILL.c.state).where(BACKFILL.c.id == backfill_id).with_for_update()).scalar()
    return state == BackfillState.OPEN.value


def _set(connection: Connection, backfill_id: str, state: BackfillState, at: datetime) -> None:
    connection.execute(update(BACKFILL).where(BACKFILL.c.id == backfill_id).values(state=state.value, updated_at=at))


def _slices(connection: Connection, backfill_id: str) -> tuple[SliceRecord, ...]:
    slices = select(BACKFILL_SLICE).where(BACKFILL_SLICE.c.backfill_id == backfill_id).order_by(BACKFILL_SLICE.c.number)
    return tuple(
        SliceRecord(
            *(row.number, row.first_day, row.last_day, SliceState(row.state), row.run_id, row.exit_code, row.message),
            *(json.loads(row.counts), row.started_at, row.finished_at),
        )
        for row in connection.execute(slices)
    )
