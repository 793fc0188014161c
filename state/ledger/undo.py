"""What an entry was before the last decision about it: chosen columns as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row

from mappings.row_key import FeedName, RowKey, fingerprint, idempotency_key
from state.enums import Decision, DriftKind, EntryState
from state.ledger.choices import Change, Undo
from state.ledger.entries import CANCELLED, kind_of_drift, used_revisions
from state.ledger.plan import ends_at_of, may_be_pinned_anew, twin_digest_of
from state.tables import NO_DRIFT

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
class Kept:
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


def dump_kept(kept: Kept) -> str:
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


def load_kept(stored: str) -> Kept:
    """Read it."""
    kept = json.loads(stored)
    state, revision, attempts, event_id = kept["after"]
    return Kept(
        Undo(Decision(kept["decision"]), EntryState(state), revision, attempts, event_id, is_of_event=kept["is_of_event"]),
        {name: _decoded(name, value) for name, value in kept["before"].items()},
        kept["adopted_id"],
        tuple(kept["revisions"]),
    )


def kept_of(row: Record, change: Change, columns: Mapping[str, Any]) -> Kept:
    """Return what takes a decision back. `columns`: what it writes."""
    decision = Decision(columns["decision"])
    revision, attempts = columns.get("revision", row.revision), columns.get("attempts", row.attempts)
    undo = Undo(decision, change.state, revision, attempts, change.event_id)
    return Kept(undo, columns_of(row, CHANGED[decision]), None if change.adopted is None else change.adopted.record.entry_id)


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


def restored(row: Record, kept: Kept) -> dict[str, Any]:
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
        "twin_digest": twin_digest_of(row.drift_body),
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
        "twin_digest": twin_digest_of(body),
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
