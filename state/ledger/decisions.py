"""What a person decides about rows, and what is found in the service's list, in one transaction under the feed's lease."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, case, exists, func, or_, select, update

from mappings.delivery import Answer
from mappings.errors import ConfigError
from mappings.row_key import FeedName, IdempotencyKey, RowKey, fingerprint, idempotency_key
from state.database import reading
from state.enums import Decision, DriftKind, EntryState, ProblemKind
from state.holders import LeaseLostError
from state.ledger.accounts import dump_answer
from state.ledger.choices import (
    ADOPTED,
    FOUND,
    RESOLVED,
    SEEKABLE,
    Apply,
    Beside,
    Change,
    Choice,
    NoChange,
    NotPossibleError,
    Other,
    Release,
    Remove,
    Resend,
    SameAs,
    SetAside,
    TakeBack,
    TakeEvent,
    Undo,
    decide,
    is_ignored_anew,
    may_be_removed,
    waits_for_access,
)
from state.ledger.entries import (
    CANCELLED,
    IS_SET_ASIDE,
    destination_of,
    duplicate_digest_of,
    earlier_events,
    ends_at_of,
    find_owners,
    is_forgotten,
    kind_of_drift,
    mark_anew,
    may_be_pinned_anew,
    used_revisions,
)
from state.ledger.gate import drop_bookmark
from state.ledger.lease import FencedTransaction, Lease, show_token
from state.ledger.standing import RECORDS, FeedScope, RowRecord, as_record
from state.tables import EARLIER, ENTRY, NO_DRIFT, PROBLEM, SCOPE, storable

_DECIDED = ("decision", "decided_at", "decided_by", "ignored_fingerprint")
_DRIFT = tuple(NO_DRIFT)
_BASELINE = ("baseline_body", "baseline_fingerprint", "twin_digest", "ends_at")
_PINNED = ("body", "cover_url", "cover_on_error", "fingerprint", "channel_id")
_SENT = (
    *("state", "idempotency_key", "revision", "event_id", "attempts", "copies", "unanswered_at", "answer"),
    *("refused_request_id", "denied_request_id", "removed_at"),
)
_PLACE = ("vanished_at", "past_at", "vanished_by", "candidate_id", "sent_run")
EVERY = (*_SENT, *_PINNED, *_BASELINE, *_DRIFT, *_DECIDED, *_PLACE)
"""All columns that a decision can change."""
CHANGED: Mapping[Decision, tuple[str, ...]] = {
    Decision.IGNORE: ("state", *_DECIDED),
    Decision.EVENT_ID: ("state", "event_id", "answer", "unanswered_at", *_DECIDED),
    Decision.RESEND: (*_SENT, *_PINNED, *_BASELINE, *_DRIFT, *_DECIDED),
    Decision.RETRY: (*_SENT, *_PINNED, *_BASELINE, *_DRIFT, *_DECIDED),
    Decision.APPLIED: (*_BASELINE, *_DRIFT, *_DECIDED),
    Decision.REMOVED: ("removed_at", *_DRIFT, *_DECIDED),
    Decision.RELEASE: ("state", "candidate_id", *_DECIDED),
    Decision.SAME_AS: EVERY,
}
"""The columns that each decision changes."""
_BODIES = frozenset({"body", "baseline_body", "drift_body"})
_TIMES = frozenset({"unanswered_at", "decided_at", "ends_at", "removed_at", "vanished_at", "past_at"})
Record = Row[*tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """The last decision, the columns before it, the entry that gave up its event, and the earlier events that were removed."""

    undo: Undo
    before: Mapping[str, Any]
    adopted_id: int | None = None
    revisions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What the source asks for now. `body` is None where it is not known: cancelled, or changes are not reported."""

    fingerprint: str
    body: bytes | None


