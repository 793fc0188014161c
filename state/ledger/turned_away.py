"""The statements of `retry`: rows that were turned away are made pending again, and of others it is told why they are not.

Whose word that is, and when it may be written, is `decisions`'; what a repeated refusal leads to, `verdicts`'.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, update

from mappings.row_key import RowKey
from state.enums import Decision, EntryState
from state.ledger.choices import waits_for_access
from state.ledger.claims import IS_SET_ASIDE
from state.ledger.row_record import RECORDS, RowRecord, as_record
from state.tables import ENTRY

RETRIABLE = (EntryState.REFUSED, EntryState.BLOCKED)
"""The states of rows that `retry` sends again."""
_FEW = 500
_PENDING = "it is pending: the next run sends it"
_DENIED = "; if the service only repeats a denial that it has stored: `eventsync resolve FEED KEY --resend`"


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A row that was named and is not sent again, and why."""

    row_key: RowKey
    because: str


@dataclass(frozen=True, slots=True)
class Retried:
    """How many rows are pending again, by the state that they were in; which of those meant are not, and why."""

    refused: int
    blocked: int
    left_alone: tuple[LeftAlone, ...]


def decision_of_retry(state: EntryState) -> Decision:
    """Return what stays of a person's word: the next run reopens what is blocked anyway, only a refusal told again uses it up."""
    return Decision.RETRY if state is EntryState.REFUSED else Decision.RETRIED


def find_denied(connection: Connection, scope_id: int) -> list[RowRecord]:
    """Return the pending rows that may never find access by themselves, oldest first: no more than were in flight at a time."""
    ours = (ENTRY.c.scope_id == scope_id, ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.denied_request_id != "")
    rows = connection.execute(RECORDS.where(*ours).order_by(ENTRY.c.id))
    return [record for record in map(as_record, rows) if waits_for_access(record)]


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The rows of a feed that are in one state: all but those set aside, or those of `row_keys`."""

    scope_id: int
    state: EntryState
    row_keys: Collection[RowKey] | None

    def reopen(self, connection: Connection, decided: Mapping[str, Any]) -> int:
        """Make them pending again, and return how many. `decided`: the columns that tell whose word it was."""
        which = (ENTRY.c.scope_id == self.scope_id, ENTRY.c.state == self.state.value, *_asked_for())
        attempts = case((ENTRY.c.unanswered_at.is_(None), 0), else_=ENTRY.c.attempts)
        again = update(ENTRY).where(*which).values(**decided, attempts=attempts)
        if self.row_keys is None:
            return connection.execute(again.where(~IS_SET_ASIDE)).rowcount
        keys, count = sorted(self.row_keys), 0
        for start in range(0, len(keys), _FEW):
            count += connection.execute(again.where(ENTRY.c.row_key.in_(keys[start : start + _FEW]))).rowcount
        return count


def leave_alone(records: Collection[RowRecord], states: Collection[EntryState]) -> Iterator[LeftAlone]:
    """Yield those of the rows that a retry of these states does not send again."""
    for record in records:
        if record.state is EntryState.PENDING:
            yield LeftAlone(record.row_key, _PENDING + _DENIED * waits_for_access(record))
        elif record.state not in states:
            yield LeftAlone(record.row_key, f"it is {record.state.value.replace('_', ' ')}")
        elif record.vanished_at is not None or record.past_at is not None or not record.is_asked_for:
            yield LeftAlone(record.row_key, "the source no longer asks for it")


def _asked_for() -> Iterator[ColumnElement[bool]]:
    """Whether the source still asks for the row: it has not vanished, and its last payload was not taken back."""
    yield ENTRY.c.vanished_at.is_(None)
    yield ENTRY.c.past_at.is_(None)
    yield func.coalesce(ENTRY.c.fingerprint, "") != ""
