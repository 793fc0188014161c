"""Faults of eventsync itself: an unexpected exception in one feed is that feed's failure, and harms no other."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

from mappings.errors import SyncError


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
    from pipelines.logs import configure_logs  # noqa: PLC0415  # as above
    from pipelines.settings import current_settings  # noqa: PLC0415  # as above

    try:
        configure_logs(current_settings())
    except SyncError:
        return False
    return True
