"""Decisions that a person may take about an entry: their effects, by the rules of `state.facts`, and what people read of them:
their risks, and why one is not possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, NamedTuple

from sqlalchemy import Row

from mappings.errors import ConfigError
from mappings.row_key import FeedName, RowKey
from state import facts
from state.enums import Decision, DriftKind, EntryState, Grant, Observed, Outcome
from state.facts import Attempts, Tried, WhyNot, state_of
from state.ledger.standing import RowRecord

Record = Row[*tuple[Any, ...]]


class Option(StrEnum):
    """The decisions, by the options of `eventsync resolve`."""

    EVENT_ID = "--event-id"
    RESEND = "--resend"
    IGNORE = "--ignore"
    APPLIED = "--applied"
    SAME_AS = "--same-as"
    RELEASE = "--release"
    REMOVED = "--removed"
    UNDO = "--undo"


@dataclass(frozen=True, slots=True)
class Instruction:
    """A decision to carry out. `row_key`: whose event a held row takes over, None for its candidate's; `event_id`: the given
    id.
    """

    option: Option
    row_key: RowKey | None = None
    event_id: int = 0


@dataclass(frozen=True, slots=True)
class Other:
    """Another entry, whose event a held row takes over or has taken over. `feed` is "" if it is the same feed."""

    record: RowRecord
    feed: FeedName
    destination: str

    def __str__(self) -> str:
        return f"{self.record.row_key} of {self.feed}" if self.feed else str(self.record.row_key)


class Case(NamedTuple):
    """An entry to decide about: its row, the record of it, and its facts. `last`: the last decision about it; `other`: the entry
    whose event it takes over or gives back.
    """

    row: Record
    record: RowRecord
    outcome: Outcome
    attempts: Attempts
    observed: Observed
    last: Record | None = None
    other: Other | None = None
    has_warnings: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """The effect on the entry. `risk`: what may go wrong, for the person who decides; "" if nothing.

    `adopted`: the entry whose event this one takes over or gives back.
    """

    effect: facts.Change
    state: EntryState
    decision: Decision | None
    event_id: int | None = None
    risk: str = ""
    adopted: Other | None = None

    @property
    def is_next_revision(self) -> bool:
        """Whether the row is sent under its next key."""
        return self.effect.is_next_key


@dataclass(frozen=True, slots=True)
class NoChange:
    """The decision has no effect, for the given reason."""

    because: str


class NotPossibleError(ConfigError):
    """The decision is not possible for a row in this state; the hint says what is."""


RESOLVED, FOUND, ADOPTED = "resolved", "reconciled", "adopted"
"""Codes in an entry's last answer for the source of its event id: a person, the service's list, another key. Ignoring the row
later does not make the id the service's own.
"""
_RISK_OF_FORGOTTEN_KEY = (
    "an earlier attempt may have created the event. It is sent again under the same key: if the service has since forgotten"
    " the key, there will be two"
)
_RISK_OF_NEXT_KEY = "; if {}, it is sent under the next key: if the event exists then, there will be two as well"
_RISK_AFTER_REFUSAL = (
    "; if it is refused again, it or its next edit is sent under the next key: if the event exists, there will be two"
)
_RISK_AFTER_DENIAL = (
    "the service denied access when it was sent; an earlier attempt may have created the event. It is sent under the same key;"
    " if access is denied again, under the next one: if its event exists, created before this ledger was"
    " begun anew or restored, there will be two"
)
_RISK_OF_USED_KEY = "the service says that its key is used. It is sent under the next key: if the event exists, there will be two"
_DECISIONS = {
    Option.EVENT_ID: Decision.EVENT_ID,
    Option.RESEND: Decision.RESEND,
    Option.IGNORE: Decision.IGNORE,
    Option.APPLIED: Decision.APPLIED,
    Option.RELEASE: Decision.RELEASE,
    Option.REMOVED: Decision.REMOVED,
}


def decide(case: Case, choice: Instruction) -> Change | NoChange:
    """Return the effect of a decision on an entry. Raises `NotPossibleError`."""
    record, option = case.record, choice.option
    if option is Option.UNDO:
        return _undo(case)
    if option is Option.SAME_AS:
        return _adopt(case)
    if option is Option.IGNORE and record.is_set_aside:
        return NoChange("it is ignored already")
    if option is Option.EVENT_ID and case.outcome is Outcome.CREATED and (answer := _known_event(record, choice.event_id)):
        return answer
    decision = _DECISIONS[option]
    effect = facts.decide(decision, case.outcome, case.attempts, case.observed)
    if effect is WhyNot.NO_CHANGE and option is Option.IGNORE and case.has_warnings and record.state is EntryState.DELIVERED:
        effect = facts.Change(case.outcome)
    if isinstance(effect, WhyNot):
        return _SENTENCES[option](case)
    event_id = choice.event_id or record.event_id if effect.outcome in (Outcome.CREATED, Outcome.REMOVED) else None
    return Change(
        effect,
        _state_after(case, effect.outcome, event_id, is_next_key=effect.is_next_key),
        Decision.RETRY if effect.grant is Grant.RETRY else decision,
        event_id,
        _risk(case, effect) if effect.has_risk else "",
    )


def waits_for_access(record: RowRecord) -> bool:
    """Return whether the row is sent once access is granted, but may never be accepted, because the service may have stored the
    denial.

    A row that a person has sent again nevertheless does not wait.
    """
    is_owed = record.state in {EntryState.PENDING, EntryState.BLOCKED} and record.unanswered_at is None
    return is_owed and record.is_denied and record.decision is not Decision.RETRY


def _state_after(case: Case, outcome: Outcome, event_id: int | None, *, is_next_key: bool = False) -> EntryState:
    tried = Tried.NO if is_next_key else case.attempts.tried
    return state_of(outcome, tried, has_event_id=event_id is not None)


def _risk(case: Case, effect: facts.Change) -> str:
    """Return what may go wrong if a row goes out again of which an earlier attempt may have created the event."""
    record = case.record
    if effect.is_next_key:
        return _RISK_OF_USED_KEY
    if effect.grant is Grant.RETRY:
        return _RISK_AFTER_DENIAL
    risk = _RISK_OF_FORGOTTEN_KEY
    if record.is_refused:
        risk += _RISK_AFTER_REFUSAL
    if record.answer is not None and record.answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        risk += _RISK_OF_NEXT_KEY.format("the service only repeats the stored failure")
    if record.is_denied:
        risk += _RISK_OF_NEXT_KEY.format("access is denied again")
    return risk


def _known_event(record: RowRecord, event_id: int) -> NoChange | None:
    """Return that a delivered row has this id already, None if the id is to be corrected. Raises `NotPossibleError` if the
    service itself gave it.
    """
    if record.event_id == event_id:
        return NoChange(f"it is delivered as event {event_id}")
    if record.answer is None or record.answer.code not in {RESOLVED, FOUND}:
        hint = f"event {event_id} may be another row's: `eventsync rows` lists them all with their ids"
        problem = f"{record.row_key} was delivered as event {record.event_id}, by the service's own answer"
        raise NotPossibleError(problem, hint=hint)
    return None


def _no_event_to_take(case: Case) -> NoChange:
    row = case.record.row_key
    match case.outcome:
        case Outcome.HELD:
            hint = "`--same-as KEY` takes over the event of another key, `--release` sends the row"
            raise NotPossibleError(f"{row} is held as a likely copy: no event of its own was ever sent", hint=hint)
        case Outcome.REMOVED:
            hint = "`--undo` takes that back; `--resend` creates the event again once the row is back in its source"
            raise NotPossibleError(f"the event of {row} was removed from the service", hint=hint)
        case _:
            raise _without_event(case)


def _not_sent_again(case: Case) -> NoChange:
    record, row = case.record, case.record.row_key
    match case.outcome:
        case Outcome.OWED:
            return NoChange("the next run sends it")
        case Outcome.REMOVED:
            hint = "run the feed: once the row is back in its source, `--resend` creates its event again"
            raise NotPossibleError(f"the event of {row} was removed, and its source does not ask for it", hint=hint)
        case Outcome.CREATED:
            problem = f"{row} was delivered as event {record.event_id}: sending it again would make a second one"
            hint = "change or remove the event by hand on the service's pages; the service has no way to do it from here"
            raise NotPossibleError(problem, hint=hint)
        case Outcome.HELD:
            hint = "`--release` sends it; `--same-as KEY` says that it is the event of that row"
            raise NotPossibleError(f"{row} is held because it may be a copy of another event; it was not sent", hint=hint)
        case _:
            raise _without_event(case)


def _not_ignored(case: Case) -> NoChange:
    record = case.record
    match case.outcome:
        case Outcome.OWED:
            hint = "take the row out of the source, or let the mapping skip it, if it should not be sent"
            raise NotPossibleError(f"{record.row_key} needs no decision: the next run sends it", hint=hint)
        case Outcome.MOVED:
            return NoChange("its event was taken over by another key, and it needs no decision")
        case Outcome.IDLE:
            return NoChange("its source has withdrawn it, and it needs no decision")
        case _:
            as_event = "" if record.event_id is None else f" as event {record.event_id}"
            return NoChange(f"it is delivered{as_event}, and it needs no decision")


def _not_applied(case: Case) -> NoChange:
    record, row = case.record, case.record.row_key
    if record.drift_kind is DriftKind.CANCELLED:
        hint = "remove its event on the service's pages; then use `--removed`"
        raise NotPossibleError(f"the source has cancelled {row}: there is no change to apply", hint=hint)
    if record.drift_kind is DriftKind.RETURNED:
        hint = "`--resend` creates the event again, `--ignore` leaves it so"
        raise NotPossibleError(f"the event of {row} was removed by hand, and the row is back in its source", hint=hint)
    if case.outcome is Outcome.REMOVED:
        return NoChange("its event was removed, and the source asks for nothing")
    if not _has_event(record):
        problem = f"{row} is {_words(record.state)}: no event of it is known that could have been changed by hand"
        raise NotPossibleError(problem, hint="`--event-id N` names its event where there is one; then use `--applied`")
    return NoChange("the source matches what the service shows")


def _not_released(case: Case) -> NoChange:
    record = case.record
    if record.decision is Decision.RELEASE and record.state is EntryState.PENDING:
        return NoChange("it is released: the next run sends it")
    hint = "`--resend` sends a row again that was sent before"
    raise NotPossibleError(f"{record.row_key} is {_words(record.state)}: only a held row can be released", hint=hint)


def _not_removed(case: Case) -> NoChange:
    record, row = case.record, case.record.row_key
    if case.outcome is Outcome.REMOVED:
        return NoChange("its event was removed already")
    if _has_event(record):
        hint = "take the row out of the source or cancel it there, and run the feed; then use `--removed`"
        raise NotPossibleError(f"{row} is in its source, and not cancelled there", hint=hint)
    problem = f"{row} is {_words(record.state)}: no event of it is known that could have been removed"
    raise NotPossibleError(problem, hint="`--ignore` takes it off the list")


_SENTENCES = {
    Option.EVENT_ID: _no_event_to_take,
    Option.RESEND: _not_sent_again,
    Option.IGNORE: _not_ignored,
    Option.APPLIED: _not_applied,
    Option.RELEASE: _not_released,
    Option.REMOVED: _not_removed,
}


def _adopt(case: Case) -> Change | NoChange:
    record, row, other = case.record, case.record.row_key, case.other
    if record.decision is Decision.SAME_AS and (other is None or other.record.candidate_id == record.entry_id):
        return NoChange(f"it has taken over event {record.event_id}")
    if case.outcome is not Outcome.HELD:
        hint = "name the held row first, and the key that has the event after `--same-as`"
        raise NotPossibleError(f"{row} is {_words(record.state)}: only a held row takes over another key's event", hint=hint)
    if other is None:
        hint = "`--same-as KEY` names the key that has the event, `--release` sends the row"
        raise NotPossibleError(f"{row} has no single candidate whose event it could take over", hint=hint)
    giver, feed = other.record, other.feed or "FEED"
    if giver.entry_id == record.entry_id:
        raise NotPossibleError(f"{row} cannot take over its own event", hint="name the key that has the event")
    if not _has_event(giver):
        state = "removed from the service" if giver.removed_at is not None else _words(giver.state)
        hints = {
            EntryState.PENDING: f"`eventsync run {feed}` first",
            EntryState.BLOCKED: f"`eventsync run {feed}` first",
            EntryState.HELD: f"decide about {giver.row_key} first",
            EntryState.UNCERTAIN: f"`eventsync reconcile {feed}` looks for it; then repeat this command",
            EntryState.CONFLICT: f"`eventsync reconcile {feed}` looks for it; then repeat this command",
            EntryState.SUPERSEDED: "name the key that has the event now",
        }
        hint = hints.get(giver.state, "`--release` sends the row")
        raise NotPossibleError(f"{row}: no event of {other} is known that it could take over: it is {state}", hint=hint)
    outcome = Outcome.USED if giver.event_id is None else Outcome.CREATED
    return Change(facts.Change(outcome), giver.state, Decision.SAME_AS, giver.event_id, adopted=other)


def _undo(case: Case) -> Change | NoChange:
    """Return the entry as it was before the last decision. Too late: it was sent since, or has another answer."""
    record, last, other = case.record, case.last, case.other
    if last is None:
        return NoChange("nothing was decided about it")
    decision, was, adopted = Decision(last.option), Outcome(last.outcome), None
    match decision:
        case Decision.IGNORE:
            if not (was is Outcome.OWED and case.outcome is Outcome.UNCLEAR):  # what it is now, the decision has not made it
                return Change(facts.Change(case.outcome), record.state, None, record.event_id)
        case Decision.RESEND | Decision.RETRY | Decision.RELEASE:
            is_next_key = decision is Decision.RESEND and was in (Outcome.CONFLICT, Outcome.USED, Outcome.REMOVED)
            is_sent = record.revision != last.revision + is_next_key or (case.row.last_at or last.decided_at) > last.decided_at
            if is_sent or case.outcome not in (Outcome.OWED, Outcome.IDLE):
                raise _too_late(record, decision, "it was sent since, and ")
            is_pinned = case.observed is Observed.SAME and case.row.fingerprint != last.wish
            if case.outcome is Outcome.IDLE or (decision is Decision.RETRY and is_pinned):
                raise _too_late(record, decision)
        case Decision.SAME_AS:
            is_given = other is not None and other.record.candidate_id == record.entry_id
            if other is None or other.record.state is not EntryState.SUPERSEDED or not is_given:
                raise _too_late(record, decision, f"{other or 'the row that had the event'} is back in its source, and ")
            if not _has_event(record):
                raise _too_late(record, decision)
            adopted = other
        case _:
            as_left = {Decision.APPLIED: was, Decision.REMOVED: Outcome.REMOVED}.get(decision, Outcome.CREATED)
            if case.outcome is not as_left:
                raise _too_late(record, decision)
    is_next_key = record.revision != last.revision
    state = _state_after(case, was, last.event_id, is_next_key=is_next_key)
    return Change(facts.Change(was), state, None, last.event_id, adopted=adopted)


def _has_event(record: RowRecord) -> bool:
    is_delivered = record.state in {EntryState.DELIVERED, EntryState.DELIVERED_UNCONFIRMED}
    return is_delivered and record.removed_at is None


def _too_late(record: RowRecord, decision: Decision, why: str = "") -> NotPossibleError:
    problem = f"what was decided about {record.row_key} ({decision}) cannot be taken back: {why}it is {_words(record.state)} now"
    hint = "a wrong event id is corrected by `--event-id` with the right one; `eventsync rows` shows the row's state"
    return NotPossibleError(problem, hint=hint)


def _without_event(case: Case) -> NotPossibleError:
    """Return the error for a row whose event is another's, or of which nothing was created."""
    row = case.record.row_key
    if case.outcome is Outcome.IDLE:
        hint = "once the row is back in its source, the next run sends it"
        return NotPossibleError(f"{row} was refused, and its source has withdrawn it: no event of it was created", hint=hint)
    problem = f"the event of {row} was taken over by another key: sent again, there would be a second one"
    return NotPossibleError(problem, hint="`--undo` for that other key gives the event back")


def _words(state: EntryState) -> str:
    return state.value.replace("_", " ")
