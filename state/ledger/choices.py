"""Decisions that a person may take about an entry, and their effects: a pure function over closed unions.

The changed columns are stored as JSON, so that the last decision can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from sqlalchemy import Row

from mappings.errors import ConfigError
from mappings.row_key import FeedName, RowKey, fingerprint, idempotency_key
from state.enums import Decision, DriftKind, EntryState
from state.ledger import entries
from state.ledger.standing import RowRecord
from state.tables import NO_DRIFT


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


@dataclass(frozen=True, slots=True)
class Undo:
    """What `--undo` needs: the last decision about an entry, and the entry as that decision left it.

    `before`: the changed columns' former values; `adopted_id`: the entry that gave up its event.
    """

    decision: Decision
    state: EntryState
    revision: int
    attempts: int
    event_id: int | None
    before: Mapping[str, Any] = field(default_factory=dict)
    adopted_id: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The effect on the entry. `risk`: what may go wrong, for the person who decides; "" if nothing.

    `adopted`: the entry whose event this one takes over or gives back.
    """

    state: EntryState
    decision: Decision | None
    event_id: int | None = None
    is_next_revision: bool = False
    risk: str = ""
    adopted: Other | None = None


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


def decide(  # noqa: PLR0911  # one arm per choice
    record: RowRecord, choice: Instruction, *, has_warnings: bool = False, other: Other | None = None, undo: Undo | None = None
) -> Change | NoChange:
    """Return the effect of a decision on an entry. Raises `NotPossibleError`.

    `other`: the entry for `same_as`, or whose event was taken over; `undo`: the last decision.
    """
    match choice.option:
        case Option.EVENT_ID:
            return _take_event(record, choice.event_id)
        case Option.RESEND:
            return _resend(record)
        case Option.IGNORE:
            return _ignore(record, has_warnings=has_warnings)
        case Option.APPLIED:
            return _apply(record)
        case Option.SAME_AS:
            return _adopt(record, other)
        case Option.RELEASE:
            return _release(record)
        case Option.REMOVED:
            return _remove(record)
        case Option.UNDO:
            return _undo(record, undo, other)


def may_be_removed(record: RowRecord) -> bool:
    """Return whether a person has to remove the entry's event."""
    return _has_event(record) and (record.vanished_at is not None or record.drift_kind is DriftKind.CANCELLED)


def _has_event(record: RowRecord) -> bool:
    is_delivered = record.state in {EntryState.DELIVERED, EntryState.DELIVERED_UNCONFIRMED}
    return is_delivered and record.removed_at is None


def _take_event(record: RowRecord, event_id: int) -> Change | NoChange:
    row = record.row_key
    if record.state is EntryState.HELD:
        hint = "`--same-as KEY` takes over the event of another key, `--release` sends the row"
        raise NotPossibleError(f"{row} is held as a likely copy: no event of its own was ever sent", hint=hint)
    if record.state is EntryState.SUPERSEDED:
        raise _taken_over(record)
    if record.removed_at is not None:
        hint = "`--undo` takes that back; `--resend` creates the event again once the row is back in its source"
        raise NotPossibleError(f"the event of {row} was removed from the service", hint=hint)
    if record.state is EntryState.DELIVERED and record.event_id == event_id:
        return NoChange(f"it is delivered as event {event_id}")
    if record.state is EntryState.DELIVERED and (record.answer is None or record.answer.code not in {RESOLVED, FOUND}):
        hint = f"event {event_id} may be another row's: `eventsync rows` lists them all with their ids"
        raise NotPossibleError(f"{row} was delivered as event {record.event_id}, by the service's own answer", hint=hint)
    return Change(EntryState.DELIVERED, Decision.EVENT_ID, event_id)


def _resend(record: RowRecord) -> Change | NoChange:
    row, is_unanswered = record.row_key, record.unanswered_at is not None
    match record.state:
        case EntryState.DELIVERED | EntryState.DELIVERED_UNCONFIRMED if record.removed_at is not None:
            if record.drift_body is not None:
                return Change(EntryState.PENDING, Decision.RESEND, is_next_revision=True)
            hint = "run the feed: once the row is back in its source, `--resend` creates its event again"
            raise NotPossibleError(f"the event of {row} was removed, and its source does not ask for it", hint=hint)
        case EntryState.PENDING | EntryState.BLOCKED if waits_for_access(record):
            return Change(EntryState.PENDING, Decision.RETRY, risk=_RISK_AFTER_DENIAL)
        case EntryState.PENDING if record.decision is Decision.RESEND or not is_unanswered:
            return NoChange("the next run sends it")
        case EntryState.REFUSED | EntryState.BLOCKED if not is_unanswered:
            return Change(EntryState.PENDING, Decision.RETRY)
        case EntryState.CONFLICT | EntryState.DELIVERED_UNCONFIRMED:
            return Change(EntryState.PENDING, Decision.RESEND, is_next_revision=True, risk=_RISK_OF_USED_KEY)
        case EntryState.DELIVERED:
            problem = f"{row} was delivered as event {record.event_id}: sending it again would make a second one"
            hint = "change or remove the event by hand on the service's pages; the service has no way to do it from here"
            raise NotPossibleError(problem, hint=hint)
        case EntryState.HELD:
            hint = "`--release` sends it; `--same-as KEY` says that it is the event of that row"
            raise NotPossibleError(f"{row} is held because it may be a copy of another event; it was not sent", hint=hint)
        case EntryState.SUPERSEDED:
            raise _taken_over(record)
        case _:
            return Change(EntryState.PENDING, Decision.RESEND, risk=_risk_of_resending(record))


