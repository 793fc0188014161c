"""A row as a draft: for a run that sends nothing but drafts, and for a change that is drafted again under a key of its own.

When either is due is decided in `plan` and `comparing`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import orjson

from mappings.event import as_draft
from mappings.outcome import MappedRow
from mappings.row_key import Fingerprint, fingerprint, twin_digest

_FIRST_CHANGE = 1 << 30
_CHANGES = 1 << 29


def drafted(row: MappedRow) -> MappedRow:
    """Return the same row, asking for a draft."""
    body = as_draft(row.body)
    return replace(row, body=body, fingerprint=fingerprint(body, row.cover.url if row.cover else ""))


def revision_of(change: Fingerprint) -> int:
    """Return the revision of the key under which a changed payload is drafted: a number drawn from the payload itself.

    A ledger that counted would begin anew when it is lost, and give one key to two changes, or one change two keys. So
    the same change of the same row has the same key for ever. Revisions that count (after a refusal) stay far below.
    """
    return _FIRST_CHANGE + int(change[:8], 16) % _CHANGES


def is_of_change(revision: int) -> bool:
    """Tell whether a revision came from `revision_of`, or counts on from one."""
    return revision >= _FIRST_CHANGE


def status_of(body: bytes) -> object:
    """Return the status that a payload asks for, None if it names none."""
    return json.loads(body).get("status")


def content_of(body: bytes) -> object:
    """Return a payload without its status and its cover image: what people would have to compare."""
    return {name: value for name, value in json.loads(body).items() if name not in {"status", "coverImage"}}


def ends_at_of(body: bytes) -> datetime | None:
    """Return when the event of a payload is over: its end, or its start where it has no end; None where neither can be read."""
    event = orjson.loads(body) if body else {}
    return _instant(event.get("endAt") or event.get("startAt") or "")


@lru_cache(maxsize=4_096)  # events share their times
def _instant(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def twin_digest_of(body: bytes) -> bytes:
    """Return the duplicate digest of a payload: channel, title, start and place."""
    event = orjson.loads(body)
    place = f"{event['approxLocation']['city']['placeId']} {event.get('locationName', '')}"
    return twin_digest(event["channelId"], event["title"], event["startAt"], place)
