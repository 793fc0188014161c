"""`--keys` and `--publish-only` where there is nothing behind them: the run says so."""

from __future__ import annotations

import pytest
from integration.desk import Desk, lines
from integration.service import Service

pytestmark = pytest.mark.slow


def test_keys_that_the_source_does_not_have_are_named_and_the_others_are_sent(desk: Desk, service: Service) -> None:
    desk.source(lines(5))
    said = desk.run("--keys", "1,77,3,nobody")
    assert said.code == 1, said.words
    assert said.run["message"] == "keys that are not in the source: 77, nobody"
    assert service.titles() == ["Evening 1", "Evening 3"]
    assert desk.run("--keys", "1,3").code == 0


def test_publishing_where_nothing_was_staged_is_no_brake(desk: Desk, service: Service) -> None:
    desk.source(lines(5))
    said = desk.run("--publish-only")
    assert said.code == 2, said.words
    assert said.run["outcome"] != "stopped by a brake"
    assert "nothing was staged yet" in said.run["message"]
    assert "without `--publish-only`" in said.run["hint"]
    assert service.requests() == []
