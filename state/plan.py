"""What to do with a row that the source says, given what the ledger remembers: a pure decision over a closed union.

How the decision is written is `stage`'s.

| the entry is                        | same payload | another payload |
|-------------------------------------|--------------|-----------------|
| unknown                             | New, or Held if it looks like a copy of an entry under another key |
| pending, nothing sent               | Unchanged    | Repin           |
| pending, sent                       | Unchanged    | Drifted         |
| delivered, delivered_unconfirmed    | Unchanged    | Drifted         |
| uncertain, conflict                 | Unchanged    | Drifted         |
| refused                             | Unchanged    | Reopen          |
| blocked                             | Unchanged    | Reopen, or Drifted if an earlier attempt was never answered |

A retry is the same request. So a body that may have reached the service stays pinned under its key, whatever the source
says now; the difference is recorded as drift. Only where certainly nothing was created may another body take its place:
before the first attempt (an attempt that was only paced away does not count), and after a definitive refusal. A blocked
channel is such a refusal: its commonest cure is a mapping that names the right channel, which must not be pinned away.
The corrected body goes under the same key first, with the refusal's request id remembered, because the service may
replay a stored refusal, and the client must be able to tell that from an answer to the new body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, assert_never

from mappings.vocabulary import MappedRow, RowKey
from state.words import EntryState


class Known(NamedTuple):
    """What the ledger remembers of a row, in the order of `stage`'s columns; a named tuple, for there are millions."""

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

    @property
    def said(self) -> str:
        """The fingerprint of what the source last asked for: the drift where there is one, else the pinned payload."""
        return self.drift_fingerprint or self.fingerprint

    @property
    def is_never_sent(self) -> bool:
        """Whether certainly nobody but us has seen the pinned body."""
        return self.state == EntryState.PENDING and self.attempts == 0


@dataclass(frozen=True, slots=True)
class New:
    """A row never seen before: pin its body and stage it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A new row that looks like a copy of `twin_key`: not staged, shown to a person."""

    twin_key: RowKey


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


Plan = New | Held | Repin | Unchanged | Drifted | Reopen

_NEW = New()
_REPIN = Repin()
_REOPEN = Reopen()
_SAME = Unchanged()
_STALE = Unchanged(is_stale=True)
_BACK = Unchanged(is_drift_over=True, is_stale=True)


def plan_new(twin_key: RowKey | None) -> New | Held:
    """Decide on a row that the ledger does not know; `twin_key` is the entry that it looks like a copy of, if any."""
    return _NEW if twin_key is None else Held(twin_key)


def plan_known(known: Known, row: MappedRow) -> Repin | Unchanged | Drifted | Reopen:
    """Decide on a row that the ledger knows."""
    if row.fingerprint == known.fingerprint:
        if known.drift_fingerprint is not None:
            return _BACK
        return _SAME if row.row_digest == known.row_digest else _STALE
    return _plan_changed(known, row)


def _plan_changed(known: Known, row: MappedRow) -> Repin | Drifted | Reopen:
    match state := EntryState(known.state):
        case EntryState.PENDING:
            return _REPIN if known.attempts == 0 else _drifted(known, row)
        case EntryState.REFUSED:
            return _REOPEN
        case EntryState.BLOCKED:
            return _drifted(known, row) if known.is_unanswered else _REOPEN
        case EntryState.DELIVERED | EntryState.DELIVERED_UNCONFIRMED | EntryState.UNCERTAIN | EntryState.CONFLICT:
            return _drifted(known, row)
        case _:
            assert_never(state)


def _drifted(known: Known, row: MappedRow) -> Drifted:
    return Drifted(is_recorded=row.fingerprint == known.drift_fingerprint)
