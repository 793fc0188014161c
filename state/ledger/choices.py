"""The closed unions of deciding: what a person may choose for an entry, what stands beside it, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import assert_never

from mappings.errors import ConfigError
from mappings.row_key import FeedName, RowKey
from state.enums import Decision, DriftKind, EntryState
from state.ledger.standing import RowRecord


@dataclass(frozen=True, slots=True)
class TakeEvent:
    """`event_id`: the row is delivered, as the event of this id."""

    event_id: int


@dataclass(frozen=True, slots=True)
class Resend:
    """`resend`: the row may be sent again."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """`ignore`: the row is off every list until it changes at its source."""


@dataclass(frozen=True, slots=True)
class Apply:
    """`applied`: the drift was applied by hand at the service."""


@dataclass(frozen=True, slots=True)
class SameAs:
    """`same_as`: the held row is the event of another key. `row_key`: that key; None for the candidate that is shown."""

    row_key: RowKey | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """`release`: the held row is sent."""


@dataclass(frozen=True, slots=True)
class Remove:
    """`removed`: the event is gone from the service."""


@dataclass(frozen=True, slots=True)
class TakeBack:
    """`undo`: the last decision is taken back."""


Choice = TakeEvent | Resend | SetAside | Apply | SameAs | Release | Remove | TakeBack


@dataclass(frozen=True, slots=True)
class Other:
    """Another entry, whose event a held row takes over or has taken over. `feed` is "" where it is of the same feed."""

    record: RowRecord
    scope_id: int
    feed: FeedName
    destination: str

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.record.row_key} of {self.feed}" if self.feed else str(self.record.row_key)


@dataclass(frozen=True, slots=True)
class Undo:
    """The last decision about an entry, and the entry as that decision left it. `is_of_event`: not only of earlier events."""

    decision: Decision
    state: EntryState
    revision: int
    attempts: int
    event_id: int | None
    is_of_event: bool = True


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known of a row beside its entry. `other`: the entry that `same_as` means, or whose event was taken over."""

    has_warnings: bool = False
    other: Other | None = None
    undo: Undo | None = None


NOTHING_BESIDE = Beside()


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the entry. `risk`: what may go wrong, as a person should know beforehand; "" if nothing can.

    `removed`: the events that are gone from the service; `adopted`: the entry whose event this one takes over or gives back.
    """

    state: EntryState
    decision: Decision | None
    event_id: int | None = None
    is_next_revision: bool = False
    risk: str = ""
    removed: tuple[int, ...] = ()
    adopted: Other | None = None


@dataclass(frozen=True, slots=True)
class NoChange:
    """Nothing is to be done, for the reason given: what was chosen is so already."""

    because: str


class NotPossibleError(ConfigError):
    """What was chosen cannot be done with a row in this state; the hint says what can."""


RESOLVED, FOUND, ADOPTED = "resolved", "reconciled", "adopted"
"""The source of an event's id, as the code of the entry's last answer: a person, the service's list, another key. A later
decision, to ignore the row, does not make the id the service's own."""
FORGOTTEN = (
    "an earlier attempt was never answered. It is sent again under the same key: if the service has created the event"
    " then and has forgotten the key since, there will be two"
)
KEPT_FAILURE = (
    "; and where the service only repeats its failure under that key, it goes out under the next one: if the event was created"
    " before that failure was told, there will be two as well"
)
KEPT_DENIAL = (
    "; and where access is denied once more, it goes out under the next one: if the event exists, there will be two as well"
)
DENIED = (
    "the service denied access when it was sent, which says nothing of what was sent before. It is sent under the same key;"
    " where access is denied once more, under the next one: if its event exists after all, made before this ledger was"
    " begun anew or restored, there will be two"
)
USED_KEY = (
    "the service has said that its key is used. It is sent under the next key: if the event exists after all, there will be two"
)
"""The risks of `resend`, for people."""


def decide(  # noqa: C901, PLR0911  # one arm per choice
    record: RowRecord, choice: Choice, beside: Beside = NOTHING_BESIDE
) -> Change | NoChange:
    """Decide what a choice does to an entry. Raises `NotPossibleError`."""
    match choice:
        case TakeEvent(event_id):
            return _take_event(record, event_id)
        case Resend():
            return _resend(record)
        case SetAside():
            return _set_aside(record, beside)
        case Apply():
            return _apply(record)
        case SameAs():
            return _adopt(record, beside.other)
        case Release():
            return _release(record)
        case Remove():
            return _remove(record)
        case TakeBack():
            return _take_back(record, beside)
        case _:
            assert_never(choice)


