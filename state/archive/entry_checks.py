"""What one entry of the ledger must look like, whatever happened to it. Which entries there are to look at is `soundness`'."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Row

from mappings.row_key import fingerprint, idempotency_key
from state.enums import Decision, DriftKind, EntryState
from state.ledger.accounts import load_answer

Check = Literal["file", "tables", "entry", "key", "body", "event", "account"]
"""What is looked at: the file and its tables as such, an entry, its key, its pinned body, its event id, a run's accounts."""

_KNOWN = (("state", frozenset(EntryState)), ("drift", frozenset(DriftKind)), ("decision", frozenset(Decision)))
_COVER = b'"coverImage"'


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be. `which`: the row's key, or the run's id, "" where it is neither."""

    check: Check
    problem: str
    destination: str = ""
    feed: str = ""
    which: str = ""


Record = Row[*tuple[Any, ...]]


@dataclass(slots=True)
class Signs:
    """Bodies that do not agree with their fingerprint, by feed, until it is known which feeds have cover images.

    Where an image could not be used, its body went out without it and nothing tells which address had been left out:
    in a feed with images such a body is nothing to worry about.
    """

    with_covers: set[tuple[str, str]] = field(default_factory=set)
    in_doubt: defaultdict[tuple[str, str], list[Finding]] = field(default_factory=lambda: defaultdict(list))

    def bodies_in_doubt(self) -> Iterator[Finding]:
        """Yield the bodies that no image explains."""
        for feed, findings in self.in_doubt.items():
            if feed not in self.with_covers:
                yield from findings


def check_entry(entry: Record, namespace: str, signs: Signs) -> Iterator[Finding]:
    """Yield what is wrong with an entry."""
    yield from _check_key(entry, namespace)
    if entry.state != EntryState.HELD or entry.fingerprint or entry.body:
        yield from _check_body(entry, entry.body, entry.fingerprint, entry.cover_url or "", signs)
    if entry.baseline_body is not None:
        yield from _check_body(entry, entry.baseline_body, entry.baseline_fingerprint, entry.cover_url or "", signs, "baseline")
    yield from (Finding("entry", problem, *_who(entry)) for problem in (*_odd_words(entry), *_odd_columns(entry)))
    if entry.state == EntryState.DELIVERED and entry.event_id is None:
        yield Finding("event", "it is delivered, and has no event id", *_who(entry))
    if entry.attempts < 0:
        yield Finding("entry", f"it counts {entry.attempts} attempts", *_who(entry))


def check_earlier(event: Record, namespace: str, signs: Signs) -> Iterator[Finding]:
    """Yield what is wrong with an event that a later draft has taken the place of."""
    yield from _check_key(event, namespace)
    yield from _check_body(event, event.body, event.fingerprint, "", signs)


def _check_key(record: Record, namespace: str) -> Iterator[Finding]:
    due = idempotency_key(namespace, record.feed, record.row_key, revision=record.revision)
    if record.idempotency_key != due:
        yield Finding("key", f"it is {record.idempotency_key}, and should be {due}", *_who(record))


def _check_body(
    record: Record, body: bytes, on_record: str | None, cover_url: str, signs: Signs, what: str = "pinned body"
) -> Iterator[Finding]:  # fmt: skip
    feed = (record.destination, record.feed)
    if cover_url or _COVER in body:
        signs.with_covers.add(feed)
    if not _is_payload(body):
        yield Finding("body", f"the {what} is no JSON object", *_who(record))
    elif on_record and _COVER not in body and fingerprint(body, cover_url) != on_record:
        finding = Finding("body", f"the {what} is not the one whose fingerprint is on record", *_who(record))
        signs.in_doubt[feed].append(finding)


def _is_payload(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def _odd_words(entry: Record) -> Iterator[str]:
    """Yield what the closed choices do not know."""
    for (name, known), value in zip(_KNOWN, (entry.state, entry.drift_kind, entry.decision), strict=True):
        if value is not None and value not in known:
            yield f"its {name} is {value!r}, which means nothing to us"
    try:
        _ = entry.answer and load_answer(entry.answer)
    except ValueError:
        yield "the last answer cannot be read"


def _odd_columns(entry: Record) -> Iterator[str]:
    """Yield what does not go together."""
    if (entry.baseline_body is None) != (entry.baseline_fingerprint is None):
        yield "its baseline has a body or a fingerprint, and not both"
    if entry.state in {EntryState.HELD, EntryState.SUPERSEDED} and entry.event_id is not None:
        yield f"it is {entry.state}, and has event {entry.event_id}"
    if entry.state == EntryState.HELD and entry.attempts:
        yield f"it is held, and counts {entry.attempts} attempts"
    if entry.state == EntryState.SUPERSEDED and not entry.has_candidate:
        yield "it is superseded, and no entry has its event"


def _who(record: Record) -> tuple[str, str, str]:
    return record.destination, record.feed, record.row_key
