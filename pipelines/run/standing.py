"""What waits for a person at the end of a run: the words for it, and the outcome that it leads to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from mappings.spec.feed import FeedMapping
from pipelines.run.outcome import ExitCode, RunOutcome
from state.enums import DriftKind, EntryState, ProblemKind, Waiting
from state.ledger.standing import Standing

REJECTED = ProblemKind.REJECTED.value
RESENT = "resent"
IGNORED = "ignored"
WAITING: tuple[str, ...] = (REJECTED, *(kind.value for kind in Waiting))
"""What waits for a person, in the order in which it is listed."""
ALL: tuple[str, ...] = tuple(dict.fromkeys((*(state.value for state in EntryState), *WAITING, RESENT, IGNORED)))
STANDING_TEXTS: Mapping[str, str] = {
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
NAMED = 3
"""Images named in the message of a run; `eventsync rows` has all of them."""
_DRIFTS = {
    DriftKind.EDITED: "edited",
    DriftKind.TO_PUBLISH: "to be published by hand",
    DriftKind.CANCELLED: "cancelled",
    DriftKind.RETURNED: "removed by hand and back in the source",
}


def outcome_of_standing(standing: Standing, mapping: FeedMapping, otherwise: RunOutcome) -> RunOutcome:
    """Return `needs attention` where what stands is beyond the feed's limits, else `otherwise`; both name what waits."""
    limits, refused = mapping.publish.brakes, standing.refused
    share = limits.rejected
    are_many = share is not None and refused.count >= limits.rejected_at_least and refused.count > share * standing.asked
    beyond = (
        (standing.conflict, STANDING_TEXTS[Waiting.CONFLICT]),
        (standing.forgotten, "uncertain for so long that the service may have forgotten their keys"),
        (standing.blocked, STANDING_TEXTS[Waiting.BLOCKED]),
        (standing.uncertain, STANDING_TEXTS[Waiting.UNCERTAIN]),
    )
    red = [f"{rows} {text}" for rows, text in beyond if rows.count]
    red += [f"{refused} {STANDING_TEXTS[Waiting.REFUSED]}, more than the feed allows"] if are_many else []
    drifts = (f"{standing.drifts[one]:,} {words}" for one, words in _DRIFTS.items() if standing.drifts.get(one))
    details = {
        Waiting.REFUSED: ", within what the feed allows",
        Waiting.DRIFT: f": {', '.join(drifts)}",
        Waiting.UNCONFIRMED: f": `eventsync reconcile {mapping.feed}` looks it up",
    }
    is_red = {Waiting.CONFLICT, Waiting.BLOCKED, Waiting.UNCERTAIN, *([Waiting.REFUSED] if are_many else [])}
    within = {kind: rows for kind, rows in standing.rows.items() if kind not in is_red}
    others = [f"{rows} {STANDING_TEXTS[kind]}{details.get(kind, '')}" for kind, rows in within.items()]
    others += filter(None, [copies_line(standing, mapping)])
    message = joined_lines("; ".join(red), otherwise.message, *others)
    hint = f"see `eventsync rows {mapping.feed}`"
    if not red:
        return replace(otherwise, message=message, hint="; ".join(filter(None, (otherwise.hint, hint if others else ""))))
    if first := (*standing.conflict.first, *standing.forgotten.first):
        hint = (
            f"`eventsync reconcile {mapping.feed}` looks for them in the service's list; `eventsync resolve {mapping.feed}"
            f" {shlex.quote(first[0])} --event-id N` (or --resend, or --ignore) decides; {hint}"
        )
    return RunOutcome("needs attention", ExitCode.ATTENTION, message, hint)


def copies_line(standing: Standing, mapping: FeedMapping) -> str:
    if not standing.copies.count:
        return ""
    return f"where the service ignores Idempotency-Key, {standing.copies} (`eventsync rows {mapping.feed} --state {RESENT}`)"


def joined_lines(*lines: str) -> str:
    return "\n".join(filter(None, lines))