def shows_event(record: RowRecord) -> bool:
    """Whether the service shows an event of the entry, as far as we know."""
    has_event = record.state in {EntryState.DELIVERED, EntryState.DELIVERED_UNCONFIRMED}
    return has_event and record.removed_at is None


def may_be_removed(record: RowRecord) -> bool:
    """Whether the entry's event, and not only an earlier one, is what a person has to remove."""
    return shows_event(record) and (record.vanished_at is not None or record.drift_kind is DriftKind.CANCELLED)


def _take_event(record: RowRecord, event_id: int) -> Change | NoChange:
    match record.state:
        case EntryState.HELD:
            raise NotPossibleError(
                f"{record.row_key} is held as a likely copy: no event of its own was ever sent",
                hint="`--same-as KEY` takes over the event of another key, `--release` sends the row",
            )
        case EntryState.SUPERSEDED:
            raise NotPossibleError(
                f"the event of {record.row_key} was taken over by another key",
                hint="`--undo` for that other key gives it back",
            )
        case _ if record.removed_at is not None:
            raise NotPossibleError(
                f"the event of {record.row_key} was removed from the service",
                hint="`--undo` takes that back; `--resend` creates the event again once the row is back in its source",
            )
        case EntryState.DELIVERED if record.event_id == event_id:
            return NoChange(f"it is delivered as event {event_id}")
        case EntryState.DELIVERED if record.answer is None or record.answer.code not in {RESOLVED, FOUND}:
            raise NotPossibleError(
                f"{record.row_key} was delivered as event {record.event_id}, by the service's own answer",
                hint=f"event {event_id} may be another row's: `eventsync rows` lists them all with their ids",
            )
        case _:
            return Change(EntryState.DELIVERED, Decision.EVENT_ID, event_id)


def _resend(record: RowRecord) -> Change | NoChange:  # noqa: C901, PLR0911  # one arm per state
    is_unanswered = record.unanswered_at is not None
    match record.state:
        case EntryState.DELIVERED | EntryState.DELIVERED_UNCONFIRMED if record.removed_at is not None:
            return _create_again(record)
        case EntryState.PENDING | EntryState.BLOCKED if waits_for_access(record):
            return Change(EntryState.PENDING, Decision.RETRY, risk=DENIED)
        case EntryState.PENDING if record.decision is Decision.RESEND or not is_unanswered:
            return NoChange("the next run sends it")
        case EntryState.PENDING | EntryState.UNCERTAIN:
            return Change(EntryState.PENDING, Decision.RESEND, risk=_risk_of_unanswered(record))
        case EntryState.BLOCKED if is_unanswered:
            return Change(EntryState.PENDING, Decision.RESEND, risk=_risk_of_unanswered(record))
        case EntryState.REFUSED | EntryState.BLOCKED:
            return Change(EntryState.PENDING, Decision.RETRY)
        case EntryState.CONFLICT | EntryState.DELIVERED_UNCONFIRMED:
            return Change(EntryState.PENDING, Decision.RESEND, is_next_revision=True, risk=USED_KEY)
        case EntryState.DELIVERED:
            raise NotPossibleError(
                f"{record.row_key} was delivered as event {record.event_id}: sending it again would make a second one",
                hint="change or remove the event by hand on the service's pages; the service has no way to do it from here",
            )
        case EntryState.HELD:
            raise NotPossibleError(
                f"{record.row_key} is held as a likely copy: nothing was sent yet",
                hint="use `--release` to send it, or `--same-as` where it is an event that is known already",
            )
        case EntryState.SUPERSEDED:
            raise NotPossibleError(
                f"the event of {record.row_key} was taken over by another key: sending it again would make a second one",
                hint="`--undo` for that other key gives the event back",
            )
        case _:
            assert_never(record.state)


def _create_again(record: RowRecord) -> Change:
    if record.drift_body is None:
        raise NotPossibleError(
            f"the event of {record.row_key} was removed, and its source does not ask for it",
            hint="run the feed: once the row is back in its source, `--resend` creates its event again",
        )
    return Change(EntryState.PENDING, Decision.RESEND, is_next_revision=True)


def waits_for_access(record: RowRecord) -> bool:
    """Whether the row is to be sent as soon as access is there, and may never find it: the service may have stored the denial.

    A row that a person has sent out in spite of that waits no longer.
    """
    is_owed = record.state in {EntryState.PENDING, EntryState.BLOCKED} and record.unanswered_at is None
    return is_owed and record.is_denied and record.decision is not Decision.RETRY


