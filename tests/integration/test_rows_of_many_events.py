"""A row that stands for many events, from the file to the service: one day of it may be picked, or all of them."""

from __future__ import annotations

import pytest
from integration.desk import Desk, lines
from integration.service import Service

pytestmark = pytest.mark.slow

RULES = """\
rows:
  - cancelled: {column: TITLE, equals: "off"}
  - recur:
      from: {from: DAY, do: [{date: "%Y-%m-%d"}]}
      until: "2031-03-31"
      weekdays: [MO, SA]
event:
"""


def test_days_of_rows_are_picked_delivered_once_and_listed_when_their_row_goes(desk: Desk, service: Service) -> None:
    desk.edit("event:\n", RULES)
    desk.edit('day: {from: DAY, do: [{date: ["%Y-%m-%d"]}]}', "day: $day")
    assert desk.run_with(lines(12), "--keys", "4|2031-03-03").run["read"]["new"] == 1
    assert desk.states() == {"4|2031-03-03": "delivered"}
    desk.run("--stage-only", code=0)
    read = desk.run("--keys", "3,5|2031-03-03").run["read"]
    sent = {key for key, state in desk.states().items() if state == "delivered"}
    assert sent == {"4|2031-03-03", "5|2031-03-03", *(key for key in desk.states() if key.startswith("3|"))}
    assert len(service.events()) == len(sent) > 3
    assert (read["read"], read["read"] + read["expanded"]) == (2, len(sent) - 1)

    desk.run(code=0)
    days = desk.states().keys()
    assert len(service.events()) == len(service.requests()) == len(days) > 200
    desk.run_with((line.replace("Evening 2", "off") for line in lines(12)[1:]), code=0)
    counts = desk.command("diff", "town-hall", "--json").document["counts"]
    gone, called_off = (sum(key.startswith(f"{row}|") for key in days) for row in (0, 2))
    assert (counts["vanished"], counts["cancelled at the source"]) == (gone, called_off)
    assert all("withdraw" in row["hint"] for row in desk.rows("drift"))
