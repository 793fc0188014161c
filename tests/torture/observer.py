"""Whether a run has come to a place, by what it leaves outside of itself: its row of `run`, its entries, its requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from integration.desk import Desk
from integration.service import Service
from sqlalchemy import Connection, Row, func, inspect, select

from state.tables import ENTRY, RUN


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
    """Watches one desk's state DB and its service, run by run, over one connection that keeps no transaction open."""

    def __init__(self, desk: Desk, service: Service) -> None:
        self._desk = desk
        self._service = service
        self._connection: Connection | None = None
        self._last_run = ""
        self._last_request = 0

    def expect_next_run(self) -> None:
        youngest = self._youngest_run()
        self._last_run = youngest.id if youngest else ""
        self._last_request = self._service.last_number()

    def has_reached(self, place: Place, rows: int) -> bool:
        """Whether the run is at `place` or past it; `rows`: how many it has staged, sent or settled by then."""
        if place is Place.START_UP:
            return True
        if place is Place.IN_FLIGHT:
            return self._service.has_request_after(self._last_request + 2 + rows)  # two lists were asked for first
        run = self._youngest_run()
        if run is None or run.id == self._last_run:
            return False
        is_staged = run.phase not in {"begun", "staging"}
        is_over = run.phase == "finished" and run.outcome not in {"staged", None}
        reached: dict[Place, Callable[[], bool]] = {
            Place.LISTS: lambda: True,
            Place.STAGING: lambda: is_staged or int(json.loads(run.read_account or '{"read": 0}')["read"]) >= rows,
            Place.GATE: lambda: is_staged,
            Place.CLAIMING: lambda: run.phase == "publishing" or is_over,
            Place.SETTLING: lambda: self._settled(run.id) >= rows,
            Place.AFTER: lambda: is_over,
        }
        return reached[place]()

    def _settled(self, run_id: str) -> int:
        settled = select(func.count()).where(ENTRY.c.state != "pending", ENTRY.c.sent_run == run_id)
        return self._state_db().execute(settled).scalar_one()

    def _state_db(self) -> Connection:
        if self._connection is None:
            self._connection = self._desk.books.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _youngest_run(self) -> Row[Any] | None:
        if not self._desk.books.is_there() or not inspect(self._state_db()).has_table(RUN.name):
            return None
        columns = (RUN.c.id, RUN.c.phase, RUN.c.outcome, RUN.c.read_account)
        return self._state_db().execute(select(*columns).order_by(RUN.c.started_at.desc(), RUN.c.id.desc()).limit(1)).first()
