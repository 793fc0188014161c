"""What a person decides about rows, and what is found in the service's list, in one transaction under the feed's lease."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, assert_never

from sqlalchemy import Connection, case, func, select, update

from mappings.delivery import Answer
from mappings.errors import ConfigError
from mappings.row_key import RowKey
from state.enums import Decision, EntryState
from state.holders import LeaseLostError
from state.ledger.accounts import dump_answer
from state.ledger.choices import (
    ADOPTED,
    FOUND,
    RESOLVED,
    SEEKABLE,
    Apply,
    AsItIs,
    Change,
    Choice,
    NotPossibleError,
    Release,
    Remove,
    Resend,
    SameAs,
    SetAside,
    TakeBack,
    TakeEvent,
    Undo,
    is_ignored_anew,
    may_be_removed,
    waits_for_access,
)
from state.ledger.claims import IS_SET_ASIDE
from state.ledger.duplicates import mark_anew
from state.ledger.entries import destination_of, find_owners
from state.ledger.gate import drop_bookmark
from state.ledger.lease import FencedTransaction, Lease, show_token
from state.ledger.row_record import RECORDS, RowRecord, as_record
from state.ledger.undo import (
    CHANGED,
    EVERY,
    Kept,
    applied,
    asked_of,
    columns_of,
    drift_against,
    dump_kept,
    kept_of,
    load_kept,
    next_key,
    pinned,
    restored,
    shown_of,
)
from state.ledger.weighing import Record, Situation, find_entry, outcome_of, raise_all, record_of, situation_of, without_rivals
from state.tables import EARLIER, ENTRY, NO_DRIFT, SCOPE

RETRIABLE = (EntryState.REFUSED, EntryState.BLOCKED)
"""The states of rows that `retry` sends again."""
_PAGE = 500
_UNDECIDED = {"decision": None, "decided_at": None, "decided_by": None}


class UnknownRowError(ConfigError):
    """The ledger has no entry of a row that was named."""


class EventTakenError(ConfigError):
    """An event id was given to a row that another row of the same destination has."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A decision and the row as it was before and is now."""

    outcome: Change | AsItIs
    before: RowRecord
    after: RowRecord


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
    """Records one person's decisions about one feed. `by`: who decides, as `user@host`.

    `others`: the leases of other feeds whose entries give up an event. Every method is one transaction, and raises
    `LeaseLostError` if a lease was lost.
    """

    def __init__(self, run: FencedTransaction, by: str, others: Collection[Lease] = ()) -> None:
        self._run = run
        self._by = by
        self._others = {lease.scope_id: lease for lease in others}

    def retry(self, states: Collection[EntryState] = RETRIABLE, row_keys: Collection[RowKey] | None = None) -> Retried:
        """Make refused and blocked rows pending again, with the same body and under the same key.

        The request id of a refusal stays remembered: refused again, the row goes on under its next key. One whose channel was
        denied does not, as that is no proof that nothing was created. Rows that the source no longer asks for are left
        alone, and so are ignored ones, unless they are named. Pending rows whose access was denied are reported.
        """
        with self._transaction() as connection:
            meant = self._find_denied(connection) if row_keys is None else self._find(connection, row_keys)
            left_alone = tuple(_left_alone(meant, states))
            self._forget_read(connection)
            counts = {state: self._reopen(connection, state, row_keys) for state in RETRIABLE if state in states}
        return Retried(counts.get(EntryState.REFUSED, 0), counts.get(EntryState.BLOCKED, 0), left_alone)

    def resolve(self, row_key: RowKey, choice: Choice) -> Resolved | None:
        """Do what a person has chosen for one row; None where the ledger has no entry of this key.

        Raises `NotPossibleError`, and `EventTakenError` for another row's event.
        """
        try:
            return self.resolve_all([row_key], choice)[0]
        except UnknownRowError:
            return None

    def resolve_all(self, row_keys: Sequence[RowKey], choice: Choice) -> tuple[Resolved, ...]:
        """Do what a person has chosen for these rows: for all of them, or for none. Repeating it changes nothing.

        Raises `UnknownRowError`, `NotPossibleError` with all that is not possible, `EventTakenError` for another row's event.
        """
        with self._transaction() as connection:
            situations = [situation_of(connection, self._run.scope_id, row_key, choice) for row_key in row_keys]
            outcomes = without_rivals(row_keys, [outcome_of(each, choice) for each in situations])
            raise_all(outcomes)
            resolved = []
            for situation, outcome in zip(situations, outcomes, strict=True):
                if situation is None or outcome is None or isinstance(outcome, NotPossibleError):
                    raise UnknownRowError("there is no such row in the ledger")
                if isinstance(outcome, Change):
                    self._write(connection, situation, choice, outcome)
                after = find_entry(connection, ENTRY.c.id == situation.row.id)
                resolved.append(Resolved(outcome, situation.record, record_of(connection, after)))
            if any(isinstance(one.outcome, Change) for one in resolved):
                self._forget_read(connection)
        return tuple(resolved)

    def record_found(self, found: Sequence[Found]) -> tuple[Found, ...]:
        """Make entries delivered whose events were found; return those that were written.

        An entry that has changed since the list was read is left alone, and so is one whose event another row has.
        """
        with self._transaction() as connection:
            self._lock_destination(connection)
            self._forget_read(connection)
            taken = find_owners(connection, destination_of(self._run.scope_id), [one.event_id for one in found])
            return tuple(one for one in found if one.event_id not in taken and self._deliver(connection, one))

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._run.transaction() as connection:
            for lease in self._others.values():
                show_token(connection, lease.scope_id, lease.token, lease.keeping)
            yield connection

    def _forget_read(self, connection: Connection, scope_id: int | None = None) -> None:
        """Let the next run read the source even where it has not changed: its rows may have other outcomes from now on."""
        connection.execute(update(SCOPE).where(SCOPE.c.id == (scope_id or self._run.scope_id)).values(stamp=""))

    def _find(self, connection: Connection, row_keys: Collection[RowKey]) -> list[RowRecord]:
        ours = ENTRY.c.scope_id == self._run.scope_id
        rows = (connection.execute(RECORDS.where(ours, ENTRY.c.row_key == row_key)).one_or_none() for row_key in row_keys)
        return [as_record(row) for row in rows if row is not None]

    def _find_denied(self, connection: Connection) -> list[RowRecord]:
        """Return the pending rows that may never find access by themselves: no more than were in flight at a time."""
        ours = (ENTRY.c.scope_id == self._run.scope_id, ENTRY.c.state == EntryState.PENDING.value)
        rows = connection.execute(RECORDS.where(*ours, ENTRY.c.denied_request_id != "").order_by(ENTRY.c.id))
        return [record for record in map(as_record, rows) if waits_for_access(record)]

    def _reopen(self, connection: Connection, state: EntryState, row_keys: Collection[RowKey] | None) -> int:
        """Make rows in one state pending that their source still asks for; return how many.

        The next run reopens what is blocked by itself: only a repeated refusal uses up a person's word.
        """
        decision = Decision.RETRY if state is EntryState.REFUSED else Decision.RETRIED
        is_asked_for = (ENTRY.c.vanished_at.is_(None), ENTRY.c.past_at.is_(None), func.coalesce(ENTRY.c.fingerprint, "") != "")
        which = (ENTRY.c.scope_id == self._run.scope_id, ENTRY.c.state == state.value, *is_asked_for)
        attempts = case((ENTRY.c.unanswered_at.is_(None), 0), else_=ENTRY.c.attempts)
        reopened = update(ENTRY).where(*which).values(**self._decided(EntryState.PENDING, decision), attempts=attempts)
        if row_keys is None:
            return connection.execute(reopened.where(~IS_SET_ASIDE)).rowcount
        keys = sorted(row_keys)
        pages = (keys[start : start + _PAGE] for start in range(0, len(keys), _PAGE))
        return sum(connection.execute(reopened.where(ENTRY.c.row_key.in_(page))).rowcount for page in pages)

    def _deliver(self, connection: Connection, found: Found) -> bool:
        columns = self._decided(EntryState.DELIVERED, Decision.RECONCILED, found.event_id)
        columns["answer"] = dump_answer(Answer(status=0, code=FOUND, message=found.how))
        which = [ENTRY.c.id == found.entry_id, ENTRY.c.revision == found.revision, ENTRY.c.event_id.is_(None)]
        which.append(ENTRY.c.state.in_([state.value for state in (*SEEKABLE, EntryState.PENDING)]))
        if found.shown is not None:
            which.append(ENTRY.c.drift_body == found.shown)
            row = connection.execute(select(ENTRY).where(*which)).one_or_none()
            if row is None:
                return False
            columns |= applied(row)
            mark_anew(connection, [(row.id, columns["twin_digest"])])
        return connection.execute(update(ENTRY).where(*which).values(**columns)).rowcount == 1

    def _write(  # noqa: C901  # one arm per choice
        self, connection: Connection, situation: Situation, choice: Choice, change: Change
    ) -> None:
        row, columns = situation.row, self._decided(change.state, change.decision, change.event_id)
        match choice:
            case TakeBack():
                self._restore(connection, situation, columns)
                return
            case Remove():
                columns = self._remove(connection, situation.record, change, columns)
            case TakeEvent():
                columns |= self._take_event(connection, situation.record, change)
            case Resend():
                columns |= self._send_again(connection, row, change)
            case SetAside():
                columns["ignored_fingerprint"] = asked_of(row).fingerprint
            case Apply():
                columns |= applied(row)
            case Release() if row.body:
                columns |= {"candidate_id": None, "attempts": 0}
            case Release():  # an upgrade made the entry: only a read knows what to send
                drop_bookmark(connection, self._run.scope_id)
            case SameAs():
                columns |= self._adopt(connection, situation, change)
            case _:
                assert_never(choice)
        columns["undo"] = columns["undo"] or dump_kept(kept_of(row, change, columns))
        self._update(connection, row.id, columns)

    def _update(self, connection: Connection, entry_id: int, columns: dict[str, Any]) -> None:
        connection.execute(update(ENTRY).where(ENTRY.c.id == entry_id).values(**columns))
        is_marked = select(ENTRY.c.twin_digest).where(ENTRY.c.id == entry_id, ENTRY.c.state != EntryState.HELD.value)
        mark_anew(connection, [(entry_id, digest) for digest in connection.execute(is_marked).scalars()])

    def _decided(self, state: EntryState, decision: Decision | None, event_id: int | None = None) -> dict[str, Any]:
        now = self._run.now()
        columns: dict[str, Any] = {"state": state.value, "event_id": event_id, "updated_at": now, "undo": None}
        if state is EntryState.DELIVERED:
            columns["unanswered_at"] = None
        if decision is None:
            return columns | _UNDECIDED
        return columns | {"decision": decision.value, "decided_at": now, "decided_by": self._by}

    def _take_event(self, connection: Connection, before: RowRecord, change: Change) -> dict[str, Any]:
        if change.event_id is None or change.event_id == before.event_id:
            return {}
        self._lock_destination(connection)
        self._refuse_if_taken(connection, before.row_key, change.event_id)
        message = f"{self._by} said that it is event {change.event_id}; it was {before.state.value.replace('_', ' ')}"
        return {"answer": dump_answer(Answer(status=0, code=RESOLVED, message=message))}

    def _send_again(self, connection: Connection, row: Record, change: Change) -> dict[str, Any]:
        columns: dict[str, Any] = {"attempts": 0} if change.decision is Decision.RETRY else {}
        if not change.is_next_revision:
            return columns
        columns |= next_key(connection, row, self._run.namespace, self._run.feed)
        columns |= {"baseline_body": None, "baseline_fingerprint": None}
        if row.removed_at is not None:  # the event is created again as the source asks for it now
            return columns | pinned(row.drift_body) | NO_DRIFT | {"removed_at": None, "copies": 0}
        shown = shown_of(row)
        return columns | {"body": shown.body, "fingerprint": shown.fingerprint}

    def _adopt(self, connection: Connection, situation: Situation, change: Change) -> dict[str, Any]:
        """Move the event of another entry to this one; what the row asks for is drift against it."""
        giver = situation.giver
        if giver is None or change.adopted is None:
            raise NotPossibleError("the other entry is gone", hint="run the feed, then look at `eventsync rows`")
        self._lock_destination(connection)
        self._supersede(connection, giver, situation)
        if change.event_id is not None:
            self._refuse_if_taken(connection, situation.record.row_key, change.event_id)
        shown = shown_of(giver)
        message = f"{self._by} said that it is the event of {change.adopted}"
        columns = {name: getattr(giver, name) for name in ("twin_digest", "channel_id", "ends_at", "sent_run", "copies")}
        columns |= {"body": shown.body, "fingerprint": shown.fingerprint, "cover_url": None, "cover_on_error": None}
        columns |= {"baseline_body": None, "baseline_fingerprint": None, "candidate_id": None, "ignored_fingerprint": None}
        columns |= {"attempts": 0, "unanswered_at": None, "vanished_at": None, "past_at": None, "vanished_by": ""}
        columns["answer"] = dump_answer(Answer(status=0, code=ADOPTED, message=message))
        return columns | (drift_against(shown, asked_of(situation.row)) if situation.row.body else NO_DRIFT)

    def _supersede(self, connection: Connection, giver: Record, situation: Situation) -> None:
        self._check_lease(giver.scope_id)
        now = self._run.now()
        message = f"{self._by} said that its event is that of {situation.record.row_key}"
        columns = {"state": EntryState.SUPERSEDED.value, "event_id": None, "candidate_id": situation.row.id, "updated_at": now}
        columns |= next_key(connection, giver, giver.namespace, giver.feed) | NO_DRIFT | _UNDECIDED
        columns |= {"ignored_fingerprint": None, "copies": 0}
        columns |= {"vanished_at": None, "past_at": giver.past_at or now, "vanished_by": ""}
        columns["answer"] = dump_answer(Answer(status=0, code=ADOPTED, message=message))
        given = Undo(Decision.SAME_AS, EntryState.SUPERSEDED, columns["revision"], 0, None)
        columns["undo"] = dump_kept(Kept(given, columns_of(giver, EVERY)))
        connection.execute(update(ENTRY).where(ENTRY.c.id == giver.id).values(**columns))
        self._forget_read(connection, giver.scope_id)

    def _check_lease(self, scope_id: int) -> None:
        if scope_id != self._run.scope_id and scope_id not in self._others:
            raise LeaseLostError(
                "the candidate of a held row has changed meanwhile; nothing was changed",
                hint="look at `eventsync rows` and say it again",
            )

    def _remove(self, connection: Connection, before: RowRecord, change: Change, columns: dict[str, Any]) -> dict[str, Any]:
        """Note that events are gone: the entry's earlier ones, and its own where that is vanished or cancelled."""
        now = self._run.now()
        standing = (EARLIER.c.entry_id == before.entry_id, EARLIER.c.removed_at.is_(None))
        revisions = tuple(connection.execute(select(EARLIER.c.revision).where(*standing)).scalars())
        connection.execute(update(EARLIER).where(*standing).values(removed_at=now))
        row = find_entry(connection, ENTRY.c.id == before.entry_id)
        is_of_event = may_be_removed(before)
        if is_of_event:
            columns |= {"removed_at": now, **NO_DRIFT}
        elif change.decision is not Decision.REMOVED:
            columns = {"updated_at": now}
        names = CHANGED[Decision.REMOVED] if is_of_event else tuple(_UNDECIDED)
        undo = Undo(Decision.REMOVED, before.state, before.revision, before.attempts, before.event_id, is_of_event=is_of_event)
        return columns | {"undo": dump_kept(Kept(undo, columns_of(row, names), None, revisions))}

    def _restore(self, connection: Connection, situation: Situation, columns: dict[str, Any]) -> None:
        row, kept, giver = situation.row, situation.kept, situation.giver
        if kept is None or is_ignored_anew(situation.record, kept.undo):
            columns["ignored_fingerprint"] = None
        else:
            columns = restored(row, kept) | {"undo": None, "updated_at": self._run.now()}
            ours = (EARLIER.c.entry_id == row.id, EARLIER.c.revision.in_(kept.revisions))
            connection.execute(update(EARLIER).where(*ours).values(removed_at=None))
        self._update(connection, row.id, columns)
        if giver is not None and columns["state"] == EntryState.HELD:
            self._check_lease(giver.scope_id)
            before = load_kept(giver.undo).before
            self._update(connection, giver.id, {**before, "undo": None, "updated_at": self._run.now()})
            self._forget_read(connection, giver.scope_id)

    def _refuse_if_taken(self, connection: Connection, row_key: RowKey, event_id: int) -> None:
        taken = find_owners(connection, destination_of(self._run.scope_id), [event_id])
        if event_id in taken:
            raise EventTakenError(
                f"event {event_id} is {taken[event_id]} already: it cannot be {row_key} too",
                hint="one event belongs to one row; look for the other id on the service's pages",
            )

    def _lock_destination(self, connection: Connection) -> None:
        """Let one person at a time give out the event ids of a destination."""
        others = select(SCOPE.c.id).where(SCOPE.c.destination == destination_of(self._run.scope_id)).order_by(SCOPE.c.id)
        connection.execute(others.with_for_update(key_share=True)).all()


def _left_alone(records: Collection[RowRecord], states: Collection[EntryState]) -> Iterator[LeftAlone]:
    """Yield those of the rows that a retry of these states does not send again."""
    for record in records:
        if record.state is EntryState.PENDING and waits_for_access(record):
            hint = "if the service only repeats a denial that it has stored: `eventsync resolve FEED KEY --resend`"
            yield LeftAlone(record.row_key, f"it is pending: the next run sends it; {hint}")
        elif record.state is EntryState.PENDING:
            yield LeftAlone(record.row_key, "it is pending: the next run sends it")
        elif record.state not in states:
            yield LeftAlone(record.row_key, f"it is {record.state.value.replace('_', ' ')}")
        elif record.vanished_at is not None or record.past_at is not None or not record.is_asked_for:
            yield LeftAlone(record.row_key, "the source no longer asks for it")
