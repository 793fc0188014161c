"""The page that monitors fetch: the state DB is opened, read and closed again for each. What stands on it is `gauges`'."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from mappings.errors import SyncError
from pipelines.clock import now
from pipelines.measuring.exposition import Gauge
from pipelines.measuring.gauges import gauges_in_the_dark, gauges_of
from pipelines.settings import Settings
from state.database import existing_database
from state.views.books import Books, last_done

KEPT_S = 2.0
"""So long the numbers are good for whoever else asks: several monitors cost as much as one."""


def look(settings: Settings) -> tuple[Gauge, ...]:
    """Return the numbers of all feeds at the configured service, or at every service where none is; nothing is written.

    Raises:
        SyncError: there is a state DB, and it cannot be read.
    """
    destination = settings.destination if settings.base_url else None
    with existing_database(settings.state_url, upgrades=False) as engine:
        if engine is None:
            return gauges_of((), {})
        return gauges_of(Books(engine, now).status(destination=destination), last_done(engine, destination))


@dataclass(slots=True)
class MetricsPage:
    """The numbers for whoever asks, several at a time. `clock_s`: seconds that never go back."""

    settings: Settings
    clock_s: Callable[[], float]
    _kept: tuple[Gauge, ...] = ()
    _read_at: float = 0.0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def gauges(self) -> tuple[Gauge, ...]:
        """Return the numbers as they stand now, or stood a moment ago; a state DB that cannot be read is a number, too."""
        with self._turn:
            if not self._kept or self.clock_s() - self._read_at > KEPT_S:
                self._kept = self._look()
                self._read_at = self.clock_s()
            return self._kept

    def _look(self) -> tuple[Gauge, ...]:
        try:
            return look(self.settings)
        except SyncError as trouble:
            structlog.get_logger().warning("the state DB cannot be read for a monitor", trouble=str(trouble))
            return gauges_in_the_dark()
