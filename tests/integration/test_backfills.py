"""A window of the past, as people bring it in: by dated file, by event, by a column; stopped, killed, gone on with."""

from __future__ import annotations

from datetime import date, timedelta

from integration.desk import FEED, HEADER, Desk, Said, line
from integration.service import Service

MONTH = ("--from", "2031-01-01", "--to", "2031-01-06")
DATED = "\n  path: ../in/{date:%Y%m%d}.csv\n"


def backfill(desk: Desk, *words: str) -> Said:
    return desk.command("backfill", FEED, "--no-dagster", "--json", *words)


def slices(said: Said) -> list[tuple[str, str]]:
    return [(one["from"], one["state"]) for one in said.document["backfill"]["slices"]]


def by_dated_file(desk: Desk, rows: int, days: int = 6) -> None:
    """Let the feed read files of days, each with so many rows."""
    path = desk.folder / "feeds" / "town.yaml"
    path.write_text(path.read_text("utf-8").replace("\n  path: ../events.csv\n", DATED), "utf-8")
    (desk.folder / "in").mkdir()
    for day in range(days):
        when = date(2031, 1, 1) + timedelta(days=day)
        told = [HEADER, *(line(day * rows + number) for number in range(rows))]
        (desk.folder / "in" / f"{when:%Y%m%d}.csv").write_text("\n".join(told) + "\n", "utf-8")


def test_dated_files_are_gone_through_day_by_day_and_each_row_is_sent_once(desk: Desk, service: Service) -> None:
    by_dated_file(desk, 3)
    said = backfill(desk, *MONTH)
    assert (said.code, said.document["sent"], said.document["backfill"]["by"]) == (0, 18, "file"), said.words
    assert [state for _, state in slices(said)] == ["done"] * 6
    again = backfill(desk, *MONTH)
    assert (again.code, again.document["sent"]) == (0, 0)
    assert len(service.events()) == 18


def test_a_rehearsal_tells_what_each_slice_would_send_and_writes_nothing(desk: Desk, service: Service) -> None:
    by_dated_file(desk, 3)
    said = backfill(desk, *MONTH, "--dry-run", "--slice", "2")
    told = [(one["from"], one["to"], one["would_send"]) for one in said.document["slices"]]
    assert told == [("2031-01-01", "2031-01-02", 6), ("2031-01-03", "2031-01-04", 6), ("2031-01-05", "2031-01-06", 6)]
    assert (said.code, said.document["would_send"], service.events(), desk.states()) == (0, 18, [], {})
