"""Records people's decisions about rows, and events found in the service's list, in one transaction under the feed's lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine, case, exists, func, select, update

from mappings.delivery import Answer
from mappings.errors import ConfigError
from mappings.row_key import FeedName, RowKey
from state.database import in_pages, reading
from state.enums import Decision, EntryState, ProblemKind
from state.errors import LeaseLostError
from state.ledger import choices
from state.ledger.accounts import dump_answer
from state.ledger.choices import Change, Instruction, NoChange, NotPossibleError, Option
from state.ledger.entries import IS_SET_ASIDE, UNDECIDED, destination_of, find_owners, mark_anew
from state.ledger.lease import FencedTransaction, Lease, show_token
from state.ledger.standing import RECORDS, SEEKABLE, FeedScope, RowRecord, as_record
from state.tables import ENTRY, NO_DRIFT, PROBLEM, SCOPE, storable

RETRIABLE = (EntryState.REFUSED, EntryState.BLOCKED)
"""The states of rows that `retry` sends again."""
Outcome = Change | NoChange | NotPossibleError | None
_WITH_SCOPE = RECORDS.add_columns(SCOPE.c.feed, SCOPE.c.destination, SCOPE.c.namespace).join(
    SCOPE, SCOPE.c.id == ENTRY.c.scope_id
)
_NO_BASELINE = {"baseline_body": None, "baseline_fingerprint": None}
_IN_SOURCE = {"vanished_at": None, "past_at": None, "vanished_by": ""}


class EventTakenError(ConfigError):
    """An event id was given to a row, but another row of the destination has it."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A decision with the row before and after it."""

    outcome: Change | NoChange
    before: RowRecord
    after: RowRecord


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A named row that is not sent again, with the reason."""

    row_key: RowKey
    because: str


@dataclass(frozen=True, slots=True)
class Retried:
    """The result of a retry: how many rows became pending, by former state, and which did not and why."""

    refused: int
    blocked: int
    left_alone: tuple[LeftAlone, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """An entry whose event was found in the service's list. `revision`: as of the list's read; `how`: how it was recognised,
    for people.

    `shown`: the drift body, if the list shows that instead of the pinned one; it becomes the baseline.
    """

    entry_id: int
    revision: int
    event_id: int
    how: str
    shown: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Situation:
    """One entry to decide about. `giver`: the entry whose event it takes over or gives back."""

    row: choices.Record
    record: RowRecord
    outcome: Change | NoChange | NotPossibleError
    giver: choices.Record | None
    undo: choices.Undo | None


def propose(engine: Engine, feed: FeedScope, row_keys: Sequence[RowKey], choice: Instruction) -> dict[RowKey, Outcome]:
    """Return the effect of a decision on these rows, without writing.

    The value is the error if it is not possible, None if the ledger has no such row.
    """
    with reading(engine) as connection:
        scopes = select(SCOPE.c.id).where(SCOPE.c.destination == feed.destination, SCOPE.c.feed == feed.feed)
        situations = _weigh(connection, connection.execute(scopes).scalar_one(), row_keys, choice)
    return {key: situation.outcome if situation else None for key, situation in zip(row_keys, situations, strict=True)}


def raise_all(outcomes: Collection[Outcome]) -> None:
    """Raise all decisions that are not possible as one error."""
    problems = [outcome for outcome in outcomes if isinstance(outcome, NotPossibleError)]
    if problems:
        hints = dict.fromkeys(problem.hint for problem in problems)
        raise NotPossibleError("\n".join(map(str, problems)), hint=" ".join(hints))


class Decisions:
    """Records a person's decisions about one feed. `by`: the person, as `user@host`.

    `others`: the leases of other feeds whose entries give up an event. Every method is one transaction, and raises
    `LeaseLostError` if a lease was lost.
    """

    def __init__(self, run: FencedTransaction, by: str, others: Collection[Lease] = ()) -> None:
        self._run = run
        self._by = by
        self._others = {lease.scope_id: lease for lease in others}

    def retry(self, states: Collection[EntryState] = RETRIABLE, row_keys: Collection[RowKey] | None = None) -> Retried:
        """Make refused and blocked rows pending again, with the same body and key.

        The request id of a refusal is kept: if refused again, the row is sent under its next key. A row whose channel was
        denied is not, since that does not prove that nothing was created. Rows that the source no longer asks for, and ignored
        rows that are not named, are left as they are. Pending rows whose access was denied are reported.
        """
        records = RECORDS.where(ENTRY.c.scope_id == self._run.scope_id).order_by(ENTRY.c.id)
        with self._transaction() as connection:
            if row_keys is None:  # of those whose access was denied there are no more than were in flight at a time
                denied = records.where(ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.denied_request_id != "")
                meant = [record for record in map(as_record, connection.execute(denied)) if choices.waits_for_access(record)]
            else:
                rows = (connection.execute(records.where(ENTRY.c.row_key == row_key)).all() for row_key in row_keys)
                meant = [as_record(row) for found in rows for row in found]
            reasons = {record.row_key: _why_left_alone(record, states) for record in meant}
            self._forget_read(connection)
            counts = {state: self._reopen(connection, state, row_keys) for state in RETRIABLE if state in states}
        left_alone = tuple(LeftAlone(row_key, because) for row_key, because in reasons.items() if because)
        return Retried(counts.get(EntryState.REFUSED, 0), counts.get(EntryState.BLOCKED, 0), left_alone)

    def resolve(self, row_keys: Sequence[RowKey], choice: Instruction) -> tuple[Resolved, ...]:
        """Carry out a decision for all of these rows, or for none. Repeating it changes nothing.

        Raises `NotPossibleError` with all problems, `EventTakenError` for another row's event.
        """
        resolved = []
        with self._transaction() as connection:
            situations = _weigh(connection, self._run.scope_id, row_keys, choice)
            raise_all([situation.outcome for situation in situations if situation])
            for situation in situations:
                if situation is None or isinstance(situation.outcome, NotPossibleError):
                    raise NotPossibleError("there is no such row in the ledger", hint="`eventsync rows` shows the keys")
                if isinstance(situation.outcome, Change):
                    self._write(connection, situation, choice, situation.outcome)
                after = connection.execute(RECORDS.where(ENTRY.c.id == situation.row.id)).one()
                resolved.append(Resolved(situation.outcome, situation.record, as_record(after)))
            if any(isinstance(one.outcome, Change) for one in resolved):
                self._forget_read(connection)
        return tuple(resolved)

    def record_found(self, found: Sequence[Found]) -> tuple[Found, ...]:
        """Make entries delivered whose events were found; return those that were written.

        Entries that have changed since the list was read, or whose event another row has, are skipped.
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
                show_token(connection, lease.scope_id, lease.token, lease.clock)
            yield connection

    def _forget_read(self, connection: Connection, scope_id: int | None = None) -> None:
        """Make the next run read the source even if it is unchanged: its rows may have other outcomes now."""
        connection.execute(update(SCOPE).where(SCOPE.c.id == (scope_id or self._run.scope_id)).values(stamp=""))

    def _reopen(self, connection: Connection, state: EntryState, row_keys: Collection[RowKey] | None) -> int:
        """Make rows in one state pending if their source still asks for them; return how many.

        The next run reopens blocked rows anyway: a person's `retry` is used up by another refusal only.
        """
        decision = Decision.RETRY if state is EntryState.REFUSED else Decision.RETRIED
        is_asked_for = (ENTRY.c.vanished_at.is_(None), ENTRY.c.past_at.is_(None), func.coalesce(ENTRY.c.fingerprint, "") != "")
        which = (ENTRY.c.scope_id == self._run.scope_id, ENTRY.c.state == state.value, *is_asked_for)
        attempts = case((ENTRY.c.unanswered_at.is_(None), 0), else_=ENTRY.c.attempts)
        reopened = update(ENTRY).where(*which).values(**self._decided(EntryState.PENDING, decision), attempts=attempts)
        if row_keys is None:
            return connection.execute(reopened.where(~IS_SET_ASIDE)).rowcount
        pages = in_pages(sorted(row_keys))
        return sum(connection.execute(reopened.where(ENTRY.c.row_key.in_(page))).rowcount for page in pages)

    def _deliver(self, connection: Connection, found: Found) -> bool:
        columns = self._decided(EntryState.DELIVERED, Decision.RECONCILED, found.event_id) | _answer(choices.FOUND, found.how)
        which = [ENTRY.c.id == found.entry_id, ENTRY.c.revision == found.revision, ENTRY.c.event_id.is_(None)]
        which.append(ENTRY.c.state.in_([state.value for state in (*SEEKABLE, EntryState.PENDING)]))
        if found.shown is not None:
            which.append(ENTRY.c.drift_body == found.shown)
            row = connection.execute(select(ENTRY).where(*which)).one_or_none()
            if row is None:
                return False
            columns |= choices.applied(row)
            mark_anew(connection, [(row.id, columns["twin_digest"])])
        return connection.execute(update(ENTRY).where(*which).values(**columns)).rowcount == 1

    def _write(self, connection: Connection, situation: _Situation, choice: Instruction, change: Change) -> None:
        row, columns = situation.row, self._decided(change.state, change.decision, change.event_id)
        match choice.option:
            case Option.UNDO:
                self._take_back(connection, situation, columns)
                return
            case Option.EVENT_ID:
                if change.event_id is not None and change.event_id != row.event_id:
                    self._claim_event(connection, situation.record.row_key, change.event_id)
                    was = row.state.replace("_", " ")
                    columns |= _answer(choices.RESOLVED, f"{self._by} said that it is event {change.event_id}; it was {was}")
            case Option.RESEND:
                columns |= self._send_again(row, change)
            case Option.IGNORE:
                columns["ignored_fingerprint"] = choices.wanted_of(row._asdict())[0]
            case Option.APPLIED:
                columns |= choices.applied(row)
            case Option.REMOVED:
                columns |= {"removed_at": self._run.now(), **NO_DRIFT}
            case Option.RELEASE:
                columns |= {"candidate_id": None, "attempts": 0}
            case Option.SAME_AS:
                columns |= self._adopt(connection, situation, change)
        adopted_id = None if change.adopted is None else change.adopted.record.entry_id
        self._update(connection, row.id, columns | choices.undo_of(row, columns, adopted_id=adopted_id))

    def _update(self, connection: Connection, entry_id: int, columns: dict[str, Any]) -> None:
        connection.execute(update(ENTRY).where(ENTRY.c.id == entry_id).values(**columns))
        is_marked = select(ENTRY.c.twin_digest).where(ENTRY.c.id == entry_id, ENTRY.c.state != EntryState.HELD.value)
        mark_anew(connection, [(entry_id, digest) for digest in connection.execute(is_marked).scalars()])

    def _decided(self, state: EntryState, decision: Decision | None, event_id: int | None = None) -> dict[str, Any]:
        now = self._run.now()
        columns: dict[str, Any] = {"state": state.value, "event_id": event_id, "updated_at": now, **UNDECIDED}
        if state is EntryState.DELIVERED:
            columns["unanswered_at"] = None
        if decision is not None:
            columns |= {"decision": decision.value, "decided_at": now, "decided_by": self._by}
        return columns

    def _send_again(self, row: choices.Record, change: Change) -> dict[str, Any]:
        columns: dict[str, Any] = {"attempts": 0} if change.decision is Decision.RETRY else {}
        if not change.is_next_revision:
            return columns
        columns |= choices.next_key(row, self._run.namespace, self._run.feed) | _NO_BASELINE
        if row.removed_at is None:
            shown, body = choices.shown_of(row._asdict())
            return columns | {"body": body, "fingerprint": shown}
        # The event is created again as the source asks for it now.
        return columns | choices.pinned(row.drift_body) | NO_DRIFT | {"removed_at": None, "copies": 0}

    def _adopt(self, connection: Connection, situation: _Situation, change: Change) -> dict[str, Any]:
        """Return the columns that move the event of another entry to this one; the row's payload is drift against it."""
        giver, row, row_key = situation.giver, situation.row, situation.record.row_key
        if giver is None or change.adopted is None:
            raise NotPossibleError("the other entry is gone", hint="run the feed, then look at `eventsync rows`")
        self._lock_destination(connection)
        self._check_lease(giver.scope_id)
        now = self._run.now()
        given = {"state": EntryState.SUPERSEDED.value, "event_id": None, "candidate_id": row.id, "updated_at": now, "copies": 0}
        given |= choices.next_key(giver, giver.namespace, giver.feed) | NO_DRIFT | UNDECIDED | _IN_SOURCE
        given |= {"ignored_fingerprint": None, "past_at": giver.past_at or now}
        given |= _answer(choices.ADOPTED, f"{self._by} said that its event is that of {row_key}")
        given |= choices.undo_of(giver, given, Decision.SAME_AS)
        connection.execute(update(ENTRY).where(ENTRY.c.id == giver.id).values(**given))
        self._forget_read(connection, giver.scope_id)
        if change.event_id is not None:
            self._claim_event(connection, row_key, change.event_id)
        shown, body = choices.shown_of(giver._asdict())
        columns = {name: getattr(giver, name) for name in ("twin_digest", "channel_id", "ends_at", "sent_run", "copies")}
        columns |= {"body": body, "fingerprint": shown, "cover_url": None, "cover_on_error": None} | _NO_BASELINE | _IN_SOURCE
        columns |= {"candidate_id": None, "ignored_fingerprint": None, "attempts": 0, "unanswered_at": None}
        columns |= _answer(choices.ADOPTED, f"{self._by} said that it is the event of {change.adopted}")
        return columns | choices.drift_against((shown, body), choices.wanted_of(row._asdict()))

    def _check_lease(self, scope_id: int) -> None:
        if scope_id != self._run.scope_id and scope_id not in self._others:
            raise LeaseLostError(
                "the candidate of a held row has changed meanwhile; nothing was changed",
                hint="look at `eventsync rows` and repeat this command",
            )

    def _take_back(self, connection: Connection, situation: _Situation, columns: dict[str, Any]) -> None:
        row, undo, giver, now = situation.row, situation.undo, situation.giver, self._run.now()
        if undo is None or choices.is_ignored_anew(situation.record, undo):
            columns["ignored_fingerprint"] = None
        else:
            columns = choices.restored(row, undo) | {"undo": None, "updated_at": now}
        self._update(connection, row.id, columns)
        if giver is not None and columns.get("state") == EntryState.HELD:
            self._check_lease(giver.scope_id)
            self._update(connection, giver.id, {**choices.load_undo(giver.undo).before, "undo": None, "updated_at": now})
            self._forget_read(connection, giver.scope_id)

    def _claim_event(self, connection: Connection, row_key: RowKey, event_id: int) -> None:
        self._lock_destination(connection)
        taken = find_owners(connection, destination_of(self._run.scope_id), [event_id])
        if event_id in taken:
            raise EventTakenError(
                f"event {event_id} belongs to {taken[event_id]} already: it cannot be the event of {row_key} too",
                hint="one event belongs to one row; look up the id of this row's event on the service's pages",
            )

    def _lock_destination(self, connection: Connection) -> None:
        """Lock the destination, so that event ids are assigned by one transaction at a time."""
        others = select(SCOPE.c.id).where(SCOPE.c.destination == destination_of(self._run.scope_id)).order_by(SCOPE.c.id)
        connection.execute(others.with_for_update(key_share=True)).all()