def dump_kept(kept: UndoRecord) -> str:
    """Write it as JSON: bodies as text, digests as hexadecimal digits, times in ISO 8601."""
    undo = kept.undo
    return json.dumps(
        {
            "decision": undo.decision.value,
            "after": [undo.state.value, undo.revision, undo.attempts, undo.event_id],
            "is_of_event": undo.is_of_event,
            "before": {name: _encoded(name, value) for name, value in kept.before.items()},
            "adopted_id": kept.adopted_id,
            "revisions": list(kept.revisions),
        },
        separators=(",", ":"),
    )


def load_kept(stored: str) -> UndoRecord:
    """Read it."""
    kept = json.loads(stored)
    state, revision, attempts, event_id = kept["after"]
    return UndoRecord(
        Undo(Decision(kept["decision"]), EntryState(state), revision, attempts, event_id, is_of_event=kept["is_of_event"]),
        {name: _decoded(name, value) for name, value in kept["before"].items()},
        kept["adopted_id"],
        tuple(kept["revisions"]),
    )


def kept_of(row: Record, change: Change, columns: Mapping[str, Any]) -> UndoRecord:
    """Return what takes a decision back. `columns`: what it writes."""
    decision = Decision(columns["decision"])
    revision, attempts = columns.get("revision", row.revision), columns.get("attempts", row.attempts)
    undo = Undo(decision, change.state, revision, attempts, change.event_id)
    return UndoRecord(
        undo, columns_of(row, CHANGED[decision]), None if change.adopted is None else change.adopted.record.entry_id
    )


def columns_of(row: Record, names: Collection[str]) -> dict[str, Any]:
    """Return columns of an entry."""
    return {name: getattr(row, name) for name in names}


def shown_of(row: Record) -> Asked:
    """Return the baseline of an entry."""
    if row.baseline_body is not None:
        return Asked(row.baseline_fingerprint, row.baseline_body)
    return Asked(row.fingerprint, row.body)


def asked_of(row: Record) -> Asked:
    """Return what the source asks for now: the drift, or else the baseline."""
    return shown_of(row) if row.drift_fingerprint is None else Asked(row.drift_fingerprint, row.drift_body)


def restored(row: Record, kept: UndoRecord) -> dict[str, Any]:
    """Return the columns that take back the last decision about an entry.

    A baseline comes back as it was; what the source asks for now is drift against it.
    """
    before = dict(kept.before)
    match kept.undo.decision:
        case Decision.IGNORE if row.decision != Decision.IGNORE:  # the row has changed since, and is listed
            return {"ignored_fingerprint": before["ignored_fingerprint"]}
        case Decision.REMOVED if not kept.undo.is_of_event:
            return before if row.decision == Decision.REMOVED else {}
        case Decision.SAME_AS:
            before |= _held_as(before, asked_of(row))
        case Decision.APPLIED:
            before |= _drift_of(row, before)
        case Decision.REMOVED if row.drift_kind == DriftKind.RETURNED:
            before |= _drift_of(row, before)
        case Decision.RESEND | Decision.RETRY:
            before |= NO_DRIFT if _is_repinned(before) else _drift_of(row, before)
        case _:
            pass
    if before["decision"] == Decision.IGNORE and before["ignored_fingerprint"] != asked_of(row).fingerprint:
        before |= {"decision": None, "decided_at": None, "decided_by": None}
    return before


def drift_against(shown: Asked, asked: Asked, *, is_removed: bool = False) -> dict[str, Any]:
    """Return the drift columns of an entry that shows one thing and is asked for another."""
    if asked.fingerprint == CANCELLED:
        return {"drift_body": None, "drift_fingerprint": CANCELLED, "drift_kind": DriftKind.CANCELLED.value}
    if asked.fingerprint == shown.fingerprint and not is_removed:
        return dict(NO_DRIFT)
    if asked.body is None or shown.body is None:
        return {"drift_body": None, "drift_fingerprint": asked.fingerprint, "drift_kind": None}
    kind = DriftKind.RETURNED if is_removed else kind_of_drift(shown.body, asked.body)
    return {"drift_body": asked.body, "drift_fingerprint": asked.fingerprint, "drift_kind": kind.value}


