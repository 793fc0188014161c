"""A file that is as it was, as people meet it: told in a notice, counted as ever, its rejected rows still listed."""

from __future__ import annotations

import pytest
from integration.desk import FEED, Desk, line, lines
from integration.service import Service

pytestmark = pytest.mark.slow

ROWS = 60


def test_a_second_run_counts_the_rows_of_an_unchanged_file_without_reading_them(desk: Desk, service: Service) -> None:
    desk.source([*lines(ROWS), line(ROWS, title="")])
    first, second = desk.run(), desk.run()
    assert (first.code, second.code) == (0, 0), second.words
    assert second.run["read"] == {**first.run["read"], "new": 0, "unchanged": ROWS}
    assert first.run["notices"] == []
    (notice,) = second.run["notices"]
    assert notice.startswith("unchanged since it was read 20")
    assert second.run["rejections"] == first.run["rejections"]
    desk.command("state", "verify", code=0)
    assert len(service.events()) == ROWS


def test_a_rejected_row_of_an_unchanged_file_stays_listed_as_seen_by_the_run_that_passed_over_it(
    desk: Desk, service: Service
) -> None:
    desk.source([*lines(ROWS), line(ROWS, title="")])
    desk.run()
    asked = ("rows", FEED, "--state", "rejected", "--json")
    (before,) = desk.command(*asked).document["rows"]
    run_id = desk.run().run["run_id"]
    (after,) = desk.command(*asked).document["rows"]
    assert after == {**before, "run_id": run_id, "seen_at": after["seen_at"]}
    assert after["seen_at"] > before["seen_at"]
    assert len(service.events()) == ROWS


def test_a_whole_read_is_made_where_a_person_asks_for_it(desk: Desk, service: Service) -> None:
    desk.source(lines(ROWS))
    desk.run()
    said = desk.run("--full")
    assert (said.run["notices"], said.run["read"]["unchanged"]) == ([], ROWS)
    assert len(desk.run().run["notices"]) == 1
    assert len(service.events()) == ROWS
