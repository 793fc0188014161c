"""Being asked to stop while a sheet is told what became of its rows: what was sent stands in the books, the sheet waits."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from integration.desk import Desk
from integration.waiting import until
from lookalikes.demo import FEEDS, running_places
from lookalikes.sheets import Fault
from sqlalchemy import select

from state.tables import LEASE, RUN

pytestmark = pytest.mark.slow
WORDS = ("run", "demo-sheet", "--no-dagster", "--json")
AT_ONCE_S = 10.0
"""Far less than the wait that the sheet's service has asked for."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_run_leaves_at_once_and_the_next_one_tells_the_sheet(desk: Desk, tmp_path: Path, number: int) -> None:
    shutil.copy(FEEDS / "demo-sheet.yaml", desk.folder / "feeds")
    with running_places(tmp_path / "access") as places:
        desk.env.update(places.environ)
        busy = Fault(where="batchUpdate", status=429, headers={"Retry-After": "90"}, times=99)
        places.google.faults.append(busy)
        run = desk.start(*WORDS)
        until(lambda: busy.times < 99, what="the first request that writes")
        run.signal(number)
        said = run.ended(0, within_s=AT_ONCE_S)

        assert said.run["outcome"] == "done"
        with desk.books.engine.connect() as connection:
            page = connection.execute(select(RUN.c.outcome, RUN.c.publish_account, RUN.c.notices)).one()
            assert not any(connection.execute(select(LEASE.c.holder)).scalars())
        assert (page.outcome, json.loads(page.publish_account)["delivered"]) == ("done", 5)
        assert "the run was asked to stop" in page.notices

        places.google.faults.clear()
        desk.command(*WORDS, code=0)
        assert ["0101", "published"] in [list(row[:2]) for row in places.said()]
