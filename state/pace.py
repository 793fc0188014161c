"""The pace of a route as all workers of a destination share it, and which of them send over it now.

What the text of a pace says, and what follows from it, is the caller's; here it is kept, and changed by one at a time.
The clock is the database's own on PostgreSQL, and this host's on SQLite, which is all one host's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, bindparam, delete, func, select, update

from state.database import insert_if_new, reading, writing
from state.holders import holder_of, is_running
from state.tables import ROUTE_PACE, ROUTE_WORKER

PRESENCE_S = 3.5
"""A worker that has not been seen for so long is gone: it shows itself about once a second."""

_OF_ROUTE = (ROUTE_PACE.c.destination == bindparam("at"), ROUTE_PACE.c.route == bindparam("by"))
_PUT = update(ROUTE_PACE).where(*_OF_ROUTE).values(pace=bindparam("text"), version=bindparam("next"), updated_at=bindparam("now"))
_PRESENT = (ROUTE_WORKER.c.destination == bindparam("at"), ROUTE_WORKER.c.route == bindparam("by"))
_OURS = (*_PRESENT, ROUTE_WORKER.c.worker == bindparam("who"))
_SHOW = update(ROUTE_WORKER).where(*_OURS).values(seen_at=bindparam("now"))
_FORGET = delete(ROUTE_WORKER).where(*_PRESENT, ROUTE_WORKER.c.seen_at < bindparam("since", type_=ROUTE_WORKER.c.seen_at.type))
_OTHERS = select(ROUTE_WORKER.c.worker).where(*_PRESENT, ROUTE_WORKER.c.worker != bindparam("who"))
_LEAVE = delete(ROUTE_WORKER).where(*_OURS)
_SERVER_NOW = select(func.clock_timestamp(type_=ROUTE_WORKER.c.seen_at.type))
_CLOCK = select(func.clock_timestamp(type_=ROUTE_WORKER.c.seen_at.type).label("server_now")).subquery()
_TOLD = (ROUTE_PACE.c.pace, ROUTE_PACE.c.version, ROUTE_PACE.c.updated_at)
_LOOK = select(_CLOCK, *_TOLD).select_from(_CLOCK.outerjoin(ROUTE_PACE, and_(*_OF_ROUTE)))


@dataclass(frozen=True, slots=True)
class SharedPace:
    """What is known of a route: the pace as text ("" at first) and its version, which grows with each change.

    `others`: workers besides ours that were seen a moment ago (0 where nobody asked); `now_s`, `written_s`: seconds since the
    epoch by one clock, now and when the pace was written.
    """

    text: str
    version: int
    others: int
    now_s: float
    written_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PaceBook:
    """The pace of one route of a destination, for one `worker` among those that share it; `now` gives aware times.

    A worker whose name is that of a process (`str(Holder)`) is forgotten as soon as the process is known to have ended.

    Every call raises `StateUnavailableError` or `StateBusyError` where the state DB fails.
    """

    engine: Engine
    destination: str
    route: str
    worker: str
    now: Callable[[], datetime]

    def meet(self) -> SharedPace:
        """Show that this worker is there, and return what is known; who fell silent is forgotten."""
        with writing(self.engine) as connection:
            now = self._time(connection)
            ours = {**self._route_key, "who": self.worker}
            connection.execute(_FORGET, {**self._route_key, "since": now - timedelta(seconds=PRESENCE_S)})
            if connection.execute(_SHOW, {**ours, "now": now}).rowcount == 0:
                connection.execute(
                    insert_if_new(connection, ROUTE_WORKER), {**self._new_key, "worker": self.worker, "seen_at": now}
                )
            others = connection.execute(_OTHERS, ours).scalars().all()
            ended = [worker for worker in others if _has_ended(worker)]
            for worker in ended:
                connection.execute(_LEAVE, {**self._route_key, "who": worker})
            return self._read(connection, now, others=len(others) - len(ended))

    def look(self) -> SharedPace:
        """Return what is known, without showing ourselves or asking for others."""
        with reading(self.engine) as connection:
            if connection.dialect.name == "sqlite":
                return self._read(connection, self._time(connection))
            seen = connection.execute(_LOOK, self._route_key).one()
            return _shared(seen, seen.server_now)

    def change(self, turn: Callable[[SharedPace], str]) -> SharedPace:
        """Replace what is known by what `turn` makes of it, while every other worker that would do the same waits."""
        with writing(self.engine) as connection:
            now = self._time(connection)
            blank = {**self._new_key, "version": 0, "pace": "", "updated_at": now}
            connection.execute(insert_if_new(connection, ROUTE_PACE), blank)
            found = self._read(connection, now, is_held=True)
            changed = SharedPace(turn(found), found.version + 1, found.others, found.now_s, found.now_s)
            put = {"text": changed.text, "next": changed.version, "now": now}
            connection.execute(_PUT, {**self._route_key, **put})
            return changed

    def leave(self) -> None:
        """Forget that this worker was there."""
        with writing(self.engine) as connection:
            connection.execute(_LEAVE, {**self._route_key, "who": self.worker})

    @property
    def _route_key(self) -> dict[str, str]:
        return {"at": self.destination, "by": self.route}

    @property
    def _new_key(self) -> dict[str, object]:
        return {"destination": self.destination, "route": self.route}

    def _time(self, connection: Connection) -> datetime:
        if connection.dialect.name == "sqlite":
            return self.now().astimezone(UTC)
        server_now: datetime = connection.execute(_SERVER_NOW).scalar_one()
        return server_now

    def _read(self, connection: Connection, now: datetime, *, others: int = 0, is_held: bool = False) -> SharedPace:
        found = select(*_TOLD).where(*_OF_ROUTE)
        row = connection.execute(found.with_for_update() if is_held else found, self._route_key).one_or_none()
        return _shared(row, now, others)


def _shared(row: Row[*tuple[Any, ...]] | None, now: datetime, others: int = 0) -> SharedPace:
    if row is None or row.version is None:
        return SharedPace("", 0, others, now.timestamp())
    return SharedPace(row.pace, int(row.version), others, now.timestamp(), row.updated_at.timestamp())


def _has_ended(worker: str) -> bool:
    """Whether the worker is a process that runs no more: one that was killed has not taken leave."""
    process = holder_of(worker)
    return process is not None and not is_running(process)
