"""Structured logs on stderr: `pretty` for people, `json` for machines; secrets are masked in every line."""

from __future__ import annotations

import logging
import sys

import structlog

from pipelines.safe_output import escaped, undisturbed
from pipelines.settings import Settings


def configure_logs(settings: Settings) -> None:
    """Configure the logs of this process from the settings: format, level, and secrets to mask."""
    level = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

    def hide(_logger: object, _method: str, line: object) -> str:
        """Mask secrets in the finished line, and escape control characters."""
        return escaped(settings.mask.hide(str(line)))

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering(settings.log_format),
            hide,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level[settings.log_level]),
        logger_factory=lambda *_: structlog.PrintLogger(undisturbed(sys.stderr)),  # looked up at each line: tests replace it
        cache_logger_on_first_use=False,
    )


def _rendering(log_format: str) -> tuple[structlog.typing.Processor, ...]:
    """Return the last processors for a format; a stack trace shows code only, never values."""
    if log_format == "json":
        return structlog.processors.format_exc_info, structlog.processors.JSONRenderer()
    return (structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),)
