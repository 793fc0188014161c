"""What the workers of a destination know of a route's rate limit, as text that one of them changes at a time.

The clock is the database's own on PostgreSQL, and this host's on SQLite, which only processes of one host use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Select, and_, bindparam, func, select, update

from state.database import insert_if_new, reading, writing
from state.tables import ROUTE_PACE

_OF_ROUTE = (ROUTE_PACE.c.destination == bindparam("at"), ROUTE_PACE.c.route == bindparam("by"))
_PUT = (
    update(ROUTE_PACE)
    .where(*_OF_ROUTE)
    .values(pace=bindparam("text"), version=ROUTE_PACE.c.version + 1, updated_at=bindparam("now"))
)
_KEPT = select(ROUTE_PACE.c.pace, ROUTE_PACE.c.updated_at).where(*_OF_ROUTE)
_CLOCK = select(func.clock_timestamp(type_=ROUTE_PACE.c.updated_at.type).label("server_now")).subquery()
_KEPT_AND_TIME = select(ROUTE_PACE.c.pace, ROUTE_PACE.c.updated_at, _CLOCK.c.server_now).select_from(
    _CLOCK.outerjoin(ROUTE_PACE, and_(*_OF_ROUTE))
)


@dataclass(frozen=True, slots=True)
class SharedRate:
    """The rate state of one `route` of a `destination`; `now` gives aware times.

    Every call raises `StateUnavailableError` or `StateBusyError` where the state DB fails.
    """

    engine: Engine
    destination: str
    route: str
    now: Callable[[], datetime]

    def read(self) -> tuple[str, float]:
        """Return the text ("" at first) and how many seconds ago it was written, below 0 where the clock was set back."""
        with reading(self.engine) as connection:
            return self._kept(connection)[:2]

    def change(self, turn: Callable[[str, float], str]) -> None:
        """Replace the text by what `turn` makes of it and its age, while every other worker that would do the same waits."""
        with writing(self.engine) as connection:
            blank = {"destination": self.destination, "route": self.route, "version": 0, "pace": "", "updated_at": self.now()}
            connection.execute(insert_if_new(connection, ROUTE_PACE), blank)
            text, age_s, now = self._kept(connection, is_held=True)
            connection.execute(_PUT, {**self._key, "text": turn(text, age_s), "now": now})

    @property
    def _key(self) -> dict[str, str]:
        return {"at": self.destination, "by": self.route}

    def _kept(self, connection: Connection, *, is_held: bool = False) -> tuple[str, float, datetime]:
        is_sqlite = connection.dialect.name == "sqlite"
        wanted: Select[Any] = _KEPT if is_sqlite else _KEPT_AND_TIME
        if is_held and not is_sqlite:
            connection.execute(_KEPT.with_for_update(), self._key)
        row = connection.execute(wanted, self._key).one_or_none()
        now = self.now().astimezone(UTC) if is_sqlite or row is None else row.server_now
        if row is None or not row.pace:
            return "", 0.0, now
        return row.pace, (now - row.updated_at).total_seconds(), now
