"""What a person decides about rows, and what a look at the service's list finds, written down under the feed's lease.

What a choice comes to is `deciding`'s; reading the list is the caller's, sending again the next drain's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, update

from mappings.delivery import Answer
from mappings.errors import ConfigError
from mappings.vocabulary import RowKey
from state.deciding import (
    FOUND,
    RESOLVED,
    AsItIs,
    Change,
    Choice,
    decide,
)
from state.drafts import ends_at_of, twin_digest_of
from state.duplicates import mark_anew
from state.owners import destination_of, find_owners
from state.records import dump_answer
from state.tables import ENTRY, SCOPE
from state.turn import Turn
from state.turned_away import RETRIABLE, Retried, TurnedAway, decision_of_retry, find_denied, leave_alone
from state.views import RECORDS, RowRecord, as_record
from state.words import Decision, EntryState

SEEKABLE = (EntryState.DELIVERED_UNCONFIRMED, EntryState.UNCERTAIN, EntryState.CONFLICT)
"""The states in which an event may be at the service under an id that we do not know."""


class EventTakenError(ConfigError):
    """An event id was given to a row that another row of the same destination has."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A decision and the row as it was before and is now."""

    outcome: Change | AsItIs
    before: RowRecord
    after: RowRecord


@dataclass(frozen=True, slots=True)
class Found:
    """An entry whose event was found in the service's list. `revision` as it was when the list was read; `how` for people.

    `shown`: the drift body, where the list shows that and not the pinned one: it becomes the baseline.
    """

    entry_id: int
    revision: int
    event_id: int
    how: str
    shown: bytes | None = None


