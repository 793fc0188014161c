"""Faults of ours in one row: an unexpected exception rejects that row, its stack trace is logged, and the other rows go on."""

from __future__ import annotations

import re
import sys

from mappings.outcome import WHOLE_ROW, Part, Rejection, RowLocation, Silence, SourceRow
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey

_UNPRINTABLE = re.compile(r"[^\n -~]")


class FaultLog:
    """Logs each fault of a mapper once: rows that fail at the same place in the code would fill the log."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def rejection(self, error: Exception, row: SourceRow, key: RowKey, *, is_expanding: bool) -> Rejection:
        """Return the rejection of a row that an unexpected exception stopped, and log its stack trace.

        `is_expanding`: the row may have several events; none of them counts as vanished.
        """
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace else "an unknown place"
        fault = f"{type(error).__name__} at {where}"
        if fault not in self._logged:
            self._logged.add(fault)
            _log_fault(error, row.location)
        hint = f"a bug in eventsync: {fault}; please report it with the stack trace in the log (stderr)"
        reason = Reason(ReasonCode.INTERNAL_ERROR, "", "", "", hint)
        part = Part(silence=Silence(key)) if key and is_expanding else WHOLE_ROW
        return Rejection(row.location, key, (reason,), row.cells, part)


def _log_fault(error: Exception, location: RowLocation) -> None:
    """Log the stack trace, which shows code only, never values; on stderr if the command has not set up the logs."""
    import structlog  # noqa: PLC0415  # keeps the start of commands fast

    def escape(_logger: object, _method: str, line: object) -> str:
        return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", str(line))

    log = structlog.get_logger()
    if not structlog.is_configured():
        renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
        log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr), processors=[renderer, escape])
    log.error("a bug in eventsync", doing=f"mapping the row at {location}", exc_info=error)
