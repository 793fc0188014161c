"""Files on the web, deliveries, and orgs that say what changed: each row once, and nothing vanishes by mistake."""

from __future__ import annotations

import pytest
from integration.desk import HEADER, Desk, lines
from integration.service import Service
from lookalikes.web_files import untold, web_server

pytestmark = pytest.mark.slow

ROWS = 8


def point_at(desk: Desk, path: str, more: str = "") -> None:
    desk.mapping(in_flight=4)
    desk.edit("path: ../events.csv", f"path: {path}{more}")


def csv(rows: list[str]) -> str:
    return "\n".join([HEADER, *rows]) + "\n"


def test_deliveries_are_read_once_each_and_none_of_their_rows_vanishes(desk: Desk, service: Service) -> None:
    rows = lines(ROWS)
    folder = desk.folder / "in"
    folder.mkdir()
    point_at(desk, "../in/agenda-*.csv", "\n  files: new")
    (folder / "agenda-1.csv").write_text(csv(rows[:5]), "utf-8")
    desk.run(code=0)
    (folder / "agenda-2.csv").write_text(csv(rows[5:]), "utf-8")
    second = desk.run()
    assert (second.code, second.run["read"]["read"], second.run["read"]["new"]) == (0, 3, 3), second.words
    (folder / "agenda-1.csv").unlink()
    third = desk.run()
    assert (third.code, third.run["read"]["read"]) == (0, 0), third.words
    assert len(service.events()) == ROWS
    assert third.run["vanished"] == 0


def test_an_answer_of_unknown_length_that_is_far_shorter_than_last_time_is_not_taken_for_the_whole_file(
    desk: Desk, service: Service
) -> None:
    rows = lines(ROWS * 4)
    with web_server() as web:
        point_at(desk, web.address("/agenda.csv"))
        web.instead = untold(csv(rows).encode())
        desk.run(code=0)
        web.instead = untold(csv(rows[:5]).encode())
        short = desk.run()
        assert (short.code, short.run["outcome"]) == (6, "paused"), short.words
        assert "it may have been cut off" in short.words
        assert "--accept shrink" in short.run["hint"]
        web.instead = untold(csv(rows[:31]).encode() + b"31,Eve")
        cut = desk.run()
        assert (cut.code, cut.run["outcome"]) == (6, "paused"), cut.words
        web.instead = untold(csv(rows).encode())
        again = desk.run()
        assert (again.code, again.run["read"]["unchanged"], again.run["vanished"]) == (0, ROWS * 4, 0), again.words
        assert len(service.events()) == ROWS * 4
        web.instead = untold(csv(rows[:5]).encode())
        desk.run("--accept", "shrink", code=0)
