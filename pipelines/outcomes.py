"""What a run ended in: one outcome with its exit code, for scripts, for Dagster and for the books of past runs.

Which rows ended where is the accounts' matter; this page turns accounts and errors into one word.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from connectors.errors import KeyRefusedError, ScopeMissingError
from connectors.sources.errors import EmptySourceError, MissingColumnsError
from mappings.errors import ConfigError, PermanentError, SyncError, TransientError
from pipelines.stopping.interruption import InterruptedRunError
from state.holders import HeldByAnotherError
from state.ledger.lease import LeaseLostError

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
    def told(self) -> str:
        """The message with what would help, as the books keep it; `message_and_hint` takes it apart."""
        return f"{self.message}\n{HELP}{self.hint}" if self.hint else self.message


def message_and_hint(told: str) -> tuple[str, str]:
    """Take apart what `Outcome.told` put together."""
    message, _, hint = told.partition(f"\n{HELP}")
    return message, hint


class BrakeError(SyncError):
    """A brake stopped the feed before anything was sent. `brakes`: their names, as `--accept` takes them."""

    def __init__(self, message: str, *, brakes: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.brakes = brakes


def outcome_of(error: SyncError) -> Outcome:
    """Say which outcome an error stands for: the one place where the error tree meets the exit codes."""
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
