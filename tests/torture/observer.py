"""Whether a run has come to a place, by what it leaves outside of itself: its row of `run`, its entries, its requests."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from integration.desk import Desk
from integration.service import Service

from state.queries import RunRecord


class Place(StrEnum):
    """The stations of a run, in its order."""

    START_UP = "start-up"
    LISTS = "lists"
    STAGING = "staging"
    GATE = "gate"
    CLAIMING = "claiming"
    IN_FLIGHT = "in flight"
    SETTLING = "settling"
    AFTER = "after"


class Observer:
    """Watches one desk's state DB and its service, run by run; it keeps no transaction open."""

    def __init__(self, desk: Desk, service: Service) -> None:
        self._desk = desk
        self._service = service
        self._last_run = ""
        self._last_request = 0

    def expect_next_run(self) -> None:
        youngest = self._youngest_run()
        self._last_run = youngest.run_id if youngest else ""
        self._last_request = self._service.last_number()

    def has_reached(self, place: Place, rows: int) -> bool:
        """Whether the run is at `place` or past it; `rows`: how many it has staged, sent or settled by then."""
        if place is Place.START_UP:
            return True
        if place is Place.IN_FLIGHT:
            return self._service.has_request_after(self._last_request + 2 + rows)  # two lists were asked for first
        run = self._youngest_run()
        if run is None or run.run_id == self._last_run:
            return False
        is_staged = run.phase not in {"begun", "staging"}
        is_over = run.phase == "finished" and run.outcome not in {"staged", None}
        reached: dict[Place, Callable[[], bool]] = {
            Place.LISTS: lambda: True,
            Place.STAGING: lambda: is_staged or (run.read.read if run.read else 0) >= rows,
            Place.GATE: lambda: is_staged,
            Place.CLAIMING: lambda: run.phase == "publishing" or is_over,
            Place.SETTLING: lambda: self._settled(run.run_id) >= rows,
            Place.AFTER: lambda: is_over,
        }
        return reached[place]()

    def _settled(self, run_id: str) -> int:
        return sum(row.state != "pending" and row.sent_run == run_id for row in self._desk.books.rows())

    def _youngest_run(self) -> RunRecord | None:
        return next(iter(self._desk.books.runs()), None)