def _risk_of_resending(record: RowRecord) -> str:
    """Return what may go wrong if a row goes out again of which an earlier attempt may have created the event."""
    risk = _RISK_OF_FORGOTTEN_KEY
    if record.is_refused:
        risk += _RISK_AFTER_REFUSAL
    if record.answer is not None and record.answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        risk += _RISK_OF_NEXT_KEY.format("the service only repeats the stored failure")
    if record.is_denied:
        risk += _RISK_OF_NEXT_KEY.format("access is denied again")
    return risk


def waits_for_access(record: RowRecord) -> bool:
    """Return whether the row is sent once access is granted, but may never be accepted, because the service may have stored the
    denial.

    A row that a person has sent again nevertheless does not wait.
    """
    is_owed = record.state in {EntryState.PENDING, EntryState.BLOCKED} and record.unanswered_at is None
    return is_owed and record.is_denied and record.decision is not Decision.RETRY


def _ignore(record: RowRecord, *, has_warnings: bool) -> Change | NoChange:
    if record.is_set_aside:
        return NoChange("it is ignored already")
    if record.state is EntryState.PENDING and record.unanswered_at is None:
        hint = "take the row out of the source, or let the mapping skip it, if it should not be sent"
        raise NotPossibleError(f"{record.row_key} needs no decision: the next run sends it", hint=hint)
    if record.state is EntryState.PENDING:
        return Change(EntryState.UNCERTAIN, Decision.IGNORE)
    if record.state is EntryState.SUPERSEDED:
        return NoChange("its event was taken over by another key, and it needs no decision")
    is_vanished = record.vanished_at is not None and record.removed_at is None
    if record.state is not EntryState.DELIVERED or has_warnings or is_vanished or record.drift_kind is not None:
        return Change(record.state, Decision.IGNORE, record.event_id)
    return NoChange(f"it is delivered as event {record.event_id}, and it needs no decision")


def _apply(record: RowRecord) -> Change | NoChange:
    row = record.row_key
    if record.drift_kind is DriftKind.CANCELLED:
        hint = "remove its event on the service's pages; then use `--removed`"
        raise NotPossibleError(f"the source has cancelled {row}: there is no change to apply", hint=hint)
    if record.drift_kind is DriftKind.RETURNED:
        hint = "`--resend` creates the event again, `--ignore` leaves it so"
        raise NotPossibleError(f"the event of {row} was removed by hand, and the row is back in its source", hint=hint)
    if record.removed_at is not None:
        return NoChange("its event was removed, and the source asks for nothing")
    if not _has_event(record):
        problem = f"{row} is {_words(record.state)}: no event of it is known that could have been changed by hand"
        raise NotPossibleError(problem, hint="`--event-id N` names its event where there is one; then use `--applied`")
    if record.drift_kind is None or record.drift_body is None:
        return NoChange("the source matches what the service shows")
    return Change(record.state, Decision.APPLIED, record.event_id)


def _adopt(record: RowRecord, other: Other | None) -> Change | NoChange:
    row = record.row_key
    if record.decision is Decision.SAME_AS and (other is None or other.record.candidate_id == record.entry_id):
        return NoChange(f"it has taken over event {record.event_id}")
    if record.state is not EntryState.HELD:
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
    return Change(giver.state, Decision.SAME_AS, giver.event_id, adopted=other)


def _release(record: RowRecord) -> Change | NoChange:
    if record.decision is Decision.RELEASE and record.state is EntryState.PENDING:
        return NoChange("it is released: the next run sends it")
    if record.state is not EntryState.HELD:
        hint = "`--resend` sends a row again that was sent before"
        raise NotPossibleError(f"{record.row_key} is {_words(record.state)}: only a held row can be released", hint=hint)
    return Change(EntryState.PENDING, Decision.RELEASE)