class Decisions:
    """The doors of one person's decisions about one feed. `by`: who decides, as `user@host`.

    Every method is one transaction, and raises `LeaseLostError` if the feed's lease was lost.
    """

    def __init__(self, turn: Turn, by: str) -> None:
        self._turn = turn
        self._by = by

    def retry(self, states: Collection[EntryState] = RETRIABLE, row_keys: Collection[RowKey] | None = None) -> Retried:
        """Make rows that were turned away pending again, with the same body and under the same key.

        The request id of a refusal stays remembered: refused again, the row goes on under its next key. One whose channel was
        denied does not, as that is no proof that nothing was created. Rows that the source no longer asks for are left
        alone, and so are those set aside, unless they are named. Rows that are pending as access was denied are told of.
        """
        with self._turn.transaction() as connection:
            meant = find_denied(connection, self._turn.scope_id) if row_keys is None else self._named(connection, row_keys)
            left_alone = tuple(leave_alone(meant, states))
            self._forget_read(connection)
            counts = {state: self._reopen(connection, state, row_keys) for state in RETRIABLE if state in states}
        return Retried(counts.get(EntryState.REFUSED, 0), counts.get(EntryState.BLOCKED, 0), left_alone)

    def resolve(self, row_key: RowKey, choice: Choice) -> Resolved | None:
        """Do what a person has chosen for one row; None where the ledger has no entry of this key.

        Said twice it is done once. Raises `NotPossibleError`, and `EventTakenError` for another row's event.
        """
        with self._turn.transaction() as connection:
            before = self._record(connection, row_key)
            if before is None:
                return None
            outcome = decide(before, choice)
            if isinstance(outcome, Change):
                self._write(connection, before, outcome)
                self._forget_read(connection)
            after = self._record(connection, row_key)
            assert after is not None  # noqa: S101  # entries are never deleted between two statements of a transaction
            return Resolved(outcome, before, after)

    def record_found(self, found: Sequence[Found]) -> tuple[Found, ...]:
        """Make entries delivered whose events were found; return those that were written.

        An entry that has changed since the list was read is left alone, and so is one whose event another row has.
        """
        with self._turn.transaction() as connection:
            self._lock_destination(connection)
            self._forget_read(connection)
            taken = find_owners(connection, destination_of(self._turn.scope_id), [one.event_id for one in found])
            return tuple(one for one in found if one.event_id not in taken and self._deliver(connection, one))

    def _forget_read(self, connection: Connection) -> None:
        """Let the next run read the source, also where it is as it was: a row may come to something else from now on."""
        connection.execute(update(SCOPE).where(SCOPE.c.id == self._turn.scope_id).values(stamp=""))

    def _deliver(self, connection: Connection, found: Found) -> bool:
        is_as_read = (ENTRY.c.id == found.entry_id, ENTRY.c.revision == found.revision, ENTRY.c.event_id.is_(None))
        states = (*SEEKABLE, EntryState.PENDING)
        columns = self._told(Change(EntryState.DELIVERED, Decision.RECONCILED, found.event_id))
        columns["answer"] = dump_answer(Answer(status=0, code=FOUND, message=found.how))
        which = [*is_as_read, ENTRY.c.state.in_([state.value for state in states])]
        if found.shown is not None:
            which.append(ENTRY.c.drift_body == found.shown)
            columns |= {"baseline_body": found.shown, "baseline_fingerprint": ENTRY.c.drift_fingerprint}
            columns |= {"twin_digest": twin_digest_of(found.shown), "ends_at": ends_at_of(found.shown)}
            columns |= {"drift_body": None, "drift_fingerprint": None, "drift_kind": None, "ignored_fingerprint": None}
        is_written = connection.execute(update(ENTRY).where(*which).values(**columns)).rowcount == 1
        if is_written and found.shown is not None:
            mark_anew(connection, [(found.entry_id, twin_digest_of(found.shown))])
        return is_written

    def _write(self, connection: Connection, before: RowRecord, change: Change) -> None:
        columns = self._told(change)
        if change.event_id is not None and change.event_id != before.event_id:
            self._lock_destination(connection)
            self._refuse_if_taken(connection, before, change.event_id)
            said = f"{self._by} said that it is event {change.event_id}; it was {before.state.value.replace('_', ' ')}"
            columns["answer"] = dump_answer(Answer(status=0, code=RESOLVED, message=said))
        if change.is_next_revision:
            revision = before.revision + 1
            columns |= {"revision": revision, "idempotency_key": self._turn.key(before.row_key, revision)}
            columns |= {"attempts": 0, "unanswered_at": None, "refused_request_id": "", "denied_request_id": ""}
        if change.decision is Decision.RETRY:
            columns["attempts"] = 0
        connection.execute(update(ENTRY).where(ENTRY.c.id == before.entry_id).values(**columns))

    def _told(self, change: Change) -> dict[str, Any]:
        now = self._turn.now()
        columns: dict[str, Any] = {"state": change.state.value, "event_id": change.event_id, "updated_at": now}
        if change.state is EntryState.DELIVERED:
            columns["unanswered_at"] = None
        if change.decision is None:
            return columns | {"decision": None, "decided_at": None, "decided_by": None}
        return columns | {"decision": change.decision.value, "decided_at": now, "decided_by": self._by}

    def _refuse_if_taken(self, connection: Connection, record: RowRecord, event_id: int) -> None:
        taken = find_owners(connection, destination_of(self._turn.scope_id), [event_id])
        if event_id in taken:
            raise EventTakenError(
                f"event {event_id} is {taken[event_id]} already: it cannot be {record.row_key} too",
                hint="one event belongs to one row; look for the other id on the service's pages",
            )

    def _lock_destination(self, connection: Connection) -> None:
        """Let one person at a time give out event ids of a destination, whatever the feed."""
        others = select(SCOPE.c.id).where(SCOPE.c.destination == destination_of(self._turn.scope_id)).order_by(SCOPE.c.id)
        connection.execute(others.with_for_update(key_share=True)).all()

    def _record(self, connection: Connection, row_key: RowKey) -> RowRecord | None:
        ours = (ENTRY.c.scope_id == self._turn.scope_id, ENTRY.c.row_key == row_key)
        row = connection.execute(RECORDS.where(*ours)).one_or_none()
        return None if row is None else as_record(row)

    def _named(self, connection: Connection, row_keys: Collection[RowKey]) -> list[RowRecord]:
        records = (self._record(connection, row_key) for row_key in row_keys)
        return [record for record in records if record is not None]

    def _reopen(self, connection: Connection, state: EntryState, row_keys: Collection[RowKey] | None) -> int:
        again = self._told(Change(EntryState.PENDING, decision_of_retry(state)))
        return TurnedAway(self._turn.scope_id, state, row_keys).reopen(connection, again)
