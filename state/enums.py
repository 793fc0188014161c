"""The closed choices of the ledger: states of an entry, decisions, kinds of drift and of problems, gates, phases of a run."""

from __future__ import annotations

from enum import StrEnum


class EntryState(StrEnum):
    """Where one row stands with the service; each word is explained in the reference of the ledger."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DELIVERED_UNCONFIRMED = "delivered_unconfirmed"
    REFUSED = "refused"
    BLOCKED = "blocked"
    UNCERTAIN = "uncertain"
    CONFLICT = "conflict"
    HELD = "held"
    SUPERSEDED = "superseded"


class Decision(StrEnum):
    """What a person decided about a row, as it is kept with it.

    `retry`, `resend`: to be sent again, which the next drain does; `retried`, `resent`: that was used up. `event_id`:
    said to be delivered as the event named; `reconciled`: found in the service's list. `ignore`: off every list until the
    row changes. `applied`: the drift was applied by hand, and is the baseline now. `same_as`: the event of another key was
    adopted. `release`: a held row is to be sent. `removed`: the event is gone from the service.
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
    """How the source differs from what was delivered. `to_publish`: a delivered draft that the source now calls
    published, to be published by hand; `cancelled`: the source says that the event is off; `returned`: the event was removed
    by hand, and the row is back in its source; `edited`: anything else.
    """

    EDITED = "edited"
    TO_PUBLISH = "to_publish"
    CANCELLED = "cancelled"
    RETURNED = "returned"


class Waiting(StrEnum):
    """Why an entry waits for a person, by the word that `rows --state` takes; an entry may wait for several reasons."""

    CONFLICT = "conflict"
    BLOCKED = "blocked"
    UNCERTAIN = "uncertain"
    REFUSED = "refused"
    HELD = "held"
    UNCONFIRMED = "delivered_unconfirmed"
    DRIFT = "drift"
    VANISHED = "vanished"
    EARLIER = "earlier"
    WARNING = "warning"


class ProblemKind(StrEnum):
    """Why a row is listed for people: not usable, held back as a likely copy, or used with a warning."""

    REJECTED = "rejected"
    HELD = "held"
    WARNING = "warning"


class GateState(StrEnum):
    """Whether staged rows may be published. `unstaged`: nothing was ever staged; `staging`: a stage runs, or was
    killed; `braked`: the last stage completed and a brake stopped it.
    """

    UNSTAGED = "unstaged"
    STAGING = "staging"
    BRAKED = "braked"
    OPEN = "open"


class Phase(StrEnum):
    """How far a run has come."""

    BEGUN = "begun"
    STAGING = "staging"
    STAGED = "staged"
    PUBLISHING = "publishing"
    FINISHED = "finished"
