"""Ledger entries as plain records for people, and which feed they belong to."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row, select

from mappings.delivery import Answer
from mappings.row_key import FeedName, IdempotencyKey, RowKey
from state.enums import Decision, DriftKind, EntryState
from state.ledger.accounts import load_answer
from state.tables import ENTRY


@dataclass(frozen=True, slots=True)
class Book:
    """One feed at one destination."""

    destination: str
    feed: FeedName


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


RECORDS = select(ENTRY)
"""What `as_record` takes."""
_SAME = frozenset(each.name for each in fields(RowRecord)) & frozenset(ENTRY.c.keys())


def as_record(row: Row[*tuple[Any, ...]]) -> RowRecord:
    """Return an entry of the ledger's table as people are shown it."""
    columns: dict[str, Any] = {name: getattr(row, name) for name in _SAME}
    columns |= {
        "state": EntryState(row.state),
        "answer": row.answer and load_answer(row.answer),
        "drift_kind": row.drift_kind and DriftKind(row.drift_kind),
        "decision": row.decision and Decision(row.decision),
        "decided_by": row.decided_by or "",
    }
    return RowRecord(
        entry_id=row.id,
        key=row.idempotency_key,
        is_asked_for=bool(row.fingerprint),
        is_denied=bool(row.denied_request_id),
        **columns,
    )
