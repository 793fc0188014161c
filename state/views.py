"""What the ledger shows to people, as plain records: feeds, runs, entries, problems. Finding them is `books`'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mappings.delivery import Answer
from mappings.vocabulary import FeedName, IdempotencyKey, Reason, RowKey
from state.accounts import PublishAccount, ReadAccount, StageReport
from state.gate import Gate
from state.words import DriftKind, EntryState, Phase, ProblemKind


@dataclass(frozen=True, slots=True)
class Book:
    """One feed at one destination."""

    destination: str
    feed: FeedName


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds a feed. `expires_at` in the past: it has fallen silent, and the next run takes over."""

    name: str
    host: str
    pid: int
    acquired_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as it was recorded; what it did not come to is None. `notices`: what it noticed of the service as a whole."""

    book: Book
    run_id: str
    started_at: datetime
    finished_at: datetime | None
    launched_by: str
    dagster_run_id: str | None
    phase: Phase
    outcome: str | None
    exit_code: int | None
    message: str
    read: ReadAccount | None
    stage_report: StageReport | None
    publish: PublishAccount | None
    brakes: tuple[str, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """Where one feed stands. `counts` has every state; `drifted` counts all drift, `to_publish` the drafts among it."""

    book: Book
    counts: Mapping[EntryState, int]
    drifted: int
    to_publish: int
    vanished: int
    gate: Gate
    lease: LeaseHolder | None
    last_whole_read: int | None
    last_run: RunRecord | None


@dataclass(frozen=True, slots=True)
class RowRecord:
    """One ledger entry. `drift_body` is what the source asks for now, where that differs from `body`."""

    entry_id: int
    row_key: RowKey
    state: EntryState
    key: IdempotencyKey
    revision: int
    body: bytes
    channel_id: int
    event_id: int | None
    attempts: int
    unanswered_at: datetime | None
    answer: Answer | None
    drift_body: bytes | None
    drift_kind: DriftKind | None
    vanished_at: datetime | None
    origin: str
    staged_run: str
    sent_run: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ProblemRecord:
    """One row that people must see, with its raw cells; `run_id` is the last run that met it."""

    problem_id: int
    kind: ProblemKind
    row_key: RowKey
    origin: str
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]
    run_id: str
    first_seen_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which entries: in one of `states` (empty: any), with the key `row_key`, and only drifted or vanished ones."""

    states: frozenset[EntryState] = field(default_factory=frozenset)
    row_key: RowKey | None = None
    is_drifted: bool = False
    is_vanished: bool = False
