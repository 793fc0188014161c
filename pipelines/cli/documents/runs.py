"""The documents about runs: `run`, its rehearsal, `runs`, `backfill`, `demo`. Feeds and rows have modules of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from pipelines.cli.run_report import RunReport
from pipelines.run.brakes import BrakeResult
from state.backfills import BackfillState, SliceState
from state.enums import Phase, Waiting
from state.ledger.accounts import PublishAccount, ReadAccount, RejectedRow, StageReport
from state.ledger.standing import OpenRows

From = Annotated[date, Field(serialization_alias="from")]
"""A first day, by the word that is Python's own."""


class Runs(TypedDict):
    """What was run, feed by feed; `exit_code` is the worst of theirs."""

    exit_code: int
    runs: list[RunReport]


class Sending(TypedDict):
    """A row that a run would send, with its idempotency key and its payload."""

    place: str
    row_key: str
    idempotency_key: str
    event: dict[str, Any]


class Rehearsal(TypedDict):
    """What a run of one feed would do. `first`: the first of the rows it would send; `waiting` counts what would wait for a
    person afterwards. `read` is null where the source could not be read, and what comes of reading is then left out.
    """

    feed: str
    outcome: str
    exit_code: int
    message: str
    hint: str
    read: ReadAccount | None
    skipped: NotRequired[Mapping[str, int]]
    warnings: NotRequired[int]
    vanished: NotRequired[int]
    past: NotRequired[int]
    withdrawn: NotRequired[int]
    rejections: NotRequired[list[RejectedRow]]
    brakes: NotRequired[list[BrakeResult]]
    would_send: int
    first: list[Sending]
    waiting: Mapping[str, int]


class Rehearsals(TypedDict):
    """What runs would do; nothing was written or sent."""

    rehearsals: list[Rehearsal]


class Run(TypedDict):
    """A run as the books have it. `read` and `publish` balance; what it did not come to is null, and so is the end of one that
    is at work. `pace`: how fast it sent, in numbers. `standing`: the entries that waited for a person when it ended, by the word
    of `rows --state`; null for runs of versions before 0.2.
    """

    feed: str
    destination: str
    run_id: str
    dagster_run_id: str | None
    started_at: datetime
    finished_at: datetime | None
    launched_by: str
    phase: Phase
    outcome: str | None
    exit_code: int | None
    message: str
    read: ReadAccount | None
    publish: PublishAccount | None
    brakes: list[str]
    notices: list[str]
    pace: Mapping[str, float]
    standing: Mapping[Waiting, OpenRows] | None


class PastRuns(TypedDict):
    """The latest runs, youngest first."""

    runs: list[Run]


class OneRun(Run):
    """One run in full: `stage` has what its read of the source came to."""

    stage: StageReport | None


class Slice(TypedDict):
    """One slice of a backfill: its days, how far it has come, and its run."""

    number: int
    from_: From
    to: date
    state: SliceState
    run_id: str
    exit_code: int | None
    message: str
    counts: Mapping[str, int]
    started_at: datetime | None
    finished_at: datetime | None


class Backfill(TypedDict):
    """One backfill: the days asked for, and its slices; so many are `left`."""

    id: str
    from_: From
    to: date
    by: str
    column: str
    slice: str
    status: Literal["draft"] | None
    state: BackfillState
    created_at: datetime
    left: int
    slices: list[Slice]


class RehearsedSlice(TypedDict):
    """What one slice would come to."""

    from_: From
    to: date
    outcome: str
    exit_code: int
    message: str
    hint: str
    read: ReadAccount | None
    would_send: int
    brakes: list[str]
    notices: list[str]


class BackfillAtWork(TypedDict):
    """What a backfill has come to so far: rows `read` and `sent` by this command, and where it stands as a whole."""

    exit_code: int
    feed: str
    read: int
    sent: int
    backfill: Backfill


class BackfillRehearsal(TypedDict):
    """What a backfill would do; nothing was written or sent."""

    feed: str
    by: str
    slice: str
    exit_code: int
    would_send: int
    slices: list[RehearsedSlice]


class BackfillList(TypedDict):
    """The backfills of a feed, youngest first."""

    feed: str
    backfills: list[Backfill]


class CancelledBackfill(TypedDict):
    """The backfill that was cancelled."""

    feed: str
    backfill: Backfill


class Demo(TypedDict):
    """Both rounds of the demo; in the second one nothing is sent."""

    first: list[RunReport]
    second: list[RunReport]
    sent_twice: int
