"""What an entry shows and what its source wants, the columns of decisions, and what takes the last of them back.

The entry before the last decision is kept as chosen columns in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row

from mappings.row_key import FeedName, RowKey, fingerprint, idempotency_key
from state.enums import Decision, DriftKind, EntryState
from state.ledger.choices import UndoRecord
from state.ledger.entries import (
    CANCELLED,
    channel_of,
    duplicate_digest_of,
    ends_at_of,
    kind_of_drift,
    may_be_pinned_anew,
    used_revisions,
)
from state.tables import NO_DRIFT

Record = Row[*tuple[Any, ...]]


def shown_of(row: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the fingerprint and the body of an entry's baseline."""
    prefix = "" if row["baseline_body"] is None else "baseline_"
    return row[f"{prefix}fingerprint"], row[f"{prefix}body"]


def wanted_of(row: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """Return what the source asks for now: the drift, or else the baseline. No body: cancelled, or changes are not reported."""
    return shown_of(row) if row["drift_fingerprint"] is None else (row["drift_fingerprint"], row["drift_body"])


def applied(row: Record) -> dict[str, Any]:
    """Make the drift the baseline, as it was shown."""
    body, columns = row.drift_body, {"baseline_body": row.drift_body, "baseline_fingerprint": row.drift_fingerprint}
    digests = {"twin_digest": duplicate_digest_of(body), "ends_at": ends_at_of(body), "ignored_fingerprint": None}
    return columns | digests | NO_DRIFT


def pinned(body: bytes) -> dict[str, Any]:
    """Pin a body. The next read adds its cover image: the fingerprint is that of a payload without one."""
    columns = {"body": body, "fingerprint": fingerprint(body, ""), "cover_url": None, "cover_on_error": None}
    return columns | {"twin_digest": duplicate_digest_of(body), "channel_id": channel_of(body), "ends_at": ends_at_of(body)}


def drift_against(shown: tuple[str, bytes], asked: tuple[str, bytes | None], *, is_removed: bool = False) -> dict[str, Any]:
    """Return the drift columns of an entry that shows one thing and is asked for another."""
    wanted, body = asked
    kind: DriftKind | None = None
    if wanted == CANCELLED:
        body, kind = None, DriftKind.CANCELLED
    elif wanted == shown[0] and not is_removed:
        return dict(NO_DRIFT)
    elif body is not None:
        kind = DriftKind.RETURNED if is_removed else kind_of_drift(shown[1], body)
    return {"drift_body": body, "drift_fingerprint": wanted, "drift_kind": kind and kind.value}


_CHANGED_BY_READS = (
    *("state", "idempotency_key", "revision", "event_id", "attempts", "copies", "unanswered_at", "answer"),
    *("refused_request_id", "denied_request_id", "removed_at", "body", "cover_url", "cover_on_error", "fingerprint"),
    *("channel_id", "baseline_body", "baseline_fingerprint", "twin_digest", "ends_at", *NO_DRIFT, "ignored_fingerprint"),
)
"""What the next read may change of an entry that is to be sent again, and that no decision but these writes."""
_BODIES = frozenset({"body", "baseline_body", "drift_body"})


def undo_of(
    row: Record, columns: Mapping[str, Any], decision: Decision | None = None, *, is_of_event: bool = True, **more: Any
) -> dict[str, Any]:
    """Return the column that takes a decision back: the entry as `columns` leave it, and what they change, as it was."""
    decision = decision or Decision(columns["decision"])
    names = set(columns) - {"updated_at", "undo"} if is_of_event else {"decision", "decided_at", "decided_by"}
    if decision in (Decision.RESEND, Decision.RETRY):
        names.update(_CHANGED_BY_READS)
    stored = {
        "decision": decision.value,
        "after": [columns.get(name, getattr(row, name)) for name in ("state", "revision", "attempts", "event_id")],
        "is_of_event": is_of_event,
        "before": {name: _encoded(name, getattr(row, name)) for name in sorted(names)},
        "adopted_id": None,
        "revisions": (),
        **more,
    }
    return {"undo": json.dumps(stored, separators=(",", ":"))}


def load_undo(stored: str) -> UndoRecord:
    undo = json.loads(stored)
    state, revision, attempts, event_id = undo.pop("after")
    undo |= {"decision": Decision(undo["decision"]), "state": EntryState(state), "revisions": tuple(undo["revisions"])}
    undo["before"] = {name: _decoded(name, value) for name, value in undo["before"].items()}
    return UndoRecord(revision=revision, attempts=attempts, event_id=event_id, **undo)


def _encoded(name: str, value: Any) -> Any:
    """Write a column for JSON: bodies as text, digests as hexadecimal digits, times in ISO 8601."""
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


def restored(row: Record, undo: UndoRecord) -> dict[str, Any]:
    """Return the columns that take back the last decision about an entry.

    A baseline comes back as it was; what the source asks for now is drift against it.
    """
    before, asked = dict(undo.before), wanted_of(row._asdict())
    then = {**row._asdict(), **before}
    if undo.decision is Decision.IGNORE and row.decision != Decision.IGNORE:  # the row has changed since, and is listed
        return {"ignored_fingerprint": then["ignored_fingerprint"]}
    if undo.decision is Decision.REMOVED and not undo.is_of_event:
        return before if row.decision == Decision.REMOVED else {}
    is_to_be_sent = undo.decision in (Decision.RESEND, Decision.RETRY)
    is_unanswered = then["unanswered_at"] is not None
    if is_to_be_sent and may_be_pinned_anew(EntryState(then["state"]), then["attempts"], is_unanswered=is_unanswered):
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


def next_key(connection: Connection, row: Record, namespace: str, feed: FeedName) -> dict[str, Any]:
    """Give an entry the next key that none of its events has, under which nothing was sent."""
    used = used_revisions(connection, [row.id])[row.id]
    revision = row.revision + 1
    while revision in used:
        revision += 1
    key = idempotency_key(namespace, feed, RowKey(row.row_key), revision=revision)
    unsent = {"attempts": 0, "unanswered_at": None, "refused_request_id": "", "denied_request_id": ""}
    return {"revision": revision, "idempotency_key": key, **unsent}
