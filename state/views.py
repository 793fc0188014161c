"""What the ledger shows to people, as plain records: feeds, runs, entries, problems. Finding them is `books`'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Row, select

from mappings.delivery import Answer
from mappings.refusals import Reason
from mappings.row_key import FeedName, IdempotencyKey, RowKey
from state.accounts import PublishAccount, ReadAccount, StageReport
from state.gate import Gate
from state.packing import unpacked
from state.records import load_answer
from state.standing import OpenRows
from state.tables import ENTRY, SCOPE
from state.words import Decision, DriftKind, EntryState, Phase, ProblemKind, Waiting


@dataclass(frozen=True, slots=True)
class Book:
    """One feed at one destination."""

    destination: str
    feed: FeedName


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds a feed. `expires_at` in the past, or `is_gone`, its process having ended here: the next run takes over."""

    name: str
    host: str
    pid: int
    acquired_at: datetime
    expires_at: datetime
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as it was recorded; what it did not come to is None. `notices`: what it noticed of the service as a whole.

    `pace`: how fast it went, in numbers; empty where it did not send.
    """

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
    pace: Mapping[str, float] = field(default_factory=dict)
    standing: Mapping[Waiting, OpenRows] | None = None
    """What waited for a person when it ended; None for runs of earlier versions."""


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """Where one feed stands. `counts` has every state. Of the drift that waits for a person (`drifted`), `to_publish` are drafts
    that the source calls published, `cancelled` events that it has called off, `returned` rows whose events were removed.

    `waiting` counts what waits for a person, by the word that `rows --state` takes; `set_aside` what a person has ignored.
    `last_read`: the run that read the source last. `slices_left`: of backfills that are open.
    """

    book: Book
    counts: Mapping[EntryState, int]
    drifted: int
    to_publish: int
    vanished: int
    gate: Gate
    lease: LeaseHolder | None
    last_whole_read: int | None
    last_run: RunRecord | None
    waiting: Mapping[str, int] = field(default_factory=dict)
    set_aside: int = 0
    last_read: RunRecord | None = None
    cancelled: int = 0
    slices_left: int = 0
    returned: int = 0


@dataclass(frozen=True, slots=True)
class OtherEntry:
    """An entry that another one refers to; `feed` and `namespace` are "" where they are the same."""

    row_key: RowKey
    feed: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        of_feed = f" of {self.feed}" if self.feed else ""
        return f"{self.row_key}{of_feed}{f' in namespace {self.namespace}' if self.namespace else ''}"


@dataclass(frozen=True, slots=True)
class RowRecord:
    """One ledger entry. `drift_body` is what the source asks for now, where that differs from `body`.

    `is_asked_for`: not taken back by its source since it was turned away. `copies`: how many events of it may exist where the
    service ignores idempotency keys. `earlier_event_ids`: events of the row that a draft of a later change
    has taken the place of here; at the service they still are. `is_denied`: the service has denied access to it under
    this key, and may repeat that for ever.
    """

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
    decision: Decision | None = None
    decided_at: datetime | None = None
    decided_by: str = ""
    is_asked_for: bool = True
    copies: int = 0
    earlier_event_ids: tuple[int, ...] = ()
    is_denied: bool = False
    baseline_body: bytes | None = None
    """What a person said the service shows, None where that is `body`."""
    ends_at: datetime | None = None
    past_at: datetime | None = None
    removed_at: datetime | None = None
    vanished_by: str = ""
    candidate_id: int | None = None
    candidate: OtherEntry | None = None
    """The entry that a held row resembles, or that has the event of a superseded one."""

    @property
    def is_set_aside(self) -> bool:
        """Whether a person has ignored it: it is on no list until its row changes."""
        return self.decision is Decision.IGNORE

    @property
    def shown(self) -> bytes:
        """The baseline: what the service shows as far as we know; `{}` in a held entry that an upgrade made."""
        return (self.body if self.baseline_body is None else self.baseline_body) or b"{}"

    @property
    def event(self) -> dict[str, Any]:
        """The baseline as a payload."""
        payload: dict[str, Any] = json.loads(self.shown)
        return payload


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
    """Which entries: in one of `states` (empty: any), with the key `row_key`, only drifted, vanished or resent ones.

    `waiting`: those that wait for a person for this reason; `is_ignored`: those that a person has ignored; `is_kept`: without
    those whose events were removed by hand; `has_earlier`: those with earlier events that a person still has to remove.
    """

    states: frozenset[EntryState] = field(default_factory=frozenset)
    row_key: RowKey | None = None
    is_drifted: bool = False
    is_vanished: bool = False
    is_resent: bool = False
    is_ignored: bool = False
    is_kept: bool = False
    has_earlier: bool = False
    waiting: Waiting | None = None


RECORDS = select(ENTRY, SCOPE.c.body_base).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
"""What `as_record` takes."""


def as_record(row: Row[*tuple[Any, ...]]) -> RowRecord:
    """Return an entry of the ledger's table as people are shown it."""
    return RowRecord(
        entry_id=row.id,
        row_key=RowKey(row.row_key),
        state=EntryState(row.state),
        key=IdempotencyKey(row.idempotency_key),
        revision=row.revision,
        body=unpacked(row.body, row.body_base),
        channel_id=row.channel_id,
        event_id=row.event_id,
        attempts=row.attempts,
        unanswered_at=row.unanswered_at,
        answer=row.answer and load_answer(row.answer),
        drift_body=row.drift_body,
        drift_kind=row.drift_kind and DriftKind(row.drift_kind),
        vanished_at=row.vanished_at,
        origin=row.origin,
        staged_run=row.staged_run,
        sent_run=row.sent_run,
        created_at=row.created_at,
        updated_at=row.updated_at,
        decision=row.decision and Decision(row.decision),
        decided_at=row.decided_at,
        decided_by=row.decided_by or "",
        copies=row.copies,
        is_asked_for=bool(row.fingerprint),
        is_denied=bool(row.denied_request_id),
        baseline_body=row.baseline_body and unpacked(row.baseline_body, row.body_base),
        ends_at=row.ends_at,
        past_at=row.past_at,
        removed_at=row.removed_at,
        vanished_by=row.vanished_by,
        candidate_id=row.candidate_id,
    )
