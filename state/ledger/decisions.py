"""Records people's decisions about rows, and events found in the service's list, in one transaction under the feed's lease.

A decision is a row, with the entry before it; the last one of an entry counts. One function writes any of them, and one takes any
of them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from mappings.delivery import Answer
from mappings.errors import ConfigError
from mappings.row_key import FeedName, RowKey
from state import facts
from state.database import in_pages, insert_if_new, put_all, reading
from state.enums import Decision, EntryState, Grant, Observed, Outcome, ProblemKind
from state.errors import LeaseLostError
from state.ledger import choices
from state.ledger.accounts import dump_answer
from state.ledger.choices import Case, Change, Instruction, NoChange, NotPossibleError, Option, Record
from state.ledger.entries import (
    FACTS,
    IS_GONE,
    IS_IGNORED,
    IS_OPEN,
    WISH,
    attempts_of,
    columns_of,
    destination_of,
    find_owners,
    forget_observations,
    in_facts,
    kind_of_drift,
    mark_anew,
    observe,
)
from state.ledger.lease import FencedTransaction, Lease, show_token
from state.ledger.standing import RECORDS, FeedScope, RowRecord, as_records
from state.tables import ATTEMPT, BODY, DECISION, ENTRY, OBSERVATION, PROBLEM, SCOPE, storable

RETRIABLE = (EntryState.REFUSED, EntryState.BLOCKED)
"""The states of rows that `retry` sends again."""
Proposal = Change | NoChange | NotPossibleError | None
_CASES = RECORDS.add_columns(
    *(WISH.label("wish"), BODY.c.cover_url, BODY.c.cover_on_error, ENTRY.c.sent_run.label("sent_number")),
    *(OBSERVATION.c[name].label(f"asked_{name}") for name in ("fingerprint", "cover_url", "cover_on_error")),
)
_IS_BLANK = (
    *(ATTEMPT.c.requests == 0, ~ATTEMPT.c.is_limited, ATTEMPT.c.granted.is_(None)),
    *(ATTEMPT.c.refused_id.is_(None), ATTEMPT.c.denied_id.is_(None)),
)
_CODES: dict[str, str] = {
    Decision.EVENT_ID: choices.RESOLVED,
    Decision.RECONCILED: choices.FOUND,
    Decision.SAME_AS: choices.ADOPTED,
}
"""The decisions that replace the last answer, by the source of the event's id."""


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


class _Payload(NamedTuple):
    """A payload that is shown or asked for."""

    body: bytes
    fingerprint: str
    cover_url: str | None = None
    cover_on_error: str | None = None


def propose(engine: sa.Engine, feed: FeedScope, row_keys: Sequence[RowKey], choice: Instruction) -> dict[RowKey, Proposal]:
    """Return the effect of a decision on these rows, without writing.

    The value is the error if it is not possible, None if the ledger has no such row.
    """
    with reading(engine) as connection:
        scopes = sa.select(SCOPE.c.id).where(SCOPE.c.destination == feed.destination, SCOPE.c.feed == feed.feed)
        weighed = _weigh(connection, connection.execute(scopes).scalar_one(), row_keys, choice)
    return {row_key: outcome for row_key, (_, outcome) in zip(row_keys, weighed, strict=True)}


