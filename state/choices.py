"""The closed unions of deciding: what a person may choose for an entry, what stands beside it, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

from mappings.errors import ConfigError
from mappings.row_key import FeedName, RowKey
from state.views import RowRecord
from state.words import Decision, EntryState


@dataclass(frozen=True, slots=True)
class TakeEvent:
    """`event_id`: the row is delivered, as the event of this id."""

    event_id: int


@dataclass(frozen=True, slots=True)
class Resend:
    """`resend`: the row may be sent again."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """`ignore`: the row is off every list until it changes at its source."""


@dataclass(frozen=True, slots=True)
class Apply:
    """`applied`: the drift was applied by hand at the service."""


@dataclass(frozen=True, slots=True)
class SameAs:
    """`same_as`: the held row is the event of another key. `row_key`: that key; None for the candidate that is shown."""

    row_key: RowKey | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """`release`: the held row is sent."""


@dataclass(frozen=True, slots=True)
class Remove:
    """`removed`: the event is gone from the service."""


@dataclass(frozen=True, slots=True)
class TakeBack:
    """`undo`: the last decision is taken back."""


Choice = TakeEvent | Resend | SetAside | Apply | SameAs | Release | Remove | TakeBack


@dataclass(frozen=True, slots=True)
class Other:
    """Another entry, whose event a held row takes over or has taken over. `feed` is "" where it is of the same feed."""

    record: RowRecord
    scope_id: int
    feed: FeedName
    destination: str

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.record.row_key} of {self.feed}" if self.feed else str(self.record.row_key)


@dataclass(frozen=True, slots=True)
class Undo:
    """The last decision about an entry, and the entry as that decision left it. `is_of_event`: not only of earlier events."""

    decision: Decision
    state: EntryState
    revision: int
    attempts: int
    event_id: int | None
    is_of_event: bool = True


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known of a row beside its entry. `other`: the entry that `same_as` means, or whose event was taken over."""

    has_warnings: bool = False
    other: Other | None = None
    undo: Undo | None = None


NOTHING_BESIDE = Beside()


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the entry. `risk`: what may go wrong, as a person should know beforehand; "" if nothing can.

    `removed`: the events that are gone from the service; `adopted`: the entry whose event this one takes over or gives back.
    """

    state: EntryState
    decision: Decision | None
    event_id: int | None = None
    is_next_revision: bool = False
    risk: str = ""
    removed: tuple[int, ...] = ()
    adopted: Other | None = None


@dataclass(frozen=True, slots=True)
class AsItIs:
    """Nothing is to be done, for the reason given: what was chosen is so already."""

    because: str


class NotPossibleError(ConfigError):
    """What was chosen cannot be done with a row in this state; the hint says what can."""


RESOLVED, FOUND, ADOPTED = "resolved", "reconciled", "adopted"
"""The source of an event's id, as the code of the entry's last answer: a person, the service's list, another key. A later
decision, to ignore the row, does not make the id the service's own."""

FORGOTTEN = (
    "an earlier attempt was never answered. It is sent again under the same key: if the service has created the event"
    " then and has forgotten the key since, there will be two"
)
KEPT_FAILURE = (
    "; and where the service only repeats its failure under that key, it goes out under the next one: if the event was created"
    " before that failure was told, there will be two as well"
)
KEPT_DENIAL = (
    "; and where access is denied once more, it goes out under the next one: if the event exists, there will be two as well"
)
DENIED = (
    "the service denied access when it was sent, which says nothing of what was sent before. It is sent under the same key;"
    " where access is denied once more, under the next one: if its event exists after all, made before this ledger was"
    " begun anew or restored, there will be two"
)
USED_KEY = (
    "the service has said that its key is used. It is sent under the next key: if the event exists after all, there will be two"
)
"""The risks of `resend`, for people."""
