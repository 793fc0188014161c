"""What a run logs, and at which level."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from integration.desk import FEED, Desk, Said, lines
from integration.service import SECRET

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "observability.md"


def _logged(said: Said) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]


def test_above_debug_rows_get_no_line_of_their_own(desk: Desk) -> None:
    desk.source(lines(40))
    logged = _logged(desk.run(EVENTSYNC_LOG="json", code=0))
    assert {line["level"] for line in logged} == {"info"}
    assert not [line for line in logged if "row_key" in line]


def test_at_debug_each_row_is_followed_and_lines_name_feed_and_run_and_nothing_secret(desk: Desk) -> None:
    desk.source(lines(3))
    said = desk.run(EVENTSYNC_LOG="json debug", code=0)
    logged = _logged(said)
    assert {"phase begins", "phase ended"} <= {line["event"] for line in logged}
    assert {(line["feed"], line["run_id"]) for line in logged} == {(FEED, said.run["run_id"])}
    sent, answered = ([line for line in logged if line["event"] == word] for word in ("row is sent", "row has its answer"))
    assert sorted(line["row_key"] for line in sent) == ["0", "1", "2"]
    assert {(line["verdict"], line["status"], line["attempts"]) for line in answered} == {("receipt", 201, 1)}
    assert all(line["event_id"] and line["level"] == "debug" for line in answered)
    assert not [line for line in logged if "row_key" in line and line not in [*sent, *answered]]
    assert SECRET not in said.err

    shown = re.findall(r"^\{.*\}$", "\n".join(re.findall(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)), re.MULTILINE)
    assert len(shown) == 2
    for line in map(json.loads, shown):
        assert line.keys() in [one.keys() for one in logged if one["event"] == line["event"]], line


def test_a_run_that_is_refused_says_so_in_its_lines(desk: Desk) -> None:
    desk.source(lines(2))
    said = desk.run(EVENT_API_KEY="sk-nobody-knows-this-one-0042", EVENTSYNC_LOG="json debug", code=3)
    (ended,) = [line for line in _logged(said) if line["event"] == "phase ended"]
    assert (ended["feed"], ended["run_id"], ended["exit_code"]) == (FEED, said.run["run_id"], 3)
