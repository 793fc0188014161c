"""What to do with a row that the source has, given what the ledger remembers: a pure decision over a closed union.

| the entry is                        | same payload | another payload |
|-------------------------------------|--------------|-----------------|
| unknown                             | New, or Held if it is a duplicate candidate |
| pending, nothing sent               | Unchanged    | Repin           |
| pending, sent                       | Unchanged    | Drifted         |
| delivered                           | Unchanged    | Drifted, or Redraft if the feed asks for it |
| delivered, removed by hand          | Drifted      | Drifted         |
| delivered_unconfirmed               | Unchanged    | Drifted         |
| uncertain, conflict                 | Unchanged    | Drifted         |
| refused                             | StillRefused | Reopen          |
| blocked                             | Unchanged    | Reopen, or Drifted if an earlier attempt was never answered |
| held                                | StillHeld, or Repin once a person has released it |
| superseded                          | Returned     | Returned        |

"Same payload" compares with the baseline: what was delivered, or what a person said they applied by hand.

A retry is the same request. So a body that may have reached the service stays pinned under its key, whatever the source
says now; the difference is recorded as drift. Only where certainly nothing was created may another body take its place:
before the first attempt (an attempt that was only paced away does not count), and after a definitive refusal. A blocked
channel is such a refusal: its commonest cure is a mapping that names the right channel, which must not be pinned away.
The corrected body goes under the same key first, with the refusal's request id remembered, because the service may
replay a stored refusal, and the client must not take that for an answer to the new body.

**Redraft** (`on_change: create_draft_again`) makes a new event on purpose: the changed payload, as a draft, under the key of
that very change; the event before it stays on record. It is due only where the event's id is known, the change is
more than one of status, and no event of the row says the same already: a row that goes back to what an earlier event says
is Withdrawn from being drafted if the draft was never sent, and Drifted if it was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple, assert_never

import orjson

from mappings.event import as_draft
from mappings.outcome import MappedRow
from mappings.row_key import Fingerprint, RowKey, duplicate_digest, fingerprint
from state.enums import Decision, DriftKind, EntryState
from state.ledger.duplicates import Candidate
from state.ledger.stage_policy import OnChange


def may_be_pinned_anew(state: EntryState, attempts: int, *, is_unanswered: bool) -> bool:
    """Return whether nothing can have been created from an entry's pinned body."""
    match state:
        case EntryState.PENDING:
            return attempts == 0
        case EntryState.BLOCKED:
            return not is_unanswered
        case EntryState.REFUSED | EntryState.HELD | EntryState.SUPERSEDED:
            return True
        case EntryState.DELIVERED | EntryState.DELIVERED_UNCONFIRMED | EntryState.UNCERTAIN | EntryState.CONFLICT:
            return False
        case _:
            assert_never(state)


class Known(NamedTuple):
    """What the ledger remembers of a row, in the order of the columns that are read; a named tuple, for there are millions.

    A drift of no kind is one that the feed ignores (`on_change: ignore`).
    """

    entry_id: int
    row_key: RowKey
    state: str
    fingerprint: str
    row_digest: bytes
    drift_fingerprint: str | None
    attempts: int
    is_unanswered: bool
    is_vanished: bool
    origin: str
    revision: int
    refused_request_id: str
    drift_kind: str | None = DriftKind.EDITED.value
    is_set_aside: bool = False
    baseline_fingerprint: str | None = None
    is_removed: bool = False
    decision: str | None = None
    candidate_id: int | None = None

    @property
    def shown(self) -> str:
        """The fingerprint of the baseline."""
        return self.baseline_fingerprint or self.fingerprint

    @property
    def said(self) -> str:
        """The fingerprint of what the source last asked for: the drift where there is one, else the baseline."""
        return self.drift_fingerprint or self.shown

    @property
    def is_never_sent(self) -> bool:
        """Whether the pinned body certainly never left this host."""
        return self.state == EntryState.PENDING and self.attempts == 0

    @property
    def may_be_pinned_anew(self) -> bool:
        """Whether nothing can have been created from the pinned body, so that another one may take its place."""
        return may_be_pinned_anew(EntryState(self.state), self.attempts, is_unanswered=self.is_unanswered)


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of a changed row beside its entry. `is_said`: an earlier event of the row says what it says now;
    `is_status_only`: it differs from the pinned payload in nothing but its status.
    """

    is_said: bool = False
    is_status_only: bool = False


NO_PAST = Past()


@dataclass(frozen=True, slots=True)
class New:
    """A row never seen before: pin its body and stage it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A new row that looks like a known event under another key: recorded as held, not sent, shown to a person."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class StillHeld:
    """A row that is held: what it asks for is recorded, nothing is sent. Whether it is freed is decided when the read ends."""


