"""A file that is as it was, as people meet it: told in a notice, counted as ever, its rejected rows still listed."""

from __future__ import annotations

import pytest
from integration.desk import Desk, line, lines
from integration.service import Service

pytestmark = pytest.mark.slow

ROWS = 60


def test_an_unchanged_file_is_counted_and_its_rejected_rows_stay_listed_without_its_being_read(
    desk: Desk, service: Service
) -> None:
    desk.source([*lines(ROWS), line(ROWS, title="")])
    first = desk.run(code=0).run
    (before,) = desk.rows("rejected")
    second = desk.run(code=0).run
    (after,) = desk.rows("rejected")
    assert first["notices"] == []
    assert second["read"] == {**first["read"], "new": 0, "unchanged": ROWS}
    (notice,) = second["notices"]
    assert notice.startswith("unchanged since it was read 20")
    assert second["rejections"] == first["rejections"]
    assert after == {**before, "run_id": second["run_id"], "seen_at": after["seen_at"]}
    assert after["seen_at"] > before["seen_at"]
    whole = desk.run("--full").run
    assert (whole["notices"], whole["read"]["unchanged"]) == ([], ROWS), "a whole read is made where a person asks for it"
    desk.command("state", "verify", code=0)
    assert len(service.events()) == ROWS
