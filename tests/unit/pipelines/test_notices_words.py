"""What a message says: the gravest first, bounded, and nothing in it that a chat would take for a call."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.notify import Tone
from mappings.row_key import FeedName
from pipelines.control_characters import replaced
from pipelines.notifications.causes import Cause, Concern
from pipelines.notifications.notices import MOST_CHARS, MOST_FEEDS, FeedNews, harmless, message_of
from state.notes import Notice

BRAKE = Concern(Cause.BRAKE, "3 of 40 rows rejected", "mend the source")
REJECTED = Concern(Cause.REJECTED, "3 rows rejected", "look at them", 3)
DRIFT = Concern(Cause.DRIFT, "17 rows changed", "publish them by hand", 17)
TOLD = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


def _over(feed: str) -> Notice:
    return Notice(FeedName(feed), "ops", "away", "the service does not answer", TOLD, TOLD, is_over=True)


def _news(feed: str, *new: Concern, over: bool = False, standing: tuple[Concern, ...] = ()) -> FeedNews:
    return FeedNews(FeedName(feed), "agenda@example.org", new, (_over(feed),) if over else (), standing)


def test_one_feed_is_named_in_the_title_and_told_in_full() -> None:
    message = message_of([_news("agenda", BRAKE, REJECTED, over=True, standing=(DRIFT,))], "https://events.example")
    assert message.title == "eventsync: agenda: stopped by a brake, and 1 more"
    assert message.body.splitlines() == [
        "agenda (owner: agenda@example.org)",
        "- 3 of 40 rows rejected",
        "  What would help: mend the source",
        "- 3 rows rejected",
        "  What would help: look at them",
        "- Over, told on 2026-03-01 08:00 UTC: the service does not answer",
        "Still open, told before: rows changed (17)",
        "",
        "Service: https://events.example",
    ]
    assert message.tone is Tone.ALARM


def test_the_gravest_feed_comes_first_and_the_page_of_runs_last() -> None:
    news = [_news("b-well", over=True), _news("a-drift", DRIFT), _news("c-braked", BRAKE)]
    message = message_of(news, "https://events.example", "https://dagster.example/runs")
    assert message.title == "eventsync: 2 feeds need somebody"
    assert [block.partition(" ")[0] for block in message.body.split("\n\n")] == ["c-braked", "a-drift", "b-well", "Service:"]
    assert message.body.endswith("Runs: https://dagster.example/runs")


@pytest.mark.parametrize(
    ("new", "tone"), [((BRAKE,), Tone.ALARM), ((REJECTED,), Tone.WARNING), ((REJECTED, BRAKE), Tone.ALARM), ((), Tone.RELIEF)]
)
def test_the_tone_is_that_of_the_gravest(new: tuple[Concern, ...], tone: Tone) -> None:
    assert message_of([_news("agenda", *new, over=True)], "").tone is tone


def test_that_all_is_well_again_is_said_in_the_title() -> None:
    assert message_of([_news("agenda", over=True)], "").title == "eventsync: agenda: over"
    assert message_of([_news("agenda", over=True), _news("crm", over=True)], "").title == "eventsync: over at 2 feeds"


def test_of_very_many_feeds_most_are_only_named() -> None:
    news = [_news(f"feed-{number:03}", Concern(Cause.AWAY, "no answer " * 500, "wait " * 500)) for number in range(200)]
    message = message_of(news, "https://events.example")
    assert message.title == "eventsync: 200 feeds need somebody"
    assert message.body.count("What would help") == MOST_FEEDS
    assert f"And {200 - MOST_FEEDS} more feeds: feed-015, feed-016" in message.body
    assert len(message.body) < MOST_FEEDS * (2 * MOST_CHARS + 100) + 1_500


@pytest.mark.parametrize("call", ["@everyone", "@here", "<!channel>", "<@U123>", "<#C123>"])
def test_a_partners_text_calls_nobody(call: str) -> None:
    told = message_of([_news("agenda", Concern(Cause.BRAKE, f"row {call} is twice there", ""))], "").body
    assert call not in told


@given(st.text())
def test_whatever_a_partner_wrote_stays_on_one_short_line(text: str) -> None:
    told = harmless(text)
    assert len(told.splitlines()) <= 1
    assert len(told) <= 2 * MOST_CHARS
    assert replaced(told) == told
