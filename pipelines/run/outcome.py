"""The outcome of a run and its exit code, for scripts, Dagster and the state DB; every error has one.

Also the sentences about rows that wait for a person at the end of a run.
"""

from __future__ import annotations

import platform
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from importlib.metadata import version
from typing import TYPE_CHECKING

from connectors.errors import KeyRefusedError, ScopeMissingError
from connectors.sources.contract import ColumnsError, EmptySourceError
from mappings.errors import DISK_IS_FULL, ConfigError, PermanentError, SyncError, TransientError
from mappings.row_key import shell_word
from pipelines.run.signals import InterruptedRunError, raise_if_turned_into_an_error
from state.enums import DriftKind, EntryState, ProblemKind, Waiting
from state.errors import HeldByAnotherError, LeaseLostError

if TYPE_CHECKING:
    from mappings.spec.feed import FeedMapping
    from state.ledger.gate import Gate
    from state.ledger.standing import OpenRows, Standing

HELP = "what to do: "
REJECTED = ProblemKind.REJECTED.value
STAGED = "staged"
"""The outcome of a run between its two steps, and of a run that only stages."""
RESENT = "resent"
IGNORED = "ignored"
WAITING: tuple[str, ...] = (REJECTED, *(kind.value for kind in Waiting))
"""Kinds of rows that wait for a person, in the order in which they are listed."""
ALL: tuple[str, ...] = tuple(dict.fromkeys((*(state.value for state in EntryState), *WAITING, RESENT, IGNORED)))
STANDING_TEXTS: Mapping[str, str] = {
    REJECTED: "rejected: the mapping cannot make events of them",
    Waiting.CONFLICT: "in conflict: the service reports their idempotency keys as used for other events",
    Waiting.BLOCKED: "blocked: the API key may not publish to their channel",
    Waiting.UNCERTAIN: "uncertain: the event may exist; they are sent again with the same key",
    Waiting.REFUSED: "refused by the service",
    Waiting.HELD: "held as likely copies of known events",
    Waiting.UNCONFIRMED: "delivered, with an event id that is not known",
    Waiting.DRIFT: "changed at the source since they were sent",
    Waiting.VANISHED: "gone from the source since they were sent",
    Waiting.WARNING: "used with a warning",
}
"""Sentences by the value of `rows --state`; the number of rows precedes each."""
STANDING_HELP: Mapping[str, str] = {
    "conflict": "`eventsync reconcile {feed}` searches the service for them; `eventsync resolve {feed} {key} --event-id N`"
    " (or --resend, or --ignore) decides",
    "uncertain": "the next run sends them again; for those too old for that: `eventsync reconcile {feed}`",
    "delivered_unconfirmed": "`eventsync reconcile {feed}` searches the service for their ids",
    "refused": "correct the source or the mapping; or send them unchanged: `eventsync retry {feed}`",
    "blocked": "ask for access to their channels; the next run sends them again",
    "held": "`eventsync rows {feed} --state held` names the other events; `eventsync resolve {feed} {key}"
    " --same-as` moves the event to the new key, `--release` sends the row, `--ignore` takes it off the list",
    "rejected": "`eventsync rows {feed} --state rejected --csv FILE` writes a list for the partner",
    "drift": "`eventsync diff {feed}` shows them; change or publish them by hand, then"
    " `eventsync resolve {feed} {key} --applied`",
    "vanished": "remove them by hand if they are cancelled, then `eventsync resolve {feed} {key} --removed`; or `--ignore`",
    "warning": "`eventsync rows {feed} --state warning` shows the warnings;"
    " `eventsync resolve {feed} {key} --ignore` takes one off the list",
}
"""What to do about them, by the same value."""
NAMED = 3
"""Images that the message of a run names; `eventsync rows` lists all."""
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
    """The end of a run: a word, its exit code, a sentence for people, and what to do."""

    name: str
    exit_code: ExitCode
    message: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """The message and the hint in one text, as stored in the state DB."""
        return f"{self.message}\n{HELP}{self.hint}" if self.hint else self.message


SEVERITY = (130, 2, 3, 5, 1, 4, 6, 0)
"""Exit codes, gravest first; the first one that occurred is the command's."""


def worst(codes: Collection[int]) -> int:
    """Return the gravest of several exit codes, 0 if there are none."""
    return next((code for code in SEVERITY if code in codes), 0)