def raise_all(outcomes: Collection[Proposal]) -> None:
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

        A row that is refused again is sent under its next key. A row whose channel was denied is not, since that does not prove
        that nothing was created. Rows that the source no longer asks for, and ignored rows that are not named, are left as they
        are. Pending rows whose access was denied are reported.
        """
        records = RECORDS.where(ENTRY.c.scope_id == self._run.scope_id).order_by(ENTRY.c.id)
        with self._transaction() as connection:
            if row_keys is None:  # of those whose access was denied there are no more than were in flight at a time
                denied = records.where(ENTRY.c.outcome == Outcome.OWED.value, ATTEMPT.c.denied_id.is_not(None))
                meant = [*filter(choices.waits_for_access, as_records(connection, connection.execute(denied).all()))]
            else:
                rows = (connection.execute(records.where(ENTRY.c.row_key == row_key)).all() for row_key in row_keys)
                meant = list(as_records(connection, [row for found in rows for row in found]))
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
            weighed = _weigh(connection, self._run.scope_id, row_keys, choice)
            raise_all([outcome for _, outcome in weighed])
            for case, outcome in weighed:
                if case is None or not isinstance(outcome, Change | NoChange):
                    raise NotPossibleError("there is no such row in the ledger", hint="`eventsync rows` shows the keys")
                if isinstance(outcome, Change):
                    self._carry_out(connection, case, outcome)
                rows = connection.execute(RECORDS.where(ENTRY.c.id == case.row.id)).all()
                resolved.append(Resolved(outcome, case.record, *as_records(connection, rows)))
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
    def _transaction(self) -> Iterator[sa.Connection]:
        with self._run.transaction() as connection:
            for lease in self._others.values():
                show_token(connection, lease.scope_id, lease.token, lease.clock)
            yield connection

    def _forget_read(self, connection: sa.Connection, scope_id: int | None = None) -> None:
        """Make the next run read the source even if it is unchanged: its rows may have other outcomes now."""
        connection.execute(sa.update(SCOPE).where(SCOPE.c.id == (scope_id or self._run.scope_id)).values(stamp=""))

    def _reopen(self, connection: sa.Connection, state: EntryState, row_keys: Collection[RowKey] | None) -> int:
        """Make rows in one state pending if their source still asks for them; return how many."""
        is_meant = facts.those(lambda outcome, tried, _: outcome is not Outcome.IDLE and facts.state_of(outcome, tried) is state)
        in_state = ENTRY.c.outcome.in_({outcome.value for outcome, *_ in is_meant})
        meant = (ENTRY.c.scope_id == self._run.scope_id, in_state, IS_OPEN, in_facts(is_meant), ~IS_GONE)
        effect = facts.Change(Outcome.OWED, grant=Grant.RETRY if state is EntryState.REFUSED else None)
        change = Change(effect, EntryState.PENDING, Decision.RETRY)
        named = [ENTRY.c.row_key.in_(page) for page in in_pages(sorted(row_keys or ()))]
        return sum(self._write(connection, change, *meant, which) for which in ([~IS_IGNORED] if row_keys is None else named))

    def _deliver(self, connection: sa.Connection, found: Found) -> bool:
        row = _find(connection, ENTRY.c.id == found.entry_id, ENTRY.c.revision == found.revision, ENTRY.c.event_id.is_(None))
        if row is None or (found.shown is not None and row.asked_body != found.shown):
            return False
        if row.outcome != Outcome.OWED and not facts.has_event(Outcome(row.outcome), attempts_of(row).tried):
            return False
        effect = facts.Change(Outcome.CREATED, takes_wanted=found.shown is not None)
        change = Change(effect, EntryState.DELIVERED, Decision.RECONCILED, found.event_id)
        self._write(connection, change, ENTRY.c.id == row.id, row=row, said=found.how)
        return True

    def _carry_out(self, connection: sa.Connection, case: Case, change: Change) -> None:
        row, record, other, said = case.row, case.record, change.adopted, ""
        if change.decision is None:
            self._take_back(connection, case, change)
            return
        if other is not None:
            self._check_lease(other.row.scope_id)
            left = {"outcome": Outcome.MOVED.value, "event_id": None, "revision": other.row.revision + 1}
            self._update(connection, other.row, left)
            said = f"{self._by} said that it is the event of {other}"
        elif change.decision is Decision.EVENT_ID:
            said = f"{self._by} said that it is event {change.event_id}; it was {record.state.replace('_', ' ')}"
        self._claim_event(connection, row, change.event_id)
        resembled = other.row.id if other else row.candidate_id if change.decision is Decision.RELEASE else None
        self._write(connection, change, ENTRY.c.id == row.id, row=row, said=said, other_id=resembled)
        if other is not None:
            self._move(connection, other.row, row, row.revision)
            self._observe(connection, row, change.effect.outcome, _Payload(other.row.body, other.row.fingerprint), _asked_of(row))

    def _write(
        self,
        connection: sa.Connection,
        change: Change,
        *which: sa.ColumnElement[bool],
        row: Record | None = None,
        said: str = "",
        other_id: int | None = None,
    ) -> int:
        """Record any decision about entries, with each as it was, and its effect; return how many there are.

        `row`: the entry, if it is one. `said`: whose word the event id is, as the last answer. A body is kept if it is replaced,
        or if a read may replace it under the next key.
        """
        now, decision, effect = self._run.now(), str(change.decision), change.effect
        these = sa.select(ENTRY.c.id).select_from(FACTS).where(*which)
        given = {"option": decision, "decided_by": self._by, "decided_at": now, "other_id": other_id}
        before: dict[str, Any] = {name: sa.literal(value, DECISION.c[name].type) for name, value in given.items()}
        before |= {name: ENTRY.c[name] for name in ("outcome", "revision", "event_id")} | {"entry_id": ENTRY.c.id, "wish": WISH}
        columns: dict[str, Any] = {"outcome": effect.outcome.value, "event_id": change.event_id, "changed_at": now}
        columns["revision"] = ENTRY.c.revision + int(effect.is_next_key)
        if row is not None and row.body is not None and (effect.takes_wanted or effect.is_next_key):
            before |= {name: sa.literal(getattr(row, name), DECISION.c[name].type) for name in ("body", "fingerprint")}
        if decision in _CODES:
            before["answer"] = ENTRY.c.answer
            columns["answer"] = dump_answer(Answer(0, _CODES[decision], said))
        connection.execute(sa.insert(DECISION).from_select(list(before), these.with_only_columns(*before.values())))
        if effect.grant is not None:
            if row is not None:
                blank = {"requests": 0, "is_limited": False, "last_at": now, "run": self._run.number}
                connection.execute(insert_if_new(connection, ATTEMPT), {"entry_id": row.id, "revision": row.revision, **blank})
            present = sa.select(ENTRY.c.revision).where(ENTRY.c.id == ATTEMPT.c.entry_id).scalar_subquery()
            of_key = (ATTEMPT.c.entry_id.in_(these), ATTEMPT.c.revision == present)
            connection.execute(sa.update(ATTEMPT).where(*of_key).values(granted=effect.grant.value))
        if row is not None and effect.takes_wanted:
            asked = _asked_of(row)
            columns |= self._put_body(connection, row, asked if effect.outcome is Outcome.OWED else _Payload(*asked[:2]))
        if row is not None and (effect.takes_wanted or decision == Decision.REMOVED):
            forget_observations(connection, [row.id])
        return connection.execute(sa.update(ENTRY).where(ENTRY.c.id.in_(these)).values(columns)).rowcount

    def _take_back(self, connection: sa.Connection, case: Case, change: Change) -> None:
        """Restore the entry as it was before its last decision, and observe anew what its source asks for."""
        row, last, was, other = case.row, case.last, change.effect.outcome, change.adopted
        if last is None:
            return
        decision, asked, shown = Decision(last.option), _asked_of(row), _Payload(row.body or b"", row.fingerprint)
        columns: dict[str, Any] = {"outcome": was.value, "event_id": change.event_id}
        self._claim_event(connection, row, change.event_id)
        if decision is not Decision.IGNORE:
            columns["revision"] = last.revision
        if decision in _CODES:
            columns["answer"] = last.answer
        if last.body is not None:
            shown = _Payload(last.body, last.fingerprint)
            columns |= self._put_body(connection, row, shown)
        if other is not None:
            self._check_lease(other.row.scope_id)
            columns |= {"fingerprint": asked.fingerprint, **columns_of(asked.body), "sent_run": None}
        self._update(connection, row, columns)
        if other is not None:
            self._move(connection, row, other.row, other.row.revision - 1)
        if decision is Decision.RELEASE:
            connection.execute(sa.delete(BODY).where(BODY.c.entry_id == row.id))
        if decision in (Decision.RESEND, Decision.RETRY):
            of_key = (ATTEMPT.c.entry_id == row.id, ATTEMPT.c.revision == row.revision)
            connection.execute(sa.update(ATTEMPT).where(*of_key).values(granted=None))
            connection.execute(sa.delete(ATTEMPT).where(*of_key, *_IS_BLANK))
        if decision is Decision.REMOVED and row.kind is None:
            observe(connection, [{"entry_id": row.id, "scope_id": row.scope_id, "kind": last.wish, "seen_at": self._run.now()}])
        elif decision is not Decision.IGNORE and (was is Outcome.HELD or row.kind is None or row.asked_body is not None):
            self._observe(connection, row, was, shown, asked, candidate_id=last.other_id)
        connection.execute(sa.delete(DECISION).where(DECISION.c.id == last.id))

    def _update(self, connection: sa.Connection, entry: Record, columns: dict[str, Any]) -> None:
        """Update an entry, and make the next run of its feed read the source."""
        changed = {**columns, "changed_at": self._run.now()}
        connection.execute(sa.update(ENTRY).where(ENTRY.c.id == entry.id).values(changed))
        self._forget_read(connection, entry.scope_id)

    def _move(self, connection: sa.Connection, giver: Record, taker: Record, revision: int) -> None:
        """Move an event with its body and the requests for it to another entry, with the `revision` of its key. The requests
        under all keys of the giver stand as one number under that key.
        """
        of_giver = ATTEMPT.c.entry_id == giver.id
        known = sa.select(*(sa.func.min(ATTEMPT.c.since), sa.func.max(ATTEMPT.c.last_at), sa.func.max(ATTEMPT.c.run)))
        since, last_at, run = connection.execute(known.where(of_giver, ATTEMPT.c.requests > 0)).one()
        connection.execute(sa.delete(ATTEMPT).where(of_giver))
        if since is not None:
            counted = {"requests": giver.copies, "since": since, "is_limited": False, "last_at": last_at, "run": run}
            connection.execute(sa.insert(ATTEMPT), {"entry_id": taker.id, "revision": revision, **counted})
        connection.execute(sa.update(BODY).where(BODY.c.entry_id == giver.id).values(entry_id=taker.id))
        mark_anew(connection, [(taker.id, giver.twin_digest)])
        moved = ("outcome", "event_id", "fingerprint", "twin_digest", "channel_id", "ends_at")
        columns = {name: getattr(giver, name) for name in moved}
        self._update(connection, taker, {**columns, "revision": revision, "sent_run": giver.sent_number})

    def _put_body(self, connection: sa.Connection, row: Record, payload: _Payload) -> dict[str, Any]:
        """Write an entry's body; return the columns that depend on it."""
        cover = {"cover_url": payload.cover_url, "cover_on_error": payload.cover_on_error}
        put_all(connection, BODY, [{"entry_id": row.id, "body": payload.body, **cover}])
        columns = (
            {"fingerprint": payload.fingerprint, **columns_of(payload.body)} if payload.fingerprint != row.fingerprint else {}
        )
        mark_anew(connection, [(row.id, columns.get("twin_digest", row.twin_digest))])
        return columns

    def _observe(
        self,
        connection: sa.Connection,
        row: Record,
        outcome: Outcome,
        shown: _Payload,
        asked: _Payload,
        *,
        candidate_id: int | None = None,
    ) -> None:
        """Record the difference between what an entry shows and what its source asks for."""
        if outcome not in (Outcome.HELD, Outcome.REMOVED) and shown.fingerprint == asked.fingerprint:
            forget_observations(connection, [row.id])
            return
        kinds = {Outcome.HELD: Observed.HELD, Outcome.REMOVED: Observed.RETURNED}
        kind = kinds.get(outcome) or kind_of_drift(shown.body, asked.body)
        seen = {"scope_id": row.scope_id, "kind": kind.value, "seen_at": self._run.now(), "candidate_id": candidate_id}
        observe(connection, [{"entry_id": row.id, **seen, **asked._asdict()}])

    def _check_lease(self, scope_id: int) -> None:
        if scope_id != self._run.scope_id and scope_id not in self._others:
            raise LeaseLostError(
                "the candidate of a held row has changed meanwhile; nothing was changed",
                hint="look at `eventsync rows` and repeat this command",
            )

    def _claim_event(self, connection: sa.Connection, row: Record, event_id: int | None) -> None:
        """Check that an event that the entry does not have yet is no other row's."""
        if event_id is None or event_id == row.event_id:
            return
        self._lock_destination(connection)
        taken = find_owners(connection, destination_of(self._run.scope_id), [event_id])
        if event_id in taken:
            raise EventTakenError(
                f"event {event_id} belongs to {taken[event_id]} already: it cannot be the event of {row.row_key} too",
                hint="one event belongs to one row; look up the id of this row's event on the service's pages",
            )

    def _lock_destination(self, connection: sa.Connection) -> None:
        """Lock the destination, so that event ids are assigned by one transaction at a time."""
        others = sa.select(SCOPE.c.id).where(SCOPE.c.destination == destination_of(self._run.scope_id)).order_by(SCOPE.c.id)
        connection.execute(others.with_for_update(key_share=True)).all()


