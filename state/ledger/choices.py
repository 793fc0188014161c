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
from state.enums import Decision, EntryState, Grant, Observed, Outcome
from state.facts import Attempts, May, Tried, may_exist, state_of
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

    @property
    def decision(self) -> Decision:
        """The decision that the ledger stores."""
        return Decision(self.value.removeprefix("--").replace("-", "_"))


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

    row: Record
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
_WITH_EVENT = (Outcome.CREATED, Outcome.USED)
_SENTENCES: dict[tuple[str, str], tuple[str, str]] = {
    (Option.EVENT_ID, Outcome.HELD): (
        "{row} is held as a likely copy: no event of its own was ever sent",
        "`--same-as KEY` takes over the event of another key, `--release` sends the row",
    ),
    (Option.EVENT_ID, Outcome.REMOVED): (
        "the event of {row} was removed from the service",
        "`--undo` takes that back; `--resend` creates the event again once the row is back in its source",
    ),
    (Option.RESEND, Outcome.OWED): ("the next run sends it", ""),
    (Option.RESEND, Outcome.REMOVED): (
        "the event of {row} was removed, and its source does not ask for it",
        "run the feed: once the row is back in its source, `--resend` creates its event again",
    ),
    (Option.RESEND, Outcome.CREATED): (
        "{row} was delivered{event}: sending it again would make a second one",
        "change or remove the event by hand on the service's pages; the service has no way to do it from here",
    ),
    (Option.RESEND, Outcome.HELD): (
        "{row} is held because it may be a copy of another event; it was not sent",
        "`--release` sends it; `--same-as KEY` says that it is the event of that row",
    ),
    ("", Outcome.IDLE): (
        "{row} was refused, and its source has withdrawn it: no event of it was created",
        "once the row is back in its source, the next run sends it",
    ),
    ("", Outcome.MOVED): (
        "the event of {row} was taken over by another key: sent again, there would be a second one",
        "`--undo` for that other key gives the event back",
    ),
    (Option.IGNORE, Outcome.OWED): (
        "{row} needs no decision: the next run sends it",
        "take the row out of the source, or let the mapping skip it, if it should not be sent",
    ),
    (Option.IGNORE, Outcome.MOVED): ("its event was taken over by another key, and it needs no decision", ""),
    (Option.IGNORE, Outcome.IDLE): ("its source has withdrawn it, and it needs no decision", ""),
    (Option.IGNORE, ""): ("it is delivered{event}, and it needs no decision", ""),
    (Option.APPLIED, Observed.CANCELLED): (
        "the source has cancelled {row}: there is no change to apply",
        "remove its event on the service's pages; then use `--removed`",
    ),
    (Option.APPLIED, Observed.RETURNED): (
        "the event of {row} was removed by hand, and the row is back in its source",
        "`--resend` creates the event again, `--ignore` leaves it so",
    ),
    (Option.APPLIED, Outcome.REMOVED): ("its event was removed, and the source asks for nothing", ""),
    (Option.APPLIED, May.YES): ("the source matches what the service shows", ""),
    (Option.APPLIED, ""): (
        "{row} is {state}: no event of it is known that could have been changed by hand",
        "`--event-id N` names its event where there is one; then use `--applied`",
    ),
    (Option.RELEASE, ""): (
        "{row} is {state}: only a held row can be released",
        "`--resend` sends a row again that was sent before",
    ),
    (Option.REMOVED, Outcome.REMOVED): ("its event was removed already", ""),
    (Option.REMOVED, May.YES): (
        "{row} is in its source, and not cancelled there",
        "take the row out of the source or cancel it there, and run the feed; then use `--removed`",
    ),
    (Option.REMOVED, ""): (
        "{row} is {state}: no event of it is known that could have been removed",
        "`--ignore` takes it off the list",
    ),
}
"""Why a decision has no effect, by its option ("" for any) and what is so ("" for all else); with a hint it is not possible."""
_HINTS = {
    EntryState.PENDING: "`eventsync run {feed}` first",
    EntryState.BLOCKED: "`eventsync run {feed}` first",
    EntryState.HELD: "decide about {row} first",
    EntryState.UNCERTAIN: "`eventsync reconcile {feed}` looks for it; then repeat this command",
    EntryState.CONFLICT: "`eventsync reconcile {feed}` looks for it; then repeat this command",
    EntryState.SUPERSEDED: "name the key that has the event now",
}
"""What to do about an entry of which no event is known that a held row could take over."""


def decide(case: Case, choice: Instruction) -> Change | NoChange:
    """Return the effect of a decision on an entry. Raises `NotPossibleError`."""
    record, option = case.record, choice.option
    if option is Option.UNDO:
        return _undo(case)
    if option is Option.SAME_AS:
        return _adopt(case)
    if done := _already(case, choice):
        return done
    effect = facts.decide(option.decision, case.outcome, case.attempts, case.observed)
    if effect is None and option is Option.IGNORE and case.has_warnings and record.state is EntryState.DELIVERED:
        effect = facts.Change(case.outcome)
    if effect is None:
        return _no_effect(case, option)
    event_id = choice.event_id or record.event_id if effect.outcome in (Outcome.CREATED, Outcome.REMOVED) else None
    return Change(
        effect,
        _state_after(case, effect.outcome, event_id, is_next_key=effect.is_next_key),
        Decision.RETRY if effect.grant is Grant.RETRY else option.decision,
        event_id,
        _risk(case, effect) if effect.has_risk else "",
    )


