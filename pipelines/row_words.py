"""The words by which a person asks for rows, and what is said of rows that wait for a person."""

from __future__ import annotations

from collections.abc import Mapping

from state.enums import EntryState, ProblemKind, Waiting

REJECTED = ProblemKind.REJECTED.value
RESENT = "resent"
IGNORED = "ignored"
WAITING: tuple[str, ...] = (REJECTED, *(kind.value for kind in Waiting))
"""What waits for a person, in the order in which it is listed."""
ALL: tuple[str, ...] = tuple(dict.fromkeys((*(state.value for state in EntryState), *WAITING, RESENT, IGNORED)))

SAID: Mapping[str, str] = {
    REJECTED: "rejected: the mapping cannot make events of them",
    Waiting.CONFLICT: "in conflict: the service says that their keys were used for something else",
    Waiting.BLOCKED: "blocked: this key may not publish into their channel",
    Waiting.UNCERTAIN: "uncertain: no usable answer; they are sent again with the same key",
    Waiting.REFUSED: "refused by the service",
    Waiting.HELD: "held back as likely copies of known events",
    Waiting.UNCONFIRMED: "delivered under an id that is not known",
    Waiting.DRIFT: "changed at the source since they were sent",
    Waiting.VANISHED: "gone from the source since they were sent",
    Waiting.EARLIER: "with earlier events to be removed by hand",
    Waiting.WARNING: "used with a warning",
}
"""By the word that `rows --state` takes; a number of rows stands before it."""
