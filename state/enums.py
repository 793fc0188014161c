"""Closed sets of values in the ledger: states, decisions, kinds of drift and problems, gate states, phases of a run."""

from __future__ import annotations

from enum import StrEnum


class EntryState(StrEnum):
    """The state of one row at the service; docs/ledger.md explains each."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DELIVERED_UNCONFIRMED = "delivered_unconfirmed"
    REFUSED = "refused"
    BLOCKED = "blocked"
    UNCERTAIN = "uncertain"
    CONFLICT = "conflict"
    HELD = "held"
    SUPERSEDED = "superseded"


class Outcome(StrEnum):
    """The last fact about the present key of an entry.

    `owed`: no final answer; `created`: the event's id is known; `used`: the key is used, the id unknown; `denied`: no access;
    `unclear`: given up for now; `removed`: by hand; `held`: nothing is pinned; `moved`: another row has the event; `idle`:
    withdrawn after its key was refused.
    """

    OWED = "owed"
    CREATED = "created"
    USED = "used"
    REFUSED = "refused"
    DENIED = "denied"
    UNCLEAR = "unclear"
    CONFLICT = "conflict"
    REMOVED = "removed"
    HELD = "held"
    MOVED = "moved"
    IDLE = "idle"


class Observed(StrEnum):
    """What the source says that the entry does not show; `same`: nothing.

    `edited`, `to_publish`, `returned`, `held`: another payload, which is stored. `counted`: another payload in a feed that
    ignores changes. `vanished`: its row is gone, and its event is to come; `gone`: its event is over, or none was created.
    """

    SAME = "same"
    EDITED = "edited"
    TO_PUBLISH = "to_publish"
    COUNTED = "counted"
    CANCELLED = "cancelled"
    RETURNED = "returned"
    VANISHED = "vanished"
    GONE = "gone"
    HELD = "held"


class Grant(StrEnum):
    """What a person allows the next request of an entry, until it is used up.

    `retry`: if it is refused or denied again, the next key. `resend`: the same, at the risk of the attempts before.
    """

    RETRY = "retry"
    RESEND = "resend"


class Decision(StrEnum):
    """A person's decision about a row, stored with its entry.

    `retry`, `resend`: to be sent again by the next drain; `retried`, `resent`: that was done. `event_id`: a person gave the id
    of its event; `reconciled`: the event was found in the service's list. `ignore`: not listed until the row changes.
    `applied`: the drift was applied by hand, and is now the baseline. `same_as`: it took over the event of another key.
    `release`: a held row is to be sent. `removed`: the event was removed from the service.
    """

    RETRY = "retry"
    RETRIED = "retried"
    RESEND = "resend"
    RESENT = "resent"
    EVENT_ID = "event_id"
    RECONCILED = "reconciled"
    IGNORE = "ignore"
    APPLIED = "applied"
    SAME_AS = "same_as"
    RELEASE = "release"
    REMOVED = "removed"


class DriftKind(StrEnum):
    """How the source differs from what was delivered. `to_publish`: a delivered draft that the source now calls published, to
    be published by hand; `cancelled`: the source says that the event is cancelled; `returned`: the event was removed by hand,
    and the row is back in its source; `edited`: any other difference.
    """

    EDITED = "edited"
    TO_PUBLISH = "to_publish"
    CANCELLED = "cancelled"
    RETURNED = "returned"


class Waiting(StrEnum):
    """Why an entry waits for a person, as `rows --state` names it; an entry may wait for several reasons."""

    CONFLICT = "conflict"
    BLOCKED = "blocked"
    UNCERTAIN = "uncertain"
    REFUSED = "refused"
    HELD = "held"
    UNCONFIRMED = "delivered_unconfirmed"
    DRIFT = "drift"
    VANISHED = "vanished"
    WARNING = "warning"


class ProblemKind(StrEnum):
    """Why a row is listed for people: unusable, held as a likely copy, or used with a warning."""

    REJECTED = "rejected"
    HELD = "held"
    WARNING = "warning"


class GateState(StrEnum):
    """Whether staged rows may be published. `unstaged`: nothing was staged yet; `staging`: a stage runs, or was killed;
    `braked`: the last stage completed, and a brake closed the gate.
    """

    UNSTAGED = "unstaged"
    STAGING = "staging"
    BRAKED = "braked"
    OPEN = "open"


class Phase(StrEnum):
    """The progress of a run."""

    BEGUN = "begun"
    STAGING = "staging"
    STAGED = "staged"
    PUBLISHING = "publishing"
    FINISHED = "finished"