def _weigh(connection: Connection, scope_id: int, row_keys: Sequence[RowKey], choice: Instruction) -> list[_Situation | None]:
    """Read the entries and decide about each, None if it does not exist; if several want the same event, none gets it."""
    situations = [_situation_of(connection, scope_id, row_key, choice) for row_key in row_keys]
    if choice.option is not Option.SAME_AS:
        return situations
    rivals = Counter(one.giver.id for one in situations if one and one.giver and isinstance(one.outcome, Change))
    for number, one in enumerate(situations):
        if one and one.giver and isinstance(one.outcome, Change) and rivals[one.giver.id] > 1:
            problem = f"{one.record.row_key}: the event of {one.giver.row_key} cannot become {rivals[one.giver.id]} rows"
            hint = "name one row with `--same-as`; `--release` sends the others"
            situations[number] = replace(one, outcome=NotPossibleError(problem, hint=hint))
    return situations


def _situation_of(connection: Connection, scope_id: int, row_key: RowKey, choice: Instruction) -> _Situation | None:
    row = _find(connection, ENTRY.c.scope_id == scope_id, ENTRY.c.row_key == row_key)
    if row is None:
        return None
    record, giver, undo, has_warnings = as_record(row), None, None, False
    if choice.option is Option.SAME_AS:
        giver = _giver(connection, row, choice)
    elif choice.option is Option.UNDO and row.undo:
        undo = choices.load_undo(row.undo)
        giver = None if undo.adopted_id is None else _find(connection, ENTRY.c.id == undo.adopted_id)
    elif choice.option is Option.IGNORE:
        listed = (PROBLEM.c.scope_id == scope_id, PROBLEM.c.kind == ProblemKind.WARNING.value, PROBLEM.c.listed_run != "")
        warned = select(exists().where(*listed, PROBLEM.c.row_key == storable(row.row_key)))
        has_warnings = bool(connection.execute(warned).scalar())
    other = None
    if giver is not None:
        place = ("", "") if giver.scope_id == scope_id else (giver.feed, giver.destination)
        other = choices.Other(as_record(giver), FeedName(place[0]), place[1])
    outcome: Change | NoChange | NotPossibleError
    try:
        outcome = choices.decide(record, choice, has_warnings=has_warnings, other=other, undo=undo)
    except NotPossibleError as problem:
        outcome = problem
    return _Situation(row, record, outcome, giver, undo)