def _remove(record: RowRecord) -> Change | NoChange:
    row = record.row_key
    if may_be_removed(record):
        return Change(record.state, Decision.REMOVED, record.event_id)
    if record.removed_at is not None:
        return NoChange("its event was removed already")
    if _has_event(record):
        hint = "take the row out of the source or cancel it there, and run the feed; then use `--removed`"
        raise NotPossibleError(f"{row} is in its source, and not cancelled there", hint=hint)
    problem = f"{row} is {_words(record.state)}: no event of it is known that could have been removed"
    raise NotPossibleError(problem, hint="`--ignore` takes it off the list")


def _undo(record: RowRecord, undo: Undo | None, giver: Other | None) -> Change | NoChange:
    if undo is None or is_ignored_anew(record, undo):
        if not record.is_set_aside and record.decision is not None:
            raise _too_late(record, record.decision)
        return Change(record.state, None, record.event_id) if record.is_set_aside else NoChange("nothing was decided about it")
    if undo.decision is Decision.IGNORE:
        return Change(undo.state if record.is_set_aside else record.state, None, record.event_id)
    if (record.attempts, record.revision) != (undo.attempts, undo.revision):
        raise _too_late(record, undo.decision, "it was sent since, and ")
    if undo.decision is Decision.RELEASE and record.state is EntryState.PENDING:
        return Change(EntryState.HELD, None)
    if (record.state, record.event_id) != (undo.state, undo.event_id):
        raise _too_late(record, undo.decision)
    if undo.decision is not Decision.SAME_AS:
        return Change(record.state, None, record.event_id)
    if giver is None or giver.record.state is not EntryState.SUPERSEDED or giver.record.candidate_id != record.entry_id:
        raise _too_late(record, undo.decision, f"{giver or 'the row that had the event'} is back in its source, and ")
    return Change(EntryState.HELD, None, adopted=giver)


def is_ignored_anew(record: RowRecord, undo: Undo) -> bool:
    """Return whether a read has ignored the entry again since the last decision, because its row went back to the ignored
    payload.
    """
    return record.is_set_aside and undo.decision is not Decision.IGNORE


def _too_late(record: RowRecord, decision: Decision, why: str = "") -> NotPossibleError:
    problem = f"what was decided about {record.row_key} ({decision}) cannot be taken back: {why}it is {_words(record.state)} now"
    hint = "a wrong event id is corrected by `--event-id` with the right one; `eventsync rows` shows the row's state"
    return NotPossibleError(problem, hint=hint)


def _taken_over(record: RowRecord) -> NotPossibleError:
    problem = f"the event of {record.row_key} was taken over by another key: sent again, there would be a second one"
    return NotPossibleError(problem, hint="`--undo` for that other key gives the event back")


def _words(state: EntryState) -> str:
    return state.value.replace("_", " ")


Record = Row[*tuple[Any, ...]]


