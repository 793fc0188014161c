"""`eventsync metrics --port`: served until somebody stops it, and left in good order."""

from __future__ import annotations

import json
import signal

import httpx
import pytest
from integration.desk import FEED, Desk, lines
from integration.waiting import until
from prometheus import samples

pytestmark = pytest.mark.slow


def test_numbers_are_served_while_runs_are_at_work_until_it_is_told_to_stop(desk: Desk) -> None:
    serving = desk.start("metrics", "--port", "0", "--json")
    until(lambda: serving.text(".out").endswith("}\n"), what="the address of the numbers")
    url = httpx.URL(json.loads(serving.text(".out"))["url"])
    assert httpx.get(url, trust_env=False, verify=False, timeout=60).text.count("eventsync_rows") == 0
    desk.source(lines(3))
    desk.run(code=0)
    labels = {"feed": FEED, "destination": f"{desk.env['EVENT_API_BASE_URL']}#default", "state": "delivered"}

    def served() -> list[float]:
        return samples(httpx.get(url, trust_env=False, verify=False, timeout=60).text, "eventsync_rows", **labels)

    until(lambda: served() == [3], what="the rows of the run")
    serving.signal(signal.SIGTERM)
    assert serving.ended().code == 0
