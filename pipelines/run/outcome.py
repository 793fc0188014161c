"""The outcome of a run and its exit code, for scripts, Dagster and the state DB; every error has one.

What waits for a person at the end of a run has its words here, and leads to an outcome.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from importlib.metadata import version
from typing import TYPE_CHECKING

from connectors.errors import KeyRefusedError, ScopeMissingError
from connectors.sources.contract import EmptySourceError, MissingColumnsError
from mappings.errors import ConfigError, PermanentError, SyncError, TransientError
from pipelines.run.signals import InterruptedRunError
from state.enums import DriftKind, EntryState, ProblemKind, Waiting
from state.errors import HeldByAnotherError, LeaseLostError

if TYPE_CHECKING:
    from mappings.spec.feed import FeedMapping
    from state.ledger.standing import Standing

HELP = "what would help: "
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
STANDING_HELP: Mapping[str, str] = {
    "conflict": "`eventsync reconcile {feed}` looks for them, `eventsync resolve {feed} KEY` decides",
    "uncertain": "the next run sends them again; those too old for that: `eventsync reconcile {feed}`",
    "delivered_unconfirmed": "`eventsync reconcile {feed}` looks their ids up",
    "refused": "mend the source or the mapping; or as they are: `eventsync retry {feed}`",
    "blocked": "ask for access to their channels; the next run sends them again",
    "held": "`eventsync rows {feed} --state held` names the other events; `eventsync resolve {feed} KEY"
    " --same-as` moves the event to the new key, `--release` sends the row, `--ignore` leaves it held",
    "rejected": "`eventsync rows {feed} --state rejected --csv FILE` is for the partner",
    "drift": "`eventsync diff {feed}` shows them; change or publish them by hand, then `eventsync resolve {feed} KEY --applied`",
    "vanished": "remove them by hand if they are cancelled, then `eventsync resolve {feed} KEY --removed`; or `--ignore`",
    "earlier": "`eventsync rows {feed} --state earlier` names the events; remove them by hand, then"
    " `eventsync resolve {feed} KEY --removed`",
    "warning": "`eventsync rows {feed} --state warning` says what to look at;"
    " `eventsync resolve {feed} KEY --ignore` takes one off the list",
}
"""What would help, by the same word; `{feed}` stands for the feed's name."""
NAMED = 3
"""Images named in the message of a run; `eventsync rows` has all of them."""
_DRIFTS = {
    DriftKind.EDITED: "edited",
    DriftKind.TO_PUBLISH: "to be published by hand",
    DriftKind.CANCELLED: "cancelled",
    DriftKind.RETURNED: "removed by hand and back in the source",
}


class ExitCode(IntEnum):
    """The exit codes that scripts rely on."""

    DONE = 0
    ATTENTION = 1
    CONFIG = 2
    REFUSED = 3
    HELD = 4
    BRAKE = 5
    LATER = 6
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended: a word, its exit code, and a sentence for people."""

    name: str
    exit_code: ExitCode
    message: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """The message with the hint, as the state DB keeps it."""
        return f"{self.message}\n{HELP}{self.hint}" if self.hint else self.message


def message_and_hint(text: str) -> tuple[str, str]:
    """Split what `RunOutcome.text` returned."""
    message, _, hint = text.partition(f"\n{HELP}")
    return message, hint


def outcome_of(error: SyncError) -> RunOutcome:
    """Return the outcome of an error."""
    name, code = next((name, code) for kinds, name, code in _OUTCOMES if isinstance(error, kinds))
    return RunOutcome(name, code, str(error), error.hint)


class FaultError(SyncError):
    """A fault of eventsync itself, or of a library that it uses."""


@contextmanager
def faults_as_errors(doing: Callable[[], str], run_id: str = "", *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Log an unexpected exception of the block with its stack trace, and raise `FaultError` in its place.

    The one place that catches every exception. `passing`: those that are expected beside `SyncError`.

    Raises:
        FaultError: says what to send us.
    """
    expected: tuple[type[Exception], ...] = (SyncError, *passing)
    try:
        yield
    except expected:
        raise
    except Exception as fault:
        raise _fault_of(fault, doing(), run_id) from fault


