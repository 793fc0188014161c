"""Backfills: windows of a feed's past that a person asked for, and how far each of their slices has come.

Progress only: that each row is sent once is ensured by the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, Engine, func, insert, select, update

from mappings.row_key import FeedName
from state.database import reading, writing
from state.tables import BACKFILL, BACKFILL_SLICE


class BackfillState(StrEnum):
    """`open`: slices are left; `done`: none is; `cancelled`: a person wants no more of it."""

    OPEN = "open"
    DONE = "done"
    CANCELLED = "cancelled"


class SliceState(StrEnum):
    """`left`: not gone through yet, or not to its end; `working`: a run is at it, or was killed; `done`: it owes nothing."""

    LEFT = "left"
    WORKING = "working"
    DONE = "done"
    CANCELLED = "cancelled"


_STILL = (SliceState.LEFT, SliceState.WORKING)
"""Slices that are still to be gone through: a run may be at one, or was killed there."""
_IS_LEFT = BACKFILL_SLICE.c.state.in_([state.value for state in _STILL])


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """How a run left a slice. `counts`: what became of its rows, by name."""

    state: SliceState
    run_id: str
    exit_code: int
    message: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """A slice: its ISO days, and what the last run made of it; `exit_code` is None before the first."""

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
    """A backfill: its `plan` as the caller wrote it, its slices in their order."""

    backfill_id: str
    plan: str
    state: BackfillState
    created_at: datetime
    slices: tuple[SliceRecord, ...]

    @property
    def left(self) -> tuple[SliceRecord, ...]:
        """The slices that are still to be gone through; one that a killed run was at is among them."""
        return tuple(one for one in self.slices if one.state in _STILL)

    @property
    def is_at_work(self) -> bool:
        """Whether a run is at one of the slices, or was killed there."""
        return any(one.state is SliceState.WORKING for one in self.slices)


class Backfills:
    """The backfills of one feed at one destination."""

    def __init__(self, engine: Engine, destination: str, feed: FeedName, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._is_of_feed = (BACKFILL.c.destination == destination, BACKFILL.c.feed == feed)
        self._names = {"destination": destination, "feed": feed}
        self._now = now

    def open(self, backfill_id: str, plan: str, days: Sequence[tuple[str, str]]) -> BackfillRecord:
        """Write a new backfill down, with a slice for each pair of ISO days."""
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
        """Return a backfill of ours as it stands."""
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
        """Note that a run begins with a slice; return False where there is nothing left to do.

        `claim` identifies this attempt: that of a killed run stays, until the next one takes its place.
        """
        with writing(self._engine) as connection:
            if not _is_open(connection, backfill_id):
                return False
            begun = {"state": SliceState.WORKING.value, "claim": claim, "started_at": self._now(), "finished_at": None}
            which = (*_of(backfill_id, number), _IS_LEFT)
            return connection.execute(update(BACKFILL_SLICE).where(*which).values(begun)).rowcount == 1

    def end_slice(self, backfill_id: str, number: int, claim: str, end: SliceEnd) -> bool:
        """Write down how a slice was left, and the backfill as done with the last of them; False where another has it by now."""
        ended = {
            "state": end.state.value,
            "run_id": end.run_id,
            "exit_code": end.exit_code,
            "message": end.message,
            "counts": json.dumps(dict(end.counts)),
            "finished_at": self._now(),
        }
        working = (BACKFILL_SLICE.c.state == SliceState.WORKING.value, BACKFILL_SLICE.c.claim == claim)
        with writing(self._engine) as connection:
            _is_open(connection, backfill_id)
            count = connection.execute(update(BACKFILL_SLICE).where(*_of(backfill_id, number), *working).values(ended)).rowcount
            left = select(BACKFILL_SLICE.c.number).where(
                BACKFILL_SLICE.c.backfill_id == backfill_id, BACKFILL_SLICE.c.state != SliceState.DONE.value
            )
            if connection.execute(left.limit(1)).first() is None:
                _set(connection, backfill_id, BackfillState.DONE, self._now())
            return count == 1

    def cancel(self, backfill_id: str) -> int:
        """Want no more of a backfill; return how many slices are left undone. What is staged, or sent, stays so."""
        with writing(self._engine) as connection:
            if not _is_open(connection, backfill_id):
                return 0
            slices = update(BACKFILL_SLICE).where(BACKFILL_SLICE.c.backfill_id == backfill_id, _IS_LEFT)
            count = connection.execute(slices.values(state=SliceState.CANCELLED.value)).rowcount
            _set(connection, backfill_id, BackfillState.CANCELLED, self._now())
            return count


def count_slices_left(connection: Connection, destination: str, feed: FeedName) -> int:
    """Count the slices of a feed's open backfills that are still to be gone through."""
    ours = (BACKFILL.c.destination == destination, BACKFILL.c.feed == feed, BACKFILL.c.state == BackfillState.OPEN.value)
    slices = select(func.count()).select_from(BACKFILL_SLICE.join(BACKFILL, BACKFILL.c.id == BACKFILL_SLICE.c.backfill_id))
    return connection.execute(slices.where(*ours, _IS_LEFT)).scalar_one()


def _of(backfill_id: str, number: int) -> tuple[ColumnElement[bool], ...]:
    return BACKFILL_SLICE.c.backfill_id == backfill_id, BACKFILL_SLICE.c.number == number


def _is_open(connection: Connection, backfill_id: str) -> bool:
    """Whether it is open; locked, so that no other process cancels or ends it before the transaction does."""
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
