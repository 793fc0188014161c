"""`eventsync check` says who would be told of a feed, and tries it when asked to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lookalikes.notices import Inbox, webhook
from unit.cli.conftest import MAPPING, Desk

TOKEN = "tok-8Kx2vLm9Zq4RtW"


@pytest.fixture
def hook(desk: Desk) -> Iterator[Inbox]:
    with webhook() as inbox, desk.service():
        desk.mapping(f"owner: agenda@example.org\nnotify: [ops, crew]\n{MAPPING}")
        addresses = f"json://us:{TOKEN}@127.0.0.1:{inbox.port}/ops?to={{owner}}"
        desk.monkeypatch.setenv("EVENTSYNC_NOTIFY", f"ops={addresses} {inbox.address('all')} crews=nosuch://{TOKEN}")
        yield inbox


def _told(desk: Desk, *words: str) -> list[tuple[str, str]]:
    (feed,) = desk.run("check", "--json", *words).document["feeds"]
    return [(one["severity"], one["told"]) for one in feed["live"] if one["asked"] == "notify"]


def test_who_would_be_told_and_which_channel_is_not_there(desk: Desk, hook: Inbox) -> None:
    assert _told(desk, "--live") == [
        ("warning", 'EVENTSYNC_NOTIFY has no channel "crew"; did you mean "crews"?'),
        ("ok", "what needs somebody is told to ops (agenda@example.org), all"),
    ]
    assert hook.told == []


def test_a_test_goes_to_everybody_once(desk: Desk, hook: Inbox) -> None:
    assert _told(desk, "--notify")[-1] == ("ok", "a test went to ops (agenda@example.org), all")
    assert sorted(hook.titles()) == ["a test", "a test"]


def test_what_keeps_somebody_from_being_told_is_a_warning_without_the_address(desk: Desk, hook: Inbox) -> None:
    hook.status = 401
    desk.mapping(f"notify: crews\n{MAPPING}")
    said = desk.run("check", "--notify")
    assert said.code == 0
    lines = [line for line in said.out.splitlines() if "notify" in line]
    assert [line.partition("cannot be told")[0].strip() for line in lines] == ["warning: notify: crews", "warning: notify: all"]
    assert TOKEN not in said.out + said.err


def test_of_a_feed_that_names_nobody_nothing_is_said(desk: Desk) -> None:
    with desk.service():
        assert _told(desk, "--live") == []