@dataclass(frozen=True, slots=True)
class Returned:
    """A row whose event another key adopted is back in its source: held."""


@dataclass(frozen=True, slots=True)
class StillRefused:
    """The source asks for the very payload that was refused. `is_stale`: the row's digest moved."""

    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Repin:
    """Staged and never sent: the new body takes the old one's place, under the same key."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The source says what is pinned. `is_drift_over`: it said something else before; `is_stale`: the row's digest moved."""

    is_drift_over: bool = False
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Drifted:
    """The source says something else than what is pinned and may be out. `is_recorded`: that very difference is known."""

    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class Reopen:
    """Refused as it was, and changed: pending again with the new body, under the same key first."""


@dataclass(frozen=True, slots=True)
class Redraft:
    """Delivered, and changed since: the changed payload becomes a new draft, and the event before it stays on record."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A draft of a change was staged and nothing was created from it; the row says again what an earlier event says."""


PlanOfKnown = Repin | Unchanged | StillRefused | StillHeld | Returned | Drifted | Reopen | Redraft | Withdrawn
_NEW = New()
_REPIN = Repin()
_REOPEN = Reopen()
_REDRAFT = Redraft()
_WITHDRAWN = Withdrawn()
_SAME = Unchanged()
_STALE = Unchanged(is_stale=True)
_BACK = Unchanged(is_drift_over=True, is_stale=True)


def plan_new(candidate: Candidate | None) -> New | Held:
    """Decide on a row that the ledger does not know; `candidate` is the entry that it looks like, if any."""
    return _NEW if candidate is None else Held(candidate)


def plan_known(  # noqa: C901, PLR0911  # one arm for each row of the table
    known: Known, row: MappedRow, on_change: OnChange = "report", past: Past = NO_PAST
) -> PlanOfKnown:
    """Decide on a row that the ledger knows. `past` matters only where the payload has changed."""
    if known.state == EntryState.HELD:
        return _REPIN if known.decision == Decision.RELEASE else StillHeld()
    if known.state == EntryState.SUPERSEDED:
        return Returned()
    if known.is_removed:
        return Drifted(is_recorded=row.fingerprint == known.drift_fingerprint)
    if row.fingerprint == known.shown:
        if known.state == EntryState.REFUSED:
            return StillRefused(is_stale=row.row_digest != known.row_digest)
        if known.drift_fingerprint is not None:
            return _BACK
        return _SAME if row.row_digest == known.row_digest else _STALE
    if known.may_be_pinned_anew:
        if past.is_said:
            return _WITHDRAWN
        return _REPIN if known.state == EntryState.PENDING else _REOPEN
    if known.state == EntryState.DELIVERED and on_change == "create_draft_again" and past == NO_PAST:
        return _REDRAFT
    is_listed = on_change != "ignore"
    return Drifted(is_recorded=row.fingerprint == known.drift_fingerprint and (known.drift_kind is not None) is is_listed)


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
    """Return whether a revision came from `revision_of`, or counts on from one."""
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
    return duplicate_digest(event["channelId"], event["title"], event["startAt"], place)
