"""The columns of an entry that decisions write: another baseline, another pinned body, the next key."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from mappings.row_key import FeedName, RowKey, fingerprint, idempotency_key
from state.ledger.entries import used_revisions
from state.ledger.plan import ends_at_of, twin_digest_of
from state.ledger.undo import Record
from state.tables import NO_DRIFT


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
    """Pin a body. The next read gives it its cover image, as its fingerprint tells that it has none."""
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