def _weigh(
    connection: sa.Connection, scope_id: int, row_keys: Sequence[RowKey], choice: Instruction
) -> list[tuple[Case | None, Proposal]]:
    """Read the entries and decide about each, None if it does not exist; if several want the same event, none gets it."""
    weighed = [_weigh_one(connection, scope_id, row_key, choice) for row_key in row_keys]
    wanted = Counter(outcome.adopted.row.id for _, outcome in weighed if isinstance(outcome, Change) and outcome.adopted)
    for number, (case, outcome) in enumerate(weighed):
        other = outcome.adopted if isinstance(outcome, Change) else None
        if case and other and (rivals := wanted[other.row.id]) > 1:
            problem = f"{case.record.row_key}: the event of {other.record.row_key} cannot become {rivals} rows"
            hint = "name one row with `--same-as`; `--release` sends the others"
            weighed[number] = case, NotPossibleError(problem, hint=hint)
    return weighed


def _weigh_one(connection: sa.Connection, scope_id: int, row_key: RowKey, choice: Instruction) -> tuple[Case | None, Proposal]:
    row = _find(connection, ENTRY.c.scope_id == scope_id, ENTRY.c.row_key == row_key)
    if row is None:
        return None, None
    last, giver, has_warnings = None, None, False
    if choice.option is Option.SAME_AS:
        giver = _giver(connection, row, choice)
    elif choice.option is Option.UNDO:
        decided = sa.select(DECISION).where(DECISION.c.entry_id == row.id).order_by(DECISION.c.id.desc()).limit(1)
        last = connection.execute(decided).one_or_none()
        giver = _find(connection, ENTRY.c.id == last.other_id) if last and last.option == Decision.SAME_AS else None
    elif choice.option is Option.IGNORE:
        listed = (PROBLEM.c.scope_id == scope_id, PROBLEM.c.kind == ProblemKind.WARNING.value, PROBLEM.c.listed_run != "")
        warned = sa.select(sa.exists().where(*listed, PROBLEM.c.row_key == storable(row.row_key)))
        has_warnings = bool(connection.execute(warned).scalar())
    other = None
    if giver is not None:
        feed, destination = ("", "") if giver.scope_id == scope_id else (giver.feed, giver.destination)
        other = choices.Other(giver, next(as_records(connection, [giver])), FeedName(feed), destination)
    observed, attempts = Observed(row.kind or Observed.SAME), attempts_of(row)
    (record,) = as_records(connection, [row])
    case = Case(row, record, Outcome(row.outcome), attempts, observed, last, other, has_warnings)
    try:
        return case, choices.decide(case, choice)
    except NotPossibleError as problem:
        return case, problem


