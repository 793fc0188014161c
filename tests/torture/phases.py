"""Where a run stands at an instant, told from what it leaves outside of itself: its page in the books, its claims, its requests.

Who strikes there is `blows`'; nothing here touches the run.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from integration.desk import Desk
from integration.service import Service
from sqlalchemy import Connection, func, inspect, select

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


@dataclass(frozen=True, slots=True)
class Page:
    """A run's page in the books. `read`: rows that its stage has made durable."""

    run_id: str
    phase: str
    outcome: str | None
    read: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run was met, and in which chunk of its stage, counted from 1."""

    place: Place
    chunk: int = 0


class Lookout:
    """Watches one desk's books and its service, run by run, over one connection that keeps no transaction open."""

    def __init__(self, desk: Desk, service: Service) -> None:
        self._desk = desk
        self._service = service
        self._connection: Connection | None = None
        self._has_tables = False
        self._last_run = ""
        self._last_request = 0

    def turn_to_the_next_run(self) -> None:
        """What is there now belongs to earlier runs."""
        page = self._youngest()
        self._last_run = page.run_id if page else ""
        self._last_request = self._service.last_number()

    def page(self) -> Page | None:
        """The page of the run under watch, None before it has begun one."""
        page = self._youngest()
        return None if page is None or page.run_id == self._last_run else page

    def is_at_the_lists(self) -> bool:
        return self.page() is not None

    def has_read(self, rows: int) -> bool:
        page = self.page()
        return page is not None and (page.read >= rows or self._is_past_staging(page))

    def is_past_staging(self) -> bool:
        page = self.page()
        return page is not None and self._is_past_staging(page)

    def is_publishing(self) -> bool:
        page = self.page()
        return page is not None and (page.phase == "publishing" or _is_over(page))

    def has_sent(self, requests: int) -> bool:
        return self._service.has_request_after(self._last_request + 2 + requests)  # two lists were asked for first

    def has_settled(self, rows: int) -> bool:
        page = self.page()
        settled = select(func.count()).where(ENTRY.c.state != "pending", ENTRY.c.sent_run == (page.run_id if page else ""))
        return page is not None and self._books.execute(settled).scalar_one() >= rows

    def is_over(self) -> bool:
        page = self.page()
        return page is not None and _is_over(page)

    def standing(self, instant: float) -> Standing:
        """Where the run stood at `instant` (seconds since the epoch), from what is known of it now."""
        page = self.page()
        if page is None:
            return Standing(Place.START_UP)
        match page.phase:
            case "begun":
                return Standing(Place.LISTS)
            case "staging":
                return Standing(Place.STAGING, page.read // CHUNK_ROWS + 1)
            case "publishing":
                return Standing(self._while_publishing(page, instant))
            case _:
                return Standing(Place.AFTER if _is_over(page) else Place.GATE)

    def _while_publishing(self, page: Page, instant: float) -> Place:
        """By the rows in hand: the answer of one was on its way, or requests were, or none had left."""
        claimed = select(ENTRY.c.idempotency_key).where(ENTRY.c.unanswered_at.is_not(None), ENTRY.c.sent_run == page.run_id)
        keys = set(self._books.execute(claimed).scalars())
        latency_s = int(self._service.look()["switches"]["latency_ms"]) / 1000 + ANSWERED_S
        sent = [request for request in self._requests() if request["idempotency_key"] in keys]
        if any(request["at"] + latency_s < instant for request in sent):
            return Place.SETTLING
        return Place.IN_FLIGHT if any(request["at"] < instant for request in sent) else Place.CLAIMING

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def _books(self) -> Connection:
        if self._connection is None:
            self._connection = self._desk.books.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._connection

    def _requests(self) -> list[dict[str, Any]]:
        return self._service.requests(after=self._last_request)

    def _is_past_staging(self, page: Page) -> bool:
        return page.phase in {"staged", "publishing", "finished"}

    def _youngest(self) -> Page | None:
        self._has_tables = self._has_tables or (self._desk.books.is_there() and inspect(self._books).has_table(RUN.name))
        if not self._has_tables:
            return None
        columns = (RUN.c.id, RUN.c.phase, RUN.c.outcome, RUN.c.read_account)
        row = self._books.execute(select(*columns).order_by(RUN.c.started_at.desc(), RUN.c.id.desc()).limit(1)).first()
        return None if row is None else Page(row.id, row.phase, row.outcome, _read(row.read_account))


def now_s() -> float:
    """The clock that the service writes its log by."""
    return time.time()


def _is_over(page: Page) -> bool:
    return page.phase == "finished" and page.outcome not in {"staged", None}


def _read(account: str | None) -> int:
    return int(json.loads(account)["read"]) if account else 0