def _risk_of_unanswered(record: RowRecord) -> str:
    has_failed = record.answer is not None and record.answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return FORGOTTEN + KEPT_FAILURE * has_failed + KEPT_DENIAL * record.is_denied


def _set_aside(record: RowRecord, beside: Beside) -> Change | NoChange:
    if record.is_set_aside:
        return NoChange("it is ignored already")
    match record.state:
        case EntryState.PENDING if record.unanswered_at is None:
            raise NotPossibleError(
                f"{record.row_key} waits for no person: the next run sends it",
                hint="take the row out of the source, or let the mapping skip it, if it should not be sent",
            )
        case EntryState.PENDING:
            return Change(EntryState.UNCERTAIN, Decision.IGNORE)
        case EntryState.SUPERSEDED:
            return NoChange("its event was taken over by another key, and nothing about it waits for a person")
        case EntryState.DELIVERED if not (beside.has_warnings or _is_listed(record)):
            if record.earlier_event_ids:
                raise NotPossibleError(
                    f"only earlier events of {record.row_key} are listed: {_ids(record.earlier_event_ids)}",
                    hint="remove them on the service's pages; then `--removed` takes them off the list",
                )
            return NoChange(f"it is delivered as event {record.event_id}, and nothing about it waits for a person")
        case _:
            return Change(record.state, Decision.IGNORE, record.event_id)


def _is_listed(record: RowRecord) -> bool:
    is_vanished = record.vanished_at is not None and record.removed_at is None
    return record.drift_kind is not None or is_vanished


def _apply(record: RowRecord) -> Change | NoChange:
    if record.drift_kind is DriftKind.CANCELLED:
        raise NotPossibleError(
            f"the source has cancelled {record.row_key}: there is no change to apply",
            hint="remove its event on the service's pages; then use `--removed`",
        )
    if record.drift_kind is DriftKind.RETURNED:
        raise NotPossibleError(
            f"the event of {record.row_key} was removed by hand, and the row is back in its source",
            hint="`--resend` creates the event again, `--ignore` leaves it so",
        )
    if record.removed_at is not None:
        return NoChange("its event was removed, and the source asks for nothing")
    if not shows_event(record):
        raise NotPossibleError(
            f"{record.row_key} is {_words(record.state)}: no event of it is known that could have been changed by hand",
            hint="`--event-id N` names its event where there is one; then use `--applied`",
        )
    if record.drift_kind is None or record.drift_body is None:
        return NoChange("the source asks for nothing else than what the service shows")
    return Change(record.state, Decision.APPLIED, record.event_id)


def _adopt(record: RowRecord, other: Other | None) -> Change | NoChange:
    if record.decision is Decision.SAME_AS and (other is None or other.record.candidate_id == record.entry_id):
        return NoChange(f"it has taken over event {record.event_id}")
    if record.state is not EntryState.HELD:
        raise NotPossibleError(
            f"{record.row_key} is {_words(record.state)}: only a held row takes over the event of another key",
            hint="name the held row first, and the key that has the event after `--same-as`",
        )
    if other is None:
        raise NotPossibleError(
            f"{record.row_key} has no single candidate whose event it could take over",
            hint="`--same-as KEY` names the key that has the event, `--release` sends the row",
        )
    _check_giver(record, other)
    return Change(other.record.state, Decision.SAME_AS, other.record.event_id, adopted=other)


def _check_giver(record: RowRecord, other: Other) -> None:  # noqa: C901  # one arm per state
    giver, feed = other.record, other.feed or "FEED"
    match giver.state:
        case _ if giver.entry_id == record.entry_id:
            problem, hint = "a row cannot take over its own event", "name the key that has the event"
        case _ if giver.removed_at is not None:
            problem, hint = f"the event of {other} was removed from the service", "`--release` sends the row"
        case EntryState.DELIVERED | EntryState.DELIVERED_UNCONFIRMED:
            return
        case EntryState.PENDING | EntryState.BLOCKED:
            problem, hint = f"{other} is {giver.state} and has no event yet", f"`eventsync run {feed}` first"
        case EntryState.REFUSED:
            problem, hint = f"{other} was refused and has no event", "`--release` sends the row"
        case EntryState.HELD:
            problem, hint = f"{other} is held itself and has no event", f"decide about {giver.row_key} first"
        case EntryState.UNCERTAIN | EntryState.CONFLICT:
            problem = f"it is not known whether {other} has an event: it is {giver.state}"
            hint = f"`eventsync reconcile {feed}` looks for it; then say it again"
        case EntryState.SUPERSEDED:
            problem, hint = f"the event of {other} was taken over by another key", "name the key that has the event now"
        case _:
            assert_never(giver.state)
    raise NotPossibleError(f"{record.row_key}: {problem}", hint=hint)


