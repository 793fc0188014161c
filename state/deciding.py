"""What a person's choice does to a ledger entry: a pure decision over closed unions, with the risk that goes with it.

How it is written, and who may write it when, is `decisions`'.

| the entry is              | `event_id`   | `resend`                        | `ignore`                     |
|---------------------------|--------------|---------------------------------|------------------------------|
| pending, unanswered       | delivered    | pending, same key: a risk       | uncertain, set aside         |
| pending, access denied    | delivered    | pending, same key, then next: a risk | not possible: nothing waits |
| pending otherwise         | delivered    | as it is: the next run sends it | not possible: nothing waits  |
| delivered                 | see below    | not possible                    | set aside, if drifted or gone|
| delivered_unconfirmed     | delivered    | pending, next key: a risk       | set aside                    |
| refused                   | delivered    | pending, same key: a retry      | set aside                    |
| blocked                   | delivered    | pending, same key, then next: a risk | set aside               |
| uncertain                 | delivered    | pending, same key: a risk       | set aside                    |
| conflict                  | delivered    | pending, next key: a risk       | set aside                    |

An id that the service itself has told stands; one that a person or a list has told may be corrected by a person.
The service has answered 409 for the key of a row that is in conflict or unconfirmed, and would do so again: only another
key can create its event. What is set aside stays in its state; `undo` lists it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import assert_never

from mappings.errors import ConfigError
from state.views import RowRecord
from state.words import Decision, EntryState


@dataclass(frozen=True, slots=True)
class TakeEvent:
    """`event_id`: the row is delivered, as the event of this id."""

    event_id: int


@dataclass(frozen=True, slots=True)
class Resend:
    """`resend`: the row may be sent again."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """`ignore`: nobody needs to look at the row."""


@dataclass(frozen=True, slots=True)
class TakeBack:
    """`undo`: what was set aside is listed again; a `resend` that no run has acted on yet is taken back."""


Choice = TakeEvent | Resend | SetAside | TakeBack


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the entry. `risk`: what may go wrong, as a person should know beforehand; "" if nothing can."""

    state: EntryState
    decision: Decision | None
    event_id: int | None = None
    is_next_revision: bool = False
    risk: str = ""


@dataclass(frozen=True, slots=True)
class AsItIs:
    """Nothing is to be done, for the reason given: what was chosen is so already."""

    because: str


class NotPossibleError(ConfigError):
    """What was chosen cannot be done with a row in this state; the hint says what can."""


RESOLVED, FOUND = "resolved", "reconciled"
"""Whose word the id of an event is, as the code of the entry's last answer: a person's, a list's. A decision that comes
later, to set the row aside, does not make it the service's own."""

_FORGOTTEN = (
    "an earlier attempt was never answered. It is sent again under the same key: if the service has created the event"
    " then and has forgotten the key since, there will be two"
)
_KEPT_FAILURE = (
    "; and where the service only repeats its failure under that key, it goes out under the next one: if the event was created"
    " before that failure was told, there will be two as well"
)
_KEPT_DENIAL = (
    "; and where access is denied once more, it goes out under the next one: if the event exists, there will be two as well"
)
_DENIED = (
    "the service denied access when it was sent, which says nothing of what was sent before. It is sent under the same key;"
    " where access is denied once more, under the next one: if its event exists after all, made before this ledger was"
    " begun anew or restored, there will be two"
)
_USED_KEY = (
    "the service has said that its key is used. It is sent under the next key: if the event exists after all, there will be two"
)


def decide(record: RowRecord, choice: Choice) -> Change | AsItIs:
    """Decide what a choice does to an entry. Raises `NotPossibleError`."""
    match choice:
        case TakeEvent(event_id):
            return _take_event(record, event_id)
        case Resend():
            return _resend(record)
        case SetAside():
            return _set_aside(record)
        case TakeBack():
            return _take_back(record)
        case _:
            assert_never(choice)