def _fault_of(error: Exception, doing: str, run_id: str) -> FaultError:
    """Log a fault and return what to report.

    A command that logs nothing else sets up the logs first: the secrets to mask are known to the settings only.
    """
    import structlog  # noqa: PLC0415  # keeps the start of commands that log nothing fast

    where = "the stack trace in the log (stderr)"
    try:
        if not structlog.is_configured():
            from pipelines.settings import current_settings  # noqa: PLC0415  # as above
            from pipelines.telemetry.logs import configure_logs  # noqa: PLC0415  # as above

            configure_logs(current_settings())
        structlog.get_logger().error("a fault of eventsync", doing=doing, exc_info=error)
    except SyncError:
        where = "what was done"
    run = f"run {run_id}, " if run_id else ""
    about = f"eventsync {version('eventsync')}, Python {platform.python_version()}"
    return FaultError(
        f"a fault of eventsync while {doing}: {type(error).__name__}", hint=f"please report it: {run}{about}, and {where}"
    )


class BrakeError(SyncError):
    """A brake stopped the feed before anything was sent. `brakes`: their names, as `--accept` takes them."""

    def __init__(self, message: str, *, brakes: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.brakes = brakes


_OUTCOMES: tuple[tuple[tuple[type[SyncError], ...], str, ExitCode], ...] = (
    ((BrakeError, MissingColumnsError, EmptySourceError), "stopped by a brake", ExitCode.BRAKE),
    ((HeldByAnotherError, LeaseLostError), "held by another run", ExitCode.HELD),
    ((InterruptedRunError,), "interrupted", ExitCode.INTERRUPTED),
    ((KeyRefusedError, ScopeMissingError), "refused by the service", ExitCode.REFUSED),
    ((TransientError,), "paused", ExitCode.LATER),
    ((ConfigError, PermanentError), "cannot go on", ExitCode.CONFIG),
    ((SyncError,), "failed", ExitCode.ATTENTION),
)
"""The first that fits counts."""


def outcome_of_standing(standing: Standing, mapping: FeedMapping, otherwise: RunOutcome) -> RunOutcome:
    """Return `needs attention` where what stands is beyond the feed's limits, else `otherwise`; both name what waits."""
    limits, refused = mapping.publish.brakes, standing.refused
    share = limits.rejected
    are_many = share is not None and refused.count >= limits.rejected_at_least and refused.count > share * standing.asked
    too_old = "uncertain for so long that the service may have forgotten their keys"
    beyond = [
        (standing.conflict, STANDING_TEXTS[Waiting.CONFLICT]),
        (standing.forgotten, too_old),
        (standing.blocked, STANDING_TEXTS[Waiting.BLOCKED]),
        (standing.uncertain, STANDING_TEXTS[Waiting.UNCERTAIN]),
        *([(refused, f"{STANDING_TEXTS[Waiting.REFUSED]}, more than the feed allows")] if are_many else []),
    ]
    red = [f"{rows} {text}" for rows, text in beyond if rows.count]
    is_red = {Waiting.CONFLICT, Waiting.BLOCKED, Waiting.UNCERTAIN, *([Waiting.REFUSED] if are_many else [])}
    drifts = (f"{standing.drifts[one]:,} {words}" for one, words in _DRIFTS.items() if standing.drifts.get(one))
    details = {
        Waiting.REFUSED: ", within what the feed allows",
        Waiting.DRIFT: f": {', '.join(drifts)}",
        Waiting.UNCONFIRMED: f": `eventsync reconcile {mapping.feed}` looks it up",
    }
    within = {kind: rows for kind, rows in standing.rows.items() if kind not in is_red}
    others = [f"{rows} {STANDING_TEXTS[kind]}{details.get(kind, '')}" for kind, rows in within.items()]
    others += filter(None, [copies_line(standing, mapping)])
    message, hint = joined_lines("; ".join(red), otherwise.message, *others), f"see `eventsync rows {mapping.feed}`"
    if not red:
        return replace(otherwise, message=message, hint="; ".join(filter(None, (otherwise.hint, hint if others else ""))))
    if first := (*standing.conflict.first, *standing.forgotten.first):
        hint = (
            f"`eventsync reconcile {mapping.feed}` looks for them in the service's list; `eventsync resolve {mapping.feed}"
            f" {shlex.quote(first[0])} --event-id N` (or --resend, or --ignore) decides; {hint}"
        )
    return RunOutcome("needs attention", ExitCode.ATTENTION, message, hint)


def copies_line(standing: Standing, mapping: FeedMapping) -> str:
    """Return how many copies of events there may be, "" if none."""
    if not standing.copies.count:
        return ""
    return f"where the service ignores Idempotency-Key, {standing.copies} (`eventsync rows {mapping.feed} --state {RESENT}`)"


def joined_lines(*lines: str) -> str:
    """Join the lines that say something."""
    return "\n".join(filter(None, lines))
