"""An interruption in the middle of a statement stays one, whatever the driver complains of while it cleans up."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError

from state.database import StateUnavailableError, open_database, reading, writing


def _complain(*, is_interrupted: bool) -> None:
    """Fail as a driver does that resets a connection in the middle of a statement."""
    try:
        try:
            if is_interrupted:
                raise KeyboardInterrupt
        finally:
            raise sqlite3.ProgrammingError("can't change 'autocommit' now")
    except sqlite3.Error as complaint:
        raise DBAPIError("SELECT 1", None, complaint) from complaint


@pytest.mark.parametrize("transaction", [reading, writing], ids=["reading", "writing"])
@pytest.mark.parametrize(("is_interrupted", "told"), [(True, KeyboardInterrupt), (False, StateUnavailableError)])
def test_a_complaint_does_not_hide_the_interruption_that_caused_it(
    tmp_path: Path, transaction: type, is_interrupted: bool, told: type[BaseException]
) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")

    @event.listens_for(engine, "begin")
    def _begin(_connection: Connection) -> None:
        _complain(is_interrupted=is_interrupted)

    with pytest.raises(told), transaction(engine):
        pass
    engine.dispose()
