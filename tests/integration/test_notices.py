"""Runs of the engine alone, as cron has them, and what the owners of their feed hear."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.desk import FEED, Desk, line, lines, mid_way
from integration.service import Service
from integration.waiting import until
from lookalikes.notices import Inbox, webhook

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text("utf-8")
TOKEN = "tok-8Kx2vLm9Zq4RtW"


@pytest.fixture
def hook() -> Iterator[Inbox]:
    with webhook() as inbox:
        yield inbox


@pytest.fixture
def told_desk(desk: Desk, hook: Inbox) -> Desk:
    desk.env["EVENTSYNC_NOTIFY"] = f"json://{TOKEN}:{TOKEN}@127.0.0.1:{hook.port}/{TOKEN}"
    return desk


def _mostly_good() -> list[str]:
    return [*(line(number, genre="opera") for number in range(3)), *lines(20)[3:]]


def test_bad_rows_are_told_once_and_that_they_are_mended(any_desk: Desk, hook: Inbox) -> None:
    any_desk.env["EVENTSYNC_NOTIFY"] = hook.address()
    any_desk.edit("source:", "owner: agenda@example.org\nsource:")
    any_desk.run_with(_mostly_good(), "--dry-run")
    assert hook.told == [], "a rehearsal tells nobody"
    assert [any_desk.run().code for _ in range(2)] == [5, 5]
    (message,) = hook.told
    service = any_desk.env["EVENT_API_BASE_URL"]
    assert f"{message.title}\n\n{message.body}".replace(service, "https://events.example.org") in PAGE
    assert hook.titles() == [f"{FEED}: stopped by a brake, and 1 more"]
    any_desk.source(lines(20))
    assert [any_desk.run().code for _ in range(2)] == [0, 0]
    assert hook.titles() == [f"{FEED}: resolved"]


def test_a_killed_run_is_told_before_the_next_one(told_desk: Desk, service: Service, hook: Inbox) -> None:
    mid_way(told_desk, service, 60, after=0, latency_ms=400).kill()
    service.switch(latency_ms=0)
    assert hook.titles() == []
    told_desk.run(code=0)
    assert hook.titles() == [f"{FEED}: a run was lost", f"{FEED}: resolved"]


def test_neither_key_nor_address_is_anywhere_to_be_found_and_a_recipient_who_refuses_fails_no_run(
    told_desk: Desk, hook: Inbox
) -> None:
    told_desk.source(lines(2))
    secret = "sk-nobody-knows-this-one-0042"
    told_desk.run(EVENT_API_KEY=secret, EVENTSYNC_LOG="json debug", code=3)
    (message,) = hook.told
    assert message.title == f"eventsync: {FEED}: the service refuses the API key"
    assert secret not in message.title + message.body
    hook.status = 401
    said = told_desk.run_with(_mostly_good(), EVENTSYNC_LOG="pretty debug", code=5)
    assert "a notification could not be sent" in said.words
    assert TOKEN.encode() not in told_desk.written()


def test_the_report_does_not_wait_for_whoever_is_told(told_desk: Desk, hook: Inbox) -> None:
    told_desk.source(_mostly_good())
    hook.may_answer.clear()
    run = told_desk.start_run()
    said = until(lambda: run.text(".out"), what="the report")
    assert json.loads(said)["exit_code"] == 5
    assert not run.has_ended
    hook.may_answer.set()
    ended = run.ended(5)
    assert "could not be sent" not in ended.words
    assert hook.titles() == [f"{FEED}: stopped by a brake, and 1 more"]


def test_a_backfill_tells_once_what_stopped_it_and_then_that_it_is_over(told_desk: Desk, service: Service, hook: Inbox) -> None:
    window = ("backfill", FEED, "--no-dagster", "--by", "event", "--from", "2026-01-01", "--to", "2035-12-31", "--slice", "5000")
    told_desk.mapping(max_pause="1s")
    told_desk.source(lines(5))
    service.switch(rate_events="1/h")
    assert [told_desk.command(*window).code for _ in range(2)] == [6, 6]
    (message,) = hook.told
    assert hook.titles() == [f"{FEED}: paused"]
    assert "What to do" in message.body
    service.switch(rate_events="off")
    told_desk.command(*window, "--dry-run", code=0)
    assert hook.titles() == []
    told_desk.command(*window, code=0)
    assert hook.titles() == [f"{FEED}: resolved"]


def test_without_the_library_a_run_is_as_good_and_says_what_to_install(told_desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "apprise.py").write_text("raise ModuleNotFoundError(\"No module named 'apprise'\", name='apprise')\n", "utf-8")
    told_desk.source(_mostly_good())
    told_desk.env["PYTHONPATH"] = str(tmp_path)
    run = told_desk.installed("run", FEED, "--no-dagster")
    said = " ".join(run.communicate(timeout=60))
    assert run.returncode == 5
    assert "pip install 'eventsync[notify]'" in said