def _take_event(record: RowRecord, event_id: int) -> Change | AsItIs:
    if record.state is EntryState.DELIVERED:
        if record.event_id == event_id:
            return AsItIs(f"it is delivered as event {event_id}")
        if record.answer is None or record.answer.code not in {RESOLVED, FOUND}:
            raise NotPossibleError(
                f"{record.row_key} was delivered as event {record.event_id}, by the service's own answer",
                hint=f"event {event_id} may be another row's: `eventsync rows` lists them all with their ids",
            )
    return Change(EntryState.DELIVERED, Decision.EVENT_ID, event_id)


def _resend(record: RowRecord) -> Change | AsItIs:
    is_unanswered = record.unanswered_at is not None
    match record.state:
        case EntryState.PENDING | EntryState.BLOCKED if waits_for_access(record):
            return Change(EntryState.PENDING, Decision.RETRY, risk=_DENIED)
        case EntryState.PENDING if record.decision is Decision.RESEND or not is_unanswered:
            return AsItIs("the next run sends it")
        case EntryState.PENDING | EntryState.UNCERTAIN:
            return Change(EntryState.PENDING, Decision.RESEND, risk=_risk_of_unanswered(record))
        case EntryState.BLOCKED if is_unanswered:
            return Change(EntryState.PENDING, Decision.RESEND, risk=_risk_of_unanswered(record))
        case EntryState.REFUSED | EntryState.BLOCKED:
            return Change(EntryState.PENDING, Decision.RETRY)
        case EntryState.CONFLICT | EntryState.DELIVERED_UNCONFIRMED:
            return Change(EntryState.PENDING, Decision.RESEND, is_next_revision=True, risk=_USED_KEY)
        case EntryState.DELIVERED:
            raise NotPossibleError(
                f"{record.row_key} was delivered as event {record.event_id}: sending it again would make a second one",
                hint="change or remove the event by hand on the service's pages; the service has no way to do it from here",
            )
        case EntryState.HELD | EntryState.SUPERSEDED:
            raise NotPossibleError(
                f"{record.row_key} is {record.state}: nothing was sent under this key",
                hint="`--release` sends a held row, `--same-as` says that it is an event that is known already",
            )
        case _:
            assert_never(record.state)


def waits_for_access(record: RowRecord) -> bool:
    """Whether the row is to be sent as soon as access is there, and may never find it: the service may have stored the denial.

    A row that a person has sent out in spite of that waits no longer.
    """
    is_owed = record.state in {EntryState.PENDING, EntryState.BLOCKED} and record.unanswered_at is None
    return is_owed and record.is_denied and record.decision is not Decision.RETRY


def _risk_of_unanswered(record: RowRecord) -> str:
    has_failed = record.answer is not None and record.answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return _FORGOTTEN + _KEPT_FAILURE * has_failed + _KEPT_DENIAL * record.is_denied


def _set_aside(record: RowRecord) -> Change | AsItIs:
    if record.is_set_aside:
        return AsItIs("it is set aside")
    match record.state:
        case EntryState.PENDING if record.unanswered_at is None:
            raise NotPossibleError(
                f"{record.row_key} waits for no person: the next run sends it",
                hint="take the row out of the source, or let the mapping skip it, if it should not be sent",
            )
        case EntryState.PENDING:
            return Change(EntryState.UNCERTAIN, Decision.IGNORE)
        case EntryState.DELIVERED if record.drift_kind is None and record.vanished_at is None:
            return AsItIs(f"it is delivered as event {record.event_id}, and nothing about it waits for a person")
        case _:
            return Change(record.state, Decision.IGNORE, record.event_id)


def _take_back(record: RowRecord) -> Change | AsItIs:
    if record.is_set_aside:
        return Change(record.state, None, record.event_id)
    if record.state is EntryState.PENDING and record.decision is Decision.RESEND and record.unanswered_at is not None:
        return Change(EntryState.UNCERTAIN, None)
    if record.state is EntryState.PENDING and record.decision is Decision.RETRY and record.is_denied:
        return Change(EntryState.PENDING, None)
    if record.decision is None:
        return AsItIs("nothing was decided about it")
    raise NotPossibleError(
        f"what was decided about {record.row_key} ({record.decision}) cannot be taken back: it is {record.state} now",
        hint="a wrong event id is corrected by `--event-id` with the right one",
    )