def _giver(connection: sa.Connection, row: Record, choice: Instruction) -> Record | None:
    """Return the entry that has the event: the named one, of the same feed or the candidate; otherwise the candidate."""
    candidate = None if row.candidate_id is None else _find(connection, ENTRY.c.id == row.candidate_id)
    if choice.row_key is None:
        return candidate
    named = _find(connection, ENTRY.c.scope_id == row.scope_id, ENTRY.c.row_key == choice.row_key)
    if named is None and (candidate is None or candidate.row_key != choice.row_key):
        raise NotPossibleError(f"there is no row {choice.row_key}", hint=f"`eventsync rows {row.feed}` shows the keys")
    return candidate if named is None else named


def _find(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> Record | None:
    return connection.execute(_CASES.where(*which)).one_or_none()


def _asked_of(row: Record) -> _Payload:
    """Return the payload that the source asks for: the observed one, or else the entry's."""
    prefix = "" if row.asked_body is None else "asked_"
    return _Payload(*(getattr(row, f"{prefix}{name}") for name in _Payload._fields))


def _why_left_alone(record: RowRecord, states: Collection[EntryState]) -> str:
    """Return why a retry of these states does not send a row again, "" if it does."""
    if record.state is EntryState.PENDING:
        hint = "; if the service only repeats a denial that it has stored: `eventsync resolve FEED KEY --resend`"
        return "it is pending: the next run sends it" + hint * choices.waits_for_access(record)
    if record.state not in states:
        return f"it is {record.state.value.replace('_', ' ')}"
    is_gone = record.vanished_at is not None or record.past_at is not None or not record.is_asked_for
    return "the source no longer asks for it" if is_gone else ""
