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
from state.holders import HeldByAnotherError, LeaseLostError

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
class Outcome:
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


def outcome_of(error: SyncError) -> Outcome:
    """Return the outcome of an error."""
    name, code = _name_and_code(error)
    return Outcome(name, code, str(error), error.hint)


def _name_and_code(error: SyncError) -> tuple[str, ExitCode]:  # noqa: PLR0911  # a table, one line a kind
    match error:
        case BrakeError() | MissingColumnsError() | EmptySourceError():
            return "stopped by a brake", ExitCode.BRAKE
        case HeldByAnotherError() | LeaseLostError():
            return "held by another run", ExitCode.HELD
        case InterruptedRunError():
            return "interrupted", ExitCode.INTERRUPTED
        case KeyRefusedError() | ScopeMissingError():
            return "refused by the service", ExitCode.REFUSED
        case TransientError():
            return "paused", ExitCode.LATER
        case ConfigError() | PermanentError():
            return "cannot go on", ExitCode.CONFIG
        case _:
            return "failed", ExitCode.ATTENTION


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
    import structlog  # noqa: PLC0415  # keeps the start of commands that log nothing fast

    is_logged = structlog.is_configured() or _configured_now()
    if is_logged:
        structlog.get_logger().error("a fault of eventsync", doing=doing, exc_info=error)
    where = "the stack trace in the log (stderr)" if is_logged else "what was done"
    run = f"run {run_id}, " if run_id else ""
    about = f"eventsync {version('eventsync')}, Python {platform.python_version()}"
    return FaultError(
        f"a fault of eventsync while {doing}: {type(error).__name__}", hint=f"please report it: {run}{about}, and {where}"
    )


def _configured_now() -> bool:
    """Set up the logs for a fault in a command that logs nothing else; the secrets to mask are known to the settings only."""
    from pipelines.settings import current_settings  # noqa: PLC0415  # as above
    from pipelines.telemetry.logs import configure_logs  # noqa: PLC0415  # as above

    try:
        configure_logs(current_settings())
    except SyncError:
        return False
    return True


class BrakeError(SyncError):
    """A brake stopped the feed before anything was sent. `brakes`: their names, as `--accept` takes them."""

    def __init__(self, message: str, *, brakes: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.brakes = brakes
