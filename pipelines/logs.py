"""Structured logs on stderr: `pretty` for people, `json` for machines; the secret is masked wherever it would stand.

What is logged is said where it happens; a run says when it began, when it staged, when it published and how it ended.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

from pipelines.settings import Settings

MASK = "…"


def configure_logs(settings: Settings) -> None:
    """Set up the logs of this process as the environment asks: format, level, and the secret that must not appear."""
    level = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
    renderer = (
        structlog.processors.JSONRenderer() if settings.log_format == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _masking(settings.api_key.get_secret_value()),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level[settings.log_level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def _masking(secret: str) -> structlog.typing.Processor:
    def mask(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        if secret:
            return {key: value.replace(secret, MASK) if isinstance(value, str) else value for key, value in event.items()}
        return event

    return mask
