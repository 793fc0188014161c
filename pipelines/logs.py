"""Structured logs on stderr: `pretty` for people, `json` for machines; secrets are masked wherever they would stand.

What is logged is said where it happens; a run says when it began, when it staged, when it published and how it ended.
"""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import structlog

from connectors.masking import Mask
from mappings.errors import SyncError
from pipelines.outcomes import FaultError
from pipelines.settings import Settings, current_settings


def configure_logs(settings: Settings) -> None:
    """Set up the logs of this process as the environment asks: format, level, and the secrets that must not appear."""
    level = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering(settings.log_format),
            _masking(settings.mask),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level[settings.log_level]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # as it is then: somebody may have put another in its place
        cache_logger_on_first_use=False,
    )


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
    try:
        configure_logs(current_settings())
    except SyncError:
        return False
    return True


def _rendering(log_format: str) -> tuple[structlog.typing.Processor, ...]:
    """Return what makes a line of an event; of a trace only its lines of code are shown, never the values they worked on."""
    if log_format == "json":
        return structlog.processors.format_exc_info, structlog.processors.JSONRenderer()
    return (structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),)


def _masking(mask: Mask) -> structlog.typing.Processor:
    """Hide the secrets in the finished line, wherever in the event they stood."""

    def hide(_logger: object, _method: str, line: object) -> str:
        return mask.hide(str(line))

    return hide