def _drift_of(row: Record, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the source asks for now as drift against the baseline of `before`."""
    then = {**columns_of(row, EVERY), **before}
    has_baseline = then["baseline_body"] is not None
    shown = Asked(
        then["baseline_fingerprint" if has_baseline else "fingerprint"], then["baseline_body" if has_baseline else "body"]
    )
    return drift_against(shown, asked_of(row), is_removed=then["removed_at"] is not None)


def _held_as(before: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    """Return the body of an entry that is held again: what its source asks for now."""
    if asked.body is None or asked.fingerprint == before["fingerprint"]:
        return {}
    return {"body": asked.body, "fingerprint": asked.fingerprint, "row_digest": b""}


def _is_repinned(before: Mapping[str, Any]) -> bool:
    """Whether the next read may pin another body."""
    is_unanswered = before["unanswered_at"] is not None
    return may_be_pinned_anew(EntryState(before["state"]), before["attempts"], is_unanswered=is_unanswered)


def _encoded(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _BODIES:
        return value.decode()
    if name in _TIMES:
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value


def _decoded(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _BODIES:
        return value.encode()
    if name in _TIMES:
        return datetime.fromisoformat(value)
    return bytes.fromhex(value) if name == "twin_digest" else value


def applied(row: Record) -> dict[str, Any]:
    """Make the drift the baseline, as it was shown."""
    return {
        "baseline_body": row.drift_body,
        "baseline_fingerprint": row.drift_fingerprint,
        "twin_digest": duplicate_digest_of(row.drift_body),
        "ends_at": ends_at_of(row.drift_body),
        "ignored_fingerprint": None,
        **NO_DRIFT,
    }


def pinned(body: bytes) -> dict[str, Any]:
    """Pin a body. The next read adds its cover image, as the fingerprint is that of a payload without one."""
    return {
        "body": body,
        "fingerprint": fingerprint(body, ""),
        "cover_url": None,
        "cover_on_error": None,
        "twin_digest": duplicate_digest_of(body),
        "channel_id": json.loads(body)["channelId"],
        "ends_at": ends_at_of(body),
    }


def next_key(connection: Connection, row: Record, namespace: str, feed: FeedName) -> dict[str, Any]:
    """Give an entry the next key that none of its events has, under which nothing was sent."""
    used = used_revisions(connection, [row.id])[row.id]
    revision = row.revision + 1
    while revision in used:
        revision += 1
    key = idempotency_key(namespace, feed, RowKey(row.row_key), revision=revision)
    unsent = {"attempts": 0, "unanswered_at": None, "refused_request_id": "", "denied_request_id": ""}
    return {"revision": revision, "idempotency_key": key, **unsent}


_WITH_SCOPE = RECORDS.add_columns(SCOPE.c.feed, SCOPE.c.destination, SCOPE.c.namespace).join(
    SCOPE, SCOPE.c.id == ENTRY.c.scope_id
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a choice would do to a row: the error where it is not possible, None where the ledger has no such row."""

    row_key: RowKey
    outcome: Change | NoChange | NotPossibleError | None


@dataclass(frozen=True, slots=True)
class Situation:
    """One entry as it is decided on, with what stands beside it. `giver`: the entry whose event it takes over or gives back."""

    row: Record
    record: RowRecord
    beside: Beside
    giver: Record | None = None
    kept: UndoRecord | None = None


def raise_all(outcomes: Collection[Change | NoChange | NotPossibleError | None]) -> None:
    """Raise all that is not possible as one error."""
    problems = [outcome for outcome in outcomes if isinstance(outcome, NotPossibleError)]
    if problems:
        hints = dict.fromkeys(problem.hint for problem in problems)
        raise NotPossibleError("\n".join(map(str, problems)), hint=" ".join(hints))


def outcome_of(situation: Situation | None, choice: Choice) -> Change | NoChange | NotPossibleError | None:
    """Return what a choice does to an entry, None where there is none."""
    if situation is None:
        return None
    try:
        return decide(situation.record, choice, situation.beside)
    except NotPossibleError as problem:
        return problem


def without_rivals(
    row_keys: Sequence[RowKey], outcomes: Sequence[Change | NoChange | NotPossibleError | None]
) -> list[Change | NoChange | NotPossibleError | None]:
    """Return the outcomes; of several rows that would take over the same event, none can."""
    adopted = [outcome.adopted if isinstance(outcome, Change) and outcome.decision else None for outcome in outcomes]
    claims = Counter(other.record.entry_id for other in adopted if other is not None)
    return [
        outcome
        if other is None or claims[other.record.entry_id] == 1
        else NotPossibleError(
            f"{row_key}: the event of {other} cannot become {claims[other.record.entry_id]} rows",
            hint="name one row with `--same-as`; `--release` sends the others",
        )
        for row_key, outcome, other in zip(row_keys, outcomes, adopted, strict=True)
    ]


def situation_of(connection: Connection, scope_id: int, row_key: RowKey, choice: Choice) -> Situation | None:
    """Read an entry with what a choice has to know beside it; None where the ledger has no such row."""
    row = connection.execute(_WITH_SCOPE.where(ENTRY.c.scope_id == scope_id, ENTRY.c.row_key == row_key)).one_or_none()
    if row is None:
        return None
    record = record_of(connection, row)
    match choice:
        case SameAs():
            giver = _giver(connection, row, choice)
            return Situation(row, record, Beside(other=_other(connection, row, giver)), giver)
        case SetAside():
            return Situation(row, record, Beside(has_warnings=_has_warnings(connection, row)))
        case TakeBack() if row.undo:
            kept = load_kept(row.undo)
            giver = None if kept.adopted_id is None else find_entry_or_none(connection, ENTRY.c.id == kept.adopted_id)
            return Situation(row, record, Beside(other=_other(connection, row, giver), undo=kept.undo), giver, kept)
        case _:
            return Situation(row, record, Beside())


def _giver(connection: Connection, row: Record, choice: SameAs) -> Record | None:
    """Return the entry that has the event: the one named, of the same feed or the candidate; else the candidate."""
    candidate = None if row.candidate_id is None else find_entry_or_none(connection, ENTRY.c.id == row.candidate_id)
    if choice.row_key is None:
        return candidate
    named = find_entry_or_none(connection, ENTRY.c.scope_id == row.scope_id, ENTRY.c.row_key == choice.row_key)
    if named is None and (candidate is None or candidate.row_key != choice.row_key):
        raise NotPossibleError(f"there is no row {choice.row_key}", hint=f"`eventsync rows {row.feed}` shows the keys")
    return candidate if named is None else named


def _other(connection: Connection, row: Record, giver: Record | None) -> Other | None:
    if giver is None:
        return None
    is_near = giver.scope_id == row.scope_id
    place = ("", "") if is_near else (giver.feed, giver.destination)
    return Other(record_of(connection, giver), giver.scope_id, FeedName(place[0]), place[1])


def _has_warnings(connection: Connection, row: Record) -> bool:
    listed = (PROBLEM.c.scope_id == row.scope_id, PROBLEM.c.kind == ProblemKind.WARNING.value, PROBLEM.c.listed_run != "")
    return bool(connection.execute(select(exists().where(*listed, PROBLEM.c.row_key == storable(row.row_key)))).scalar())


def find_entry(connection: Connection, *which: Any) -> Record:
    """Read the one entry that meets these conditions, with its scope."""
    return connection.execute(_WITH_SCOPE.where(*which)).one()


def find_entry_or_none(connection: Connection, *which: Any) -> Record | None:
    """Read it, None where there is none."""
    return connection.execute(_WITH_SCOPE.where(*which)).one_or_none()


def record_of(connection: Connection, row: Record) -> RowRecord:
    """Return an entry as people are shown it, with its earlier events."""
    return replace(as_record(row), earlier_event_ids=earlier_events(connection, [row.id]).get(row.id, ()))


def propose(engine: Engine, book: FeedScope, row_keys: Sequence[RowKey], choice: Choice) -> tuple[Proposal, ...]:
    """Return what a choice would do to these rows; nothing is written."""
    with reading(engine) as connection:
        scopes = select(SCOPE.c.id).where(SCOPE.c.destination == book.destination, SCOPE.c.feed == book.feed)
        scope_id = connection.execute(scopes).scalar_one()
        outcomes = [outcome_of(situation_of(connection, scope_id, row_key, choice), choice) for row_key in row_keys]
    return tuple(Proposal(*pair) for pair in zip(row_keys, without_rivals(row_keys, outcomes), strict=True))


_PAGE = 500


@dataclass(frozen=True, slots=True)
class ReconcileCandidate:
    """One entry without an event id. A rival is not looked for, but may be the one whom an event belongs to: a row of
    another feed, one that was set aside, or one that the next run asks about by itself.

    `baseline`: what a person says the service shows, `asked`: what the source asks for now; None where it is `body`.
    """

    entry_id: int
    feed: FeedName
    row_key: RowKey
    state: EntryState
    key: IdempotencyKey
    revision: int
    body: bytes
    origin: str
    is_rival: bool
    baseline: bytes | None = None
    asked: bytes | None = None


def read_reconcile_candidates(
    engine: Engine, book: FeedScope, now: datetime, key_memory_s: float
) -> Iterator[ReconcileCandidate]:
    """Yield the entries of a destination whose events may be in the service's list, those of the book's feed and rivals.

    `key_memory_s`: an attempt that went unanswered longer ago than this many seconds is looked for; the next run asks
    about a younger one with its key.
    """
    is_stale = and_(ENTRY.c.state == EntryState.PENDING.value, is_forgotten(now, key_memory_s))
    is_sought = and_(SCOPE.c.feed == book.feed, or_(_is_seekable(), is_stale), ~IS_SET_ASIDE)
    is_sent = and_(ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.unanswered_at.is_not(None))
    entries = select(ENTRY, SCOPE.c.feed, is_sought.label("is_sought")).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    entries = entries.where(SCOPE.c.destination == book.destination, or_(_is_seekable(), is_sent)).order_by(ENTRY.c.id)
    after = 0
    while page := _page(engine, entries.where(ENTRY.c.id > after).limit(_PAGE)):
        yield from map(_as_sought, page)
        after = page[-1].id


def _page(engine: Engine, entries: Any) -> list[Row[*tuple[Any, ...]]]:
    with reading(engine) as connection:
        return list(connection.execute(entries))


def _is_seekable() -> ColumnElement[bool]:
    return ENTRY.c.state.in_([state.value for state in SEEKABLE])


def _as_sought(row: Row[*tuple[Any, ...]]) -> ReconcileCandidate:
    return ReconcileCandidate(
        entry_id=row.id,
        feed=FeedName(row.feed),
        row_key=RowKey(row.row_key),
        state=EntryState(row.state),
        key=IdempotencyKey(row.idempotency_key),
        revision=row.revision,
        body=row.body,
        origin=row.origin,
        is_rival=not row.is_sought,
        baseline=row.baseline_body,
        asked=row.drift_body,
    )


RETRIABLE = (EntryState.REFUSED, EntryState.BLOCKED)
"""The states of rows that `retry` sends again."""
_UNDECIDED = {"decision": None, "decided_at": None, "decided_by": None}


class UnknownRowError(ConfigError):
    """The ledger has no entry of a row that was named."""


class EventTakenError(ConfigError):
    """An event id was given to a row that another row of the same destination has."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A decision and the row as it was before and is now."""

    outcome: Change | NoChange
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
        columns["undo"] = dump_kept(UndoRecord(given, columns_of(giver, EVERY)))
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
        return columns | {"undo": dump_kept(UndoRecord(undo, columns_of(row, names), None, revisions))}

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
