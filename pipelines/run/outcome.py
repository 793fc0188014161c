"""The outcome of a run and its exit code, for scripts, Dagster and the state DB; every error has one."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from importlib.metadata import version

from connectors.errors import KeyRefusedError, ScopeMissingError
from connectors.sources.contract import EmptySourceError, MissingColumnsError
from mappings.errors import ConfigError, PermanentError, SyncError, TransientError
from pipelines.run.signals import InterruptedRunError
from state.errors import HeldByAnotherError, LeaseLostError

HELP = "what would help: "


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
    """Split what `Outcome.text` returned."""
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