def message_and_hint(text: str) -> tuple[str, str]:
    """Split a text of `RunOutcome.text` into message and hint; version 0.1 used another label."""
    message, hint, *_ = *re.split("\n(?:what to do|what would help): ", text, maxsplit=1), ""
    return message, hint


def outcome_of(error: SyncError) -> RunOutcome:
    """Return the outcome of an error."""
    name, code = next((name, code) for kinds, name, code in _OUTCOMES if isinstance(error, kinds))
    return RunOutcome(name, code, str(error), error.hint)


class FaultError(SyncError):
    """A bug of eventsync, or of a library that it uses."""


class MachineError(ConfigError):
    """This machine lacks something that work needs, such as room on a disk."""


_NO_ROOM = "make room, or name a folder on another disk: TMPDIR for temporary files, DAGSTER_HOME for Dagster's history"


def _trouble_of(error: BaseException | None) -> MachineError | None:
    """Return the trouble of the machine that caused an exception, None if there is none."""
    while error is not None:
        match error:
            case OSError(errno=number) if number in DISK_IS_FULL:
                return MachineError(f"no room is left on a disk: {error}", hint=_NO_ROOM)
            case sqlite3.Error(sqlite_errorcode=code) if code & 0xFF in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
                return MachineError(f"no room is left on a disk, or it fails: {error}", hint=_NO_ROOM)
            case FileNotFoundError() if "usable temporary directory" in str(error):
                return MachineError(f"no temporary folder can be written: {error.strerror}", hint=_NO_ROOM)
            case MemoryError():
                return MachineError("this process has no memory left", hint="give it more, or run fewer feeds at a time")
            case _:
                pass
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def faults_as_errors(doing: str, run_id: str = "", *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Log an unexpected exception of the block with its stack trace, and raise `FaultError` instead, or `MachineError` if the
    machine lacks something.

    The only place that catches every exception. `passing`: exceptions that pass unchanged, like `SyncError`.

    Raises:
        FaultError: its hint says what to report.
    """
    expected: tuple[type[Exception], ...] = (SyncError, *passing)
    try:
        yield
    except expected:
        raise
    except Exception as fault:
        raise_if_turned_into_an_error()
        raise (_trouble_of(fault) or _fault_of(fault, doing, run_id)) from fault


def _fault_of(error: Exception, doing: str, run_id: str) -> FaultError:
    """Log an unexpected exception, and build the error that says what to report.

    Sets up the logs first if the command has not: the settings have the secrets to mask.
    """
    import structlog  # noqa: PLC0415  # keeps the start of commands that log nothing fast

    where = "the stack trace in the log (stderr)"
    try:
        if not structlog.is_configured():
            from pipelines.logs import configure_logs  # noqa: PLC0415  # as above
            from pipelines.settings import current_settings  # noqa: PLC0415  # as above

            configure_logs(current_settings())
        structlog.get_logger().error("a bug in eventsync", doing=doing, exc_info=error)
    except SyncError:
        where = "what you did"
    run = f"run {run_id}, " if run_id else ""
    about = f"eventsync {version('eventsync')}, Python {platform.python_version()}"
    return FaultError(
        f"a bug in eventsync while {doing}: {type(error).__name__}", hint=f"please report it with: {run}{about}, and {where}"
    )


class BrakeError(SyncError):
    """A brake stopped the feed before anything was sent. `brakes`: their names, as for `--accept`."""

    def __init__(self, message: str, *, brakes: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.brakes = brakes


_OUTCOMES: tuple[tuple[tuple[type[SyncError], ...], str, ExitCode], ...] = (
    ((BrakeError, ColumnsError, EmptySourceError), "stopped by a brake", ExitCode.BRAKE),
    ((HeldByAnotherError, LeaseLostError), "held by another run", ExitCode.HELD),
    ((InterruptedRunError,), "interrupted", ExitCode.INTERRUPTED),
    ((KeyRefusedError, ScopeMissingError), "refused by the service", ExitCode.REFUSED),
    ((TransientError,), "paused", ExitCode.LATER),
    ((ConfigError, PermanentError), "cannot go on", ExitCode.CONFIG),
    ((SyncError,), "failed", ExitCode.ATTENTION),
)
"""The first matching line counts."""


def outcome_of_standing(standing: Standing, mapping: FeedMapping, otherwise: RunOutcome) -> RunOutcome:
    """Return `needs attention` if waiting rows exceed the feed's limits, else `otherwise`; the message lists all that waits."""
    limits, refused = mapping.publish.brakes, standing.refused
    share = limits.rejected
    are_many = share is not None and refused.count >= limits.rejected_at_least and refused.count > share * standing.asked
    too_old = "uncertain for so long that the service may have forgotten their idempotency keys"
    beyond = [
        (standing.conflict, STANDING_TEXTS[Waiting.CONFLICT]),
        (standing.forgotten, too_old),
        (standing.blocked, STANDING_TEXTS[Waiting.BLOCKED]),
        (standing.uncertain, STANDING_TEXTS[Waiting.UNCERTAIN]),
        (standing.faults, "rejected because of a bug in eventsync: please report it with the stack trace in the log"),
        *([(refused, f"{STANDING_TEXTS[Waiting.REFUSED]}, more than the feed allows")] if are_many else []),
    ]
    red = [f"{rows} {text}" for rows, text in beyond if rows.count]
    is_red = {Waiting.CONFLICT, Waiting.BLOCKED, Waiting.UNCERTAIN, *([Waiting.REFUSED] if are_many else [])}
    drifts = (f"{standing.drifts[one]:,} {words}" for one, words in _DRIFTS.items() if standing.drifts.get(one))
    details = {
        Waiting.REFUSED: ", within what the feed allows",
        Waiting.DRIFT: f": {', '.join(drifts)}",
    }
    within = {kind: rows for kind, rows in standing.rows.items() if kind not in is_red}
    others = [f"{rows} {STANDING_TEXTS[kind]}{details.get(kind, '')}" for kind, rows in within.items()]
    message = joined_lines("; ".join(red), otherwise.message, *others)
    hint = advice_on(standing.rows, mapping.feed)
    if standing.faults.count and not hint:
        hint = f"`eventsync rows {mapping.feed} --state {REJECTED}` lists them"
    if red:
        return with_copies(RunOutcome("needs attention", ExitCode.ATTENTION, message, hint), standing, mapping)
    hint = "; ".join(filter(None, (otherwise.hint, hint)))
    return with_copies(replace(otherwise, message=message, hint=hint), standing, mapping)


def help_on(kind: str, feed: str, row_key: str = "") -> str:
    """Return what to do about the rows of one list of `rows --state`; `row_key`: the first of them, if it is known."""
    return STANDING_HELP[kind].format(feed=feed, key=shell_word(row_key) if row_key else "KEY")


def advice_on(waiting: Mapping[Waiting, OpenRows], feed: str) -> str:
    """Return what to do about the gravest of the rows that wait, and where the others are explained; "" if none waits."""
    first = next(iter(waiting), None)
    if first is None:
        return ""
    more = f"; `eventsync status {feed}` says what to do about the others" if len(waiting) > 1 else ""
    return help_on(first, feed, *waiting[first].first[:1]) + more


def unsent_line(count: int, gate: Gate, feed: str) -> str:
    """Return a sentence on how many staged rows wait to be sent, and what sends them; "" if none."""
    if not count:
        return ""
    command = f"`eventsync run {feed} --publish-only` sends them"
    if not gate.is_open:
        command = "a brake stops them" if gate.brakes else f"`eventsync run {feed}` reads the source again, and sends them"
    return f"{count:,} staged row{'s wait' if count > 1 else ' waits'}: {command}"


def with_copies(outcome: RunOutcome, standing: Standing, mapping: FeedMapping) -> RunOutcome:
    """Return the outcome with a sentence on how many copies of events may exist, and the command that lists them."""
    if not (count := standing.copies.count):
        return outcome
    several, more = standing.copies.first, count - len(standing.copies.first)
    named = ", ".join(f"row {row_key} may exist up to {copies:,} times" for row_key, copies in several)
    named += f" and {more:,} more row{'s' * (more > 1)} more than once" if more else ""
    message = joined_lines(outcome.message, f"if the service ignores Idempotency-Key, {named}")
    lists = f"`eventsync rows {mapping.feed} --state {RESENT}` lists what may exist more than once"
    return replace(outcome, message=message, hint="; ".join(filter(None, (outcome.hint, lists))))


def joined_lines(*lines: str) -> str:
    """Join the lines that are not empty."""
    return "\n".join(filter(None, lines))


REHEARSING = "nothing was written into the sheet: the service is a local one, and the sheet is a real one"


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """The number of cells written, and why some were not, "" if all were."""

    cells: int = 0
    problem: str = ""

    @property
    def notice(self) -> str:
        """The problem as a notice of the run, "" without one."""
        prefix = "the sheet does not show the status of all rows: "
        return self.problem if self.problem in {"", REHEARSING} else prefix + self.problem
