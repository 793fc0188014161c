"""A row that stands for many events, from the file to the service: one event a day, once, however often the run is killed."""

from __future__ import annotations

import pytest
from integration.desk import Desk, lines
from integration.service import Service
from integration.waiting import until

pytestmark = pytest.mark.slow

ROWS = 12
RULES = """\
rows:
  - cancelled: {column: TITLE, equals: "off"}
  - recur:
      from: {from: DAY, do: [{date: "%Y-%m-%d"}]}
      until: "2031-03-31"
      weekdays: [MO, SA]
event:
"""


@pytest.fixture(autouse=True)
def _feed(desk: Desk) -> None:
    desk.mapping(in_flight=4)
    desk.edit("event:\n", RULES)
    desk.edit('day: {from: DAY, do: [{date: ["%Y-%m-%d"]}]}', "day: $day")
    desk.source(lines(ROWS))


def test_each_day_is_delivered_once_however_often_the_run_is_killed(desk: Desk, service: Service) -> None:
    for seen in (20, 120):
        run = desk.start_run()
        until(lambda seen=seen: len(service.requests()) > seen, what="some requests")
        run.kill()
    desk.run(code=0)
    keys = [event["idempotencyKey"] for event in service.events()]
    assert len(keys) == len(set(keys)) == len(desk.states()) > 200
    read = desk.run().run["read"]
    assert (read["read"], read["read"] + read["expanded"], read["unchanged"]) == (ROWS, len(keys), len(keys))


@pytest.mark.usefixtures("service")
def test_a_row_that_is_taken_away_or_called_off_is_listed_for_each_of_its_days(desk: Desk) -> None:
    desk.run(code=0)
    desk.run_with(line.replace("Evening 2", "off") for line in lines(ROWS)[1:])
    counts = desk.command("diff", "town-hall", "--json").document["counts"]
    days = {row: sum(key.startswith(f"{row}|") for key in desk.states()) for row in (0, 2)}
    assert (counts["vanished"], counts["cancelled at the source"]) == (days[0], days[2])
    assert all("withdraw" in row["hint"] for row in desk.rows("drift"))


def test_one_day_of_a_row_may_be_picked_by_its_key_and_all_of_them_by_the_rows_own(desk: Desk, service: Service) -> None:
    assert desk.run("--keys", "4|2031-03-03").run["read"]["new"] == 1
    assert desk.states() == {"4|2031-03-03": "delivered"}
    desk.run("--stage-only", code=0)
    read = desk.run("--keys", "3,5|2031-03-03").run["read"]
    sent = {key for key, state in desk.states().items() if state == "delivered"}
    days = {key for key in desk.states() if key.startswith("3|")}
    assert sent == {"4|2031-03-03", *days, "5|2031-03-03"}
    assert len(service.events()) == len(sent) > 3
    assert (read["read"], read["read"] + read["expanded"]) == (2, len(sent) - 1)
