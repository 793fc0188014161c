"""Where a run stands at an instant, by what it leaves outside of itself: its row of `run`, its claims, its requests."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from integration.desk import Desk
from integration.service import Service
from sqlalchemy import Connection, Row, func, inspect, select

from pipelines.run.stage import CHUNK_ROWS
from state.tables import ENTRY, RUN

ANSWERED_S = 0.002
"""How long the service may take from an answer's end to its way out."""


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


_BEFORE_GATE = {"begun", "staging"}


class Observer:
    """Watches one desk's state DB and its service, run by run, over one connection that keeps no transaction open."""

    def __init__(self, desk: Desk, service: Service) -> None:
        self._desk = desk
        self._service = service
        self._connection: Connection | None = None
        self._has_tables = False
        self._last_run = ""
        self._last_request = 0

    def expect_next_run(self) -> None:
        """Take what is there now for that of earlier runs."""
        youngest = self._youngest_run()
        self._last_run = youngest.id if youngest else ""
        self._last_request = self._service.last_number()

    def has_reached(self, place: Place, rows: int) -> bool:  # noqa: PLR0911  # one for each place
        """Whether the run is at `place` or past it; `rows`: how many it has staged, sent or settled by then."""
        if place is Place.IN_FLIGHT:
            return self._service.has_request_after(self._last_request + 2 + rows)  # two lists were asked for first
        run = self._run()
        if place is Place.START_UP or run is None:
            return place is Place.START_UP
        match place:
            case Place.LISTS:
                return True
            case Place.STAGING:
                return _read(run) >= rows or run.phase not in _BEFORE_GATE
            case Place.GATE:
                return run.phase not in _BEFORE_GATE
            case Place.CLAIMING:
                return run.phase == "publishing" or _is_over(run)
            case Place.SETTLING:
                settled = select(func.count()).where(ENTRY.c.state != "pending", ENTRY.c.sent_run == run.id)
                return self._state_db.execute(settled).scalar_one() >= rows
            case _:
                return _is_over(run)

    def place_at(self, instant: float) -> tuple[Place, int]:
        """Return where the run stood at `instant` (seconds since the epoch), and in which chunk of its stage, from 1; else 0."""
        run = self._run()
        if run is None:
            return Place.START_UP, 0
        match run.phase:
            case "begun":
                return Place.LISTS, 0
            case "staging":
                return Place.STAGING, _read(run) // CHUNK_ROWS + 1
            case "publishing":
                return self._place_in_publish(run, instant), 0
            case _:
                return Place.AFTER if _is_over(run) else Place.GATE, 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _place_in_publish(self, run: Row[Any], instant: float) -> Place:
        """By the claimed rows: the answer of one was on its way, or requests were, or none had left."""
        claimed = select(ENTRY.c.idempotency_key).where(ENTRY.c.unanswered_at.is_not(None), ENTRY.c.sent_run == run.id)
        keys = set(self._state_db.execute(claimed).scalars())
        latency_s = int(self._service.look()["switches"]["latency_ms"]) / 1000 + ANSWERED_S
        sent = [one["at"] for one in self._service.requests(after=self._last_request) if one["idempotency_key"] in keys]
        if any(at + latency_s < instant for at in sent):
            return Place.SETTLING
        return Place.IN_FLIGHT if any(at < instant for at in sent) else Place.CLAIMING

    @property
    def _state_db(self) -> Connection:
        if self._connection is None:
            self._connection = self._desk.books.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._connection

    def _run(self) -> Row[Any] | None:
        """The run under watch, None before it has begun."""
        run = self._youngest_run()
        return None if run is None or run.id == self._last_run else run

    def _youngest_run(self) -> Row[Any] | None:
        self._has_tables = self._has_tables or (self._desk.books.is_there() and inspect(self._state_db).has_table(RUN.name))
        if not self._has_tables:
            return None
        columns = (RUN.c.id, RUN.c.phase, RUN.c.outcome, RUN.c.read_account)
        return self._state_db.execute(select(*columns).order_by(RUN.c.started_at.desc(), RUN.c.id.desc()).limit(1)).first()


def _is_over(run: Row[Any]) -> bool:
    return run.phase == "finished" and run.outcome not in {"staged", None}


def _read(run: Row[Any]) -> int:
    """Rows that the stage has made durable."""
    return int(json.loads(run.read_account)["read"]) if run.read_account else 0