def _giver(connection: Connection, row: choices.Record, choice: Instruction) -> choices.Record | None:
    """Return the entry that has the event: the named one, of the same feed or the candidate; otherwise the candidate."""
    candidate = None if row.candidate_id is None else _find(connection, ENTRY.c.id == row.candidate_id)
    if choice.row_key is None:
        return candidate
    named = _find(connection, ENTRY.c.scope_id == row.scope_id, ENTRY.c.row_key == choice.row_key)
    if named is None and (candidate is None or candidate.row_key != choice.row_key):
        raise NotPossibleError(f"there is no row {choice.row_key}", hint=f"`eventsync rows {row.feed}` shows the keys")
    return candidate if named is None else named


def _find(connection: Connection, *which: Any) -> choices.Record | None:
    return connection.execute(_WITH_SCOPE.where(*which)).one_or_none()


def _why_left_alone(record: RowRecord, states: Collection[EntryState]) -> str:
    """Return why a retry of these states does not send a row again, "" if it does."""
    if record.state is EntryState.PENDING:
        hint = "; if the service only repeats a denial that it has stored: `eventsync resolve FEED KEY --resend`"
        return "it is pending: the next run sends it" + hint * choices.waits_for_access(record)
    if record.state not in states:
        return f"it is {record.state.value.replace('_', ' ')}"
    is_gone = record.vanished_at is not None or record.past_at is not None or not record.is_asked_for
    return "the source no longer asks for it" if is_gone else ""


def _answer(code: str, message: str) -> dict[str, Any]:
    return {"answer": dump_answer(Answer(status=0, code=code, message=message))}
