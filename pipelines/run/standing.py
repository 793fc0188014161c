"""What waits for a person at the end of a run: the words for it, and the outcome that it leads to."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mappings.errors import SyncError
from mappings.spec.feed import FeedMapping
from pipelines.run.outcome import ExitCode, Outcome, outcome_of
from state.enums import DriftKind, EntryState, ProblemKind, Waiting
from state.ledger.standing import Standing

if TYPE_CHECKING:
    from pipelines.run.publish import PublishReport  # imports the HTTP client

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


def outcome_of_publish(published: PublishReport, mapping: FeedMapping) -> Outcome:
    """Return the outcome of a drain: its cause if it stopped early, else by what waits for a person."""
    if isinstance(published.cause, SyncError):
        outcome = outcome_of(published.cause)
        return replace(outcome, message="\n".join((outcome.message, *_about_copies(published.standing, mapping))))
    return outcome_of_standing(published.standing, mapping, Outcome("done", ExitCode.DONE, _about_covers(published, mapping)))


def outcome_of_standing(standing: Standing, mapping: FeedMapping, otherwise: Outcome) -> Outcome:
    """Return `needs attention` where what stands is beyond the feed's limits, else `otherwise`; both name what waits."""
    red, others = list(_beyond(standing, mapping)), [*_within(standing, mapping), *_about_copies(standing, mapping)]
    rows = f"see `eventsync rows {mapping.feed}`"
    if red:
        hint = " ".join(filter(None, (_who_decides(standing, mapping), rows)))
        message = "\n".join(filter(None, ("; ".join(red), otherwise.message, *others)))
        return Outcome("needs attention", ExitCode.ATTENTION, message, hint)
    hint = "; ".join(filter(None, (otherwise.hint, rows if others else "")))
    return Outcome(otherwise.name, otherwise.exit_code, "\n".join(filter(None, (otherwise.message, *others))), hint)


def _beyond(standing: Standing, mapping: FeedMapping) -> Iterator[str]:
    if standing.conflict.count:
        yield f"{standing.conflict} {STANDING_TEXTS[Waiting.CONFLICT]}"
    if standing.forgotten.count:
        yield f"{standing.forgotten} uncertain for so long that the service may have forgotten their keys"
    if standing.blocked.count:
        yield f"{standing.blocked} {STANDING_TEXTS[Waiting.BLOCKED]}"
    if standing.uncertain.count:
        yield f"{standing.uncertain} {STANDING_TEXTS[Waiting.UNCERTAIN]}"
    if _is_beyond(standing, mapping):
        yield f"{standing.refused} {STANDING_TEXTS[Waiting.REFUSED]}, more than the feed allows"


def _within(standing: Standing, mapping: FeedMapping) -> Iterator[str]:
    for kind, rows in standing.rows.items():
        match kind:
            case Waiting.CONFLICT | Waiting.BLOCKED | Waiting.UNCERTAIN:
                continue
            case Waiting.REFUSED:
                if not _is_beyond(standing, mapping):
                    yield f"{rows} {STANDING_TEXTS[kind]}, within what the feed allows"
            case Waiting.DRIFT:
                yield f"{rows} {STANDING_TEXTS[kind]}: {_by_kind(standing)}"
            case Waiting.UNCONFIRMED:
                yield f"{rows} {STANDING_TEXTS[kind]}: `eventsync reconcile {mapping.feed}` looks it up"
            case _:
                yield f"{rows} {STANDING_TEXTS[kind]}"


def _about_copies(standing: Standing, mapping: FeedMapping) -> Iterator[str]:
    if standing.copies.count:
        all_rows = f"eventsync rows {mapping.feed} --state {RESENT}"
        yield f"where the service ignores Idempotency-Key, {standing.copies} (`{all_rows}`)"


def _by_kind(standing: Standing) -> str:
    return ", ".join(f"{standing.drifts[kind]:,} {words}" for kind, words in _DRIFTS.items() if standing.drifts.get(kind))


def _is_beyond(standing: Standing, mapping: FeedMapping) -> bool:
    limits, refused = mapping.publish.brakes, standing.refused.count
    return limits.rejected is not None and refused >= limits.rejected_at_least and refused > limits.rejected * standing.asked


def _who_decides(standing: Standing, mapping: FeedMapping) -> str:
    """Return the commands that help, where a person has to decide."""
    first = (*standing.conflict.first, *standing.forgotten.first)
    if not first:
        return ""
    return (
        f"`eventsync reconcile {mapping.feed}` looks for them in the service's list;"
        f" `eventsync resolve {mapping.feed} {shlex.quote(first[0])} --event-id N` (or --resend, or --ignore) decides;"
    )


def _about_covers(published: PublishReport, mapping: FeedMapping) -> str:
    problems = published.cover_problems
    if not problems:
        return ""
    first = "; ".join(f"row {one.row_key}: {one.url}: {one.reason}" for one in problems[:NAMED])
    return f"{len(problems)} cover images could not be used: {first} (all: `eventsync rows {mapping.feed} --state warning`)"
