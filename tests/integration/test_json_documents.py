"""`--json` of commands that run on: one document. What the others print is held in unit/cli."""

from __future__ import annotations

import json
import signal

import pytest
from documents import surprises
from integration.desk import Desk

pytestmark = pytest.mark.slow


def test_the_sandbox_announces_itself_in_one_document(desk: Desk) -> None:
    process = desk.installed("sandbox", "--json")
    assert process.stdout is not None
    assert surprises(("sandbox",), json.loads(process.stdout.readline())) == []
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate()
    assert (out, process.returncode in {0, 130}) == ("", True)


def test_the_demo_tells_both_rounds_in_one_document(desk: Desk) -> None:
    said = desk.command("demo", "--json", code=0)
    assert surprises(("demo",), said.document) == []
    assert said.document["sent_twice"] == 0
    assert {report["feed"] for report in said.document["first"]} == {"krakow-culture", "lisbon-agenda", "osaka-fireworks"}
