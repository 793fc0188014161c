"""Faults of ours in one row: an unexpected exception rejects that row, its stack trace is logged, and the other rows go on."""

from __future__ import annotations

import re
import sys

from mappings.outcome import RowLocation
from mappings.reasons import Reason, ReasonCode

_UNPRINTABLE = re.compile(r"[^\n -~]")
Fault = tuple[str, str, int]
"""The name of an exception, and the file and line that raised it."""


def fault_of(error: Exception) -> Fault:
    """Return what distinguishes a fault from others."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error).__name__, trace.tb_frame.f_code.co_filename if trace else "", trace.tb_lineno if trace else 0


def fault_reason(fault: Fault) -> Reason:
    """Return the reason of a row that a fault stopped."""
    name, file, line = fault
    where = f"{file.rpartition('/')[2]}:{line}"
    hint = f"a bug in eventsync: {name} at {where}; please report it with the stack trace in the log (stderr)"
    return Reason(ReasonCode.INTERNAL_ERROR, "", "", "", hint)


def log_fault(error: Exception, location: RowLocation) -> None:
    """Log the stack trace, which shows code only, never values; on stderr if the command has not set up the logs."""
    import structlog  # noqa: PLC0415  # keeps the start of commands fast

    def escape(_logger: object, _method: str, line: object) -> str:
        return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", str(line))

    log = structlog.get_logger()
    if not structlog.is_configured():
        renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
        log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr), processors=[renderer, escape])
    log.error("a bug in eventsync", doing=f"mapping the row at {location}", exc_info=error)
