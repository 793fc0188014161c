"""What the ledger shows to people, as plain records: feeds, runs, entries, problems. Finding them is `books`'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mappings.refusals import Reason
from mappings.row_key import RowKey
from state.enums import EntryState, Phase, ProblemKind, Waiting
from state.ledger.accounts import PublishAccount, ReadAccount, StageReport
from state.ledger.gate import Gate
from state.ledger.standing import FeedScope, OpenRows


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
    """One run as it was recorded; what it did not reach is None. `notices`: what it noticed of the service as a whole.

    `pace`: how fast it went, in numbers; empty where it did not send.
    """

    book: FeedScope
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

    book: FeedScope
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