def shown_of(row: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the fingerprint and body of an entry's baseline."""
    prefix = "" if row["baseline_body"] is None else "baseline_"
    return row[f"{prefix}fingerprint"], row[f"{prefix}body"]


def wanted_of(row: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """Return the payload that the source asks for: the drift, or else the baseline. The body is None if cancelled or if changes
    are not reported.
    """
    return shown_of(row) if row["drift_fingerprint"] is None else (row["drift_fingerprint"], row["drift_body"])


def applied(row: Record) -> dict[str, Any]:
    """Return the columns that make the drift the baseline."""
    body, columns = row.drift_body, {"baseline_body": row.drift_body, "baseline_fingerprint": row.drift_fingerprint}
    digests = {"twin_digest": entries.duplicate_digest_of(body), "ends_at": entries.ends_at_of(body), "ignored_fingerprint": None}
    return columns | digests | NO_DRIFT


def pinned(body: bytes) -> dict[str, Any]:
    """Return the columns that pin a body. The fingerprint is that of a payload without a cover, which the next read adds."""
    columns = {"body": body, "fingerprint": fingerprint(body, ""), "cover_url": None, "cover_on_error": None}
    return columns | {
        "twin_digest": entries.duplicate_digest_of(body),
        "channel_id": entries.channel_of(body),
        "ends_at": entries.ends_at_of(body),
    }


def drift_against(shown: tuple[str, bytes], asked: tuple[str, bytes | None], *, is_removed: bool = False) -> dict[str, Any]:
    """Return the drift columns of an entry, from what the service shows and what the source asks for."""
    wanted, body = asked
    kind: DriftKind | None = None
    if wanted == entries.CANCELLED:
        body, kind = None, DriftKind.CANCELLED
    elif wanted == shown[0] and not is_removed:
        return dict(NO_DRIFT)
    elif body is not None:
        kind = DriftKind.RETURNED if is_removed else entries.kind_of_drift(shown[1], body)
    return {"drift_body": body, "drift_fingerprint": wanted, "drift_kind": kind and kind.value}


_CHANGED_BY_READS = (
    *("state", "idempotency_key", "revision", "event_id", "attempts", "copies", "unanswered_at", "answer"),
    *("refused_request_id", "denied_request_id", "removed_at", "body", "cover_url", "cover_on_error", "fingerprint"),
    *("channel_id", "baseline_body", "baseline_fingerprint", "twin_digest", "ends_at", *NO_DRIFT, "ignored_fingerprint"),
)
"""Columns that the next read may change in an entry to be sent again, and that only these decisions change otherwise."""
_BODIES = frozenset({"body", "baseline_body", "drift_body"})


def undo_of(
    row: Record, columns: Mapping[str, Any], decision: Decision | None = None, *, adopted_id: int | None = None
) -> dict[str, Any]:
    """Return the column by which a decision can be undone: the entry after the change, and the former values of the changed
    columns.
    """
    decision = decision or Decision(columns["decision"])
    names = set(columns) - {"updated_at", "undo"}
    if decision in (Decision.RESEND, Decision.RETRY):
        names.update(_CHANGED_BY_READS)
    stored = {
        "decision": decision.value,
        "after": [columns.get(name, getattr(row, name)) for name in ("state", "revision", "attempts", "event_id")],
        "before": {name: _encoded(name, getattr(row, name)) for name in sorted(names)},
        "adopted_id": adopted_id,
    }
    return {"undo": json.dumps(stored, separators=(",", ":"))}


def load_undo(stored: str) -> Undo:
    undo = json.loads(stored)
    state, revision, attempts, event_id = undo["after"]
    before = {name: _decoded(name, value) for name, value in undo["before"].items()}
    return Undo(Decision(undo["decision"]), EntryState(state), revision, attempts, event_id, before, undo["adopted_id"])


def _encoded(name: str, value: Any) -> Any:
    """Return a column's value for JSON: bodies as text, digests in hexadecimal, times in ISO 8601."""
    if isinstance(value, bytes):
        return value.decode() if name in _BODIES else value.hex()
    return value.isoformat() if isinstance(value, datetime) else value


def _decoded(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _BODIES:
        return value.encode()
    if name == "twin_digest":
        return bytes.fromhex(value)
    return datetime.fromisoformat(value) if name.endswith("_at") else value


def restored(row: Record, undo: Undo) -> dict[str, Any]:
    """Return the columns that undo the last decision about an entry.

    The former baseline is restored; what the source asks for now is drift against it.
    """
    before, asked = dict(undo.before), wanted_of(row._asdict())
    then = {**row._asdict(), **before}
    if undo.decision is Decision.IGNORE and row.decision != Decision.IGNORE:  # the row has changed since, and is listed
        return {"ignored_fingerprint": then["ignored_fingerprint"]}
    is_to_be_sent = undo.decision in (Decision.RESEND, Decision.RETRY)
    is_unanswered = then["unanswered_at"] is not None
    if is_to_be_sent and entries.may_be_pinned_anew(EntryState(then["state"]), then["attempts"], is_unanswered=is_unanswered):
        before |= NO_DRIFT
    elif (
        is_to_be_sent
        or undo.decision is Decision.APPLIED
        or (undo.decision is Decision.REMOVED and row.drift_kind == DriftKind.RETURNED)
    ):
        before |= drift_against(shown_of(then), asked, is_removed=then["removed_at"] is not None)
    elif undo.decision is Decision.SAME_AS and asked[1] is not None and asked[0] != before["fingerprint"]:
        # Held again, as its source asks for it now: with its cover image, unless that has changed too.
        cover = {name: before[name] for name in ("cover_url", "cover_on_error")}
        has_same_cover = fingerprint(asked[1], cover["cover_url"] or "") == asked[0]
        before |= pinned(asked[1]) | {"row_digest": b""} | ({"fingerprint": asked[0], **cover} if has_same_cover else {})
    if before["decision"] == Decision.IGNORE and then["ignored_fingerprint"] != asked[0]:
        before |= {"decision": None, "decided_at": None, "decided_by": None}
    return before


def next_key(row: Record, namespace: str, feed: FeedName) -> dict[str, Any]:
    """Return the columns of the entry's next key, under which nothing was sent."""
    revision = row.revision + 1
    key = idempotency_key(namespace, feed, RowKey(row.row_key), revision=revision)
    unsent = {"attempts": 0, "unanswered_at": None, "refused_request_id": "", "denied_request_id": ""}
    return {"revision": revision, "idempotency_key": key, **unsent}