def _release(record: RowRecord) -> Change | NoChange:
    if record.decision is Decision.RELEASE and record.state in {EntryState.HELD, EntryState.PENDING}:
        return NoChange("it is released: the next run sends it")
    if record.state is not EntryState.HELD:
        raise NotPossibleError(
            f"{record.row_key} is {_words(record.state)}: only a held row can be released",
            hint="`--resend` sends a row again that was sent before",
        )
    return Change(EntryState.PENDING if record.body else EntryState.HELD, Decision.RELEASE)


def _remove(record: RowRecord) -> Change | NoChange:
    earlier = record.earlier_event_ids
    if may_be_removed(record):
        own = () if record.event_id is None else (record.event_id,)
        return Change(record.state, Decision.REMOVED, record.event_id, removed=(*earlier, *own))
    if earlier:
        is_shown = shows_event(record) and not record.is_set_aside
        decision = Decision.REMOVED if is_shown else record.decision
        return Change(record.state, decision, record.event_id, removed=earlier)
    if record.removed_at is not None:
        return NoChange("its event was removed already")
    if shows_event(record):
        raise NotPossibleError(
            f"{record.row_key} is in its source, and not cancelled there",
            hint="take the row out of the source or cancel it there, and run the feed; then use `--removed`",
        )
    raise NotPossibleError(
        f"{record.row_key} is {_words(record.state)}: no event of it is known that could have been removed",
        hint="`--ignore` takes it off the list",
    )


def _take_back(record: RowRecord, beside: Beside) -> Change | NoChange:
    undo = beside.undo
    if undo is None or is_ignored_anew(record, undo):
        return _take_back_unkept(record)
    if undo.decision is Decision.IGNORE or not undo.is_of_event:
        is_as_left = undo.is_of_event and record.is_set_aside
        return Change(undo.state if is_as_left else record.state, None, record.event_id)
    if (record.attempts, record.revision) != (undo.attempts, undo.revision):
        raise _too_late(record, undo.decision, f"it was sent since, and is {_words(record.state)} now")
    if undo.decision is Decision.RELEASE and record.state in {EntryState.HELD, EntryState.PENDING}:
        return Change(EntryState.HELD, None)
    if (record.state, record.event_id) != (undo.state, undo.event_id):
        raise _too_late(record, undo.decision, f"it is {_words(record.state)} now")
    if undo.decision is Decision.SAME_AS:
        return _give_back(record, beside.other)
    return Change(record.state, None, record.event_id)


def is_ignored_anew(record: RowRecord, undo: Undo) -> bool:
    """Whether a read has ignored the entry once more since the last decision, as its row went back to what was ignored."""
    return record.is_set_aside and undo.is_of_event and undo.decision is not Decision.IGNORE


def _take_back_unkept(record: RowRecord) -> Change | NoChange:
    if record.is_set_aside:
        return Change(record.state, None, record.event_id)
    if record.decision is None:
        return NoChange("nothing was decided about it")
    raise _too_late(record, record.decision, f"it is {_words(record.state)} now")


def _give_back(record: RowRecord, giver: Other | None) -> Change:
    if giver is None or giver.record.state is not EntryState.SUPERSEDED or giver.record.candidate_id != record.entry_id:
        raise _too_late(record, Decision.SAME_AS, f"{giver or 'the row that had the event'} is back in its source")
    return Change(EntryState.HELD, None, adopted=giver)


def _too_late(record: RowRecord, decision: Decision, why: str) -> NotPossibleError:
    return NotPossibleError(
        f"what was decided about {record.row_key} ({decision}) cannot be taken back: {why}",
        hint="a wrong event id is corrected by `--event-id` with the right one; `eventsync rows` shows where the row stands",
    )


def _words(state: EntryState) -> str:
    return state.value.replace("_", " ")


def _ids(event_ids: tuple[int, ...]) -> str:
    return f"event{'s' * (len(event_ids) > 1)} {', '.join(map(str, event_ids))}"


SEEKABLE = (EntryState.DELIVERED_UNCONFIRMED, EntryState.UNCERTAIN, EntryState.CONFLICT)
