"""What was last known of a service as a whole, by name: small texts that outlive a run, such as a list's version.

What a text means is its writer's; what is known of single rows is the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Engine, select

from state.conflicts import put
from state.database import reading, writing
from state.tables import SERVICE_NOTE


class ServiceNotes:
    """The notes about one destination. Losing them costs a question or a repeated notice, never an event."""

    def __init__(self, engine: Engine, destination: str, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._destination = destination
        self._now = now

    def read(self, name: str) -> str | None:
        """Return the text noted under `name`, None if there is none."""
        ours = (SERVICE_NOTE.c.destination == self._destination, SERVICE_NOTE.c.name == name)
        with reading(self._engine) as connection:
            return connection.execute(select(SERVICE_NOTE.c.value).where(*ours)).scalar()

    def write(self, name: str, value: str) -> None:
        """Note a text, in place of what stood there; of several writers at once, the last one stands."""
        key = {"destination": self._destination, "name": name}
        with writing(self._engine) as connection:
            put(connection, SERVICE_NOTE, key, {"value": value, "noted_at": self._now()})