def _no_effect(case: Case, option: Option) -> NoChange:
    """Return why a decision has no effect, by the first sentence that fits. Raises `NotPossibleError`."""
    record = case.record
    so = (case.observed, case.outcome, may_exist(case.outcome, case.attempts.tried), "")
    fitting = ((of, each) for of in (option, "") for each in so)
    sentence, hint = next(_SENTENCES[each] for each in fitting if each in _SENTENCES)
    event = "" if record.event_id is None else f" as event {record.event_id}"
    because = sentence.format(row=record.row_key, state=_words(record.state), event=event)
    if hint:
        raise NotPossibleError(because, hint=hint)
    return NoChange(because)


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


def _already(case: Case, choice: Instruction) -> NoChange | None:
    """Return that it was decided so before. Raises `NotPossibleError` for an event id if the service itself gave another."""
    record = case.record
    match choice.option:
        case Option.IGNORE if record.is_set_aside:
            return NoChange("it is ignored already")
        case Option.RELEASE if record.decision is Decision.RELEASE and record.state is EntryState.PENDING:
            return NoChange("it is released: the next run sends it")
        case Option.EVENT_ID if case.outcome is Outcome.CREATED and record.event_id == choice.event_id:
            return NoChange(f"it is delivered as event {choice.event_id}")
        case Option.EVENT_ID if case.outcome is Outcome.CREATED and not (
            record.answer and record.answer.code in (RESOLVED, FOUND)
        ):
            hint = f"event {choice.event_id} may be another row's: `eventsync rows` lists them all with their ids"
            problem = f"{record.row_key} was delivered as event {record.event_id}, by the service's own answer"
            raise NotPossibleError(problem, hint=hint)
    return None


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
    giver = other.record
    if giver.entry_id == record.entry_id:
        raise NotPossibleError(f"{row} cannot take over its own event", hint="name the key that has the event")
    if other.row.outcome not in _WITH_EVENT:
        state = "removed from the service" if giver.removed_at is not None else _words(giver.state)
        hint = _HINTS.get(giver.state, "`--release` sends the row").format(feed=other.feed or "FEED", row=giver.row_key)
        raise NotPossibleError(f"{row}: no event of {other} is known that it could take over: it is {state}", hint=hint)
    outcome = Outcome.USED if giver.event_id is None else Outcome.CREATED
    return Change(facts.Change(outcome), giver.state, Decision.SAME_AS, giver.event_id, adopted=other)


def _undo(case: Case) -> Change | NoChange:
    """Return the entry as it was before the last decision. Too late: it was sent since, or has another answer."""
    record, last, other = case.record, case.last, case.other
    if last is None:
        return NoChange("nothing was decided about it")
    decision, was, why = Decision(last.option), Outcome(last.outcome), ""
    if decision is Decision.IGNORE and not (was is Outcome.OWED and case.outcome is Outcome.UNCLEAR):
        return Change(facts.Change(case.outcome), record.state, None, record.event_id)  # what it is now, was not decided
    if decision in (Decision.RESEND, Decision.RETRY, Decision.RELEASE):
        is_next_key = decision is Decision.RESEND and was in (Outcome.CONFLICT, Outcome.USED, Outcome.REMOVED)
        is_claimed = record.revision != last.revision + is_next_key or (case.row.last_at or last.decided_at) > last.decided_at
        if is_claimed or case.outcome not in (Outcome.OWED, Outcome.IDLE):
            why = "it was sent since, and "
        is_pinned = case.observed is Observed.SAME and case.row.fingerprint != last.wish
        is_late = bool(why) or case.outcome is Outcome.IDLE or (decision is Decision.RETRY and is_pinned)
    elif decision is Decision.SAME_AS:
        if other is None or other.row.outcome != Outcome.MOVED or other.record.candidate_id != record.entry_id:
            why = f"{other or 'the row that had the event'} is back in its source, and "
        is_late = bool(why) or case.outcome not in _WITH_EVENT
    else:
        as_left = {Decision.APPLIED: was, Decision.REMOVED: Outcome.REMOVED, Decision.IGNORE: Outcome.UNCLEAR}
        is_late = case.outcome is not as_left.get(decision, Outcome.CREATED)
    if is_late:
        now = f"{why}it is {_words(record.state)} now"
        hint = "a wrong event id is corrected by `--event-id` with the right one; `eventsync rows` shows the row's state"
        problem = f"what was decided about {record.row_key} ({decision}) cannot be taken back: {now}"
        raise NotPossibleError(problem, hint=hint)
    state = _state_after(case, was, last.event_id, is_next_key=record.revision != last.revision)
    return Change(facts.Change(was), state, None, last.event_id, adopted=other)


def _words(state: EntryState) -> str:
    return state.value.replace("_", " ")
