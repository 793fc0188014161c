"""What a message to owners says, whom it goes to, how often, and that docs/notifications.md agrees."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.masking import Mask
from connectors.notify import Tone
from mappings.errors import ConfigError
from mappings.row_key import FeedName
from pipelines.control_characters import replaced
from pipelines.notices import MOST_AN_HOUR, MOST_CHARS, MOST_FEEDS, Cause, Concern, FeedNews, SentMessages, harmless, message_of
from pipelines.orchestration.automation import LOST_AFTER, NOTICES_SENSOR
from pipelines.settings import read_channels, read_settings
from state.notes import Notice

BRAKE = Concern(Cause.BRAKE, "3 of 40 rows rejected", "mend the source")
REJECTED = Concern(Cause.REJECTED, "3 rows rejected", "look at them", 3)
DRIFT = Concern(Cause.DRIFT, "17 rows changed", "publish them by hand", 17)
TOLD = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


def _news(feed: str, *new: Concern, over: bool = False, standing: tuple[Concern, ...] = ()) -> FeedNews:
    ended = Notice(FeedName(feed), "ops", "away", "the service does not answer", TOLD, TOLD, is_over=True)
    return FeedNews(FeedName(feed), "agenda@example.org", new, (ended,) if over else (), standing)


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


def test_the_tone_is_that_of_the_gravest() -> None:
    tones = {(): Tone.RELIEF, (BRAKE,): Tone.ALARM, (REJECTED,): Tone.WARNING, (REJECTED, BRAKE): Tone.ALARM}
    assert {new: message_of([_news("agenda", *new, over=True)], "").tone for new in tones} == tones
    assert message_of([_news("agenda", over=True), _news("crm", over=True)], "").title == "eventsync: over at 2 feeds"


def test_of_very_many_feeds_most_are_only_named() -> None:
    news = [_news(f"feed-{number:03}", Concern(Cause.AWAY, "no answer " * 500, "wait " * 500)) for number in range(200)]
    message = message_of(news, "https://events.example")
    assert message.title == "eventsync: 200 feeds need somebody"
    assert message.body.count("What would help") == MOST_FEEDS
    assert f"And {200 - MOST_FEEDS} more feeds: feed-015, feed-016" in message.body
    assert len(message.body) < MOST_FEEDS * (2 * MOST_CHARS + 100) + 1_500


@given(st.text())
def test_whatever_a_partner_wrote_stays_on_one_short_line_and_calls_no_reader_of_a_chat(text: str) -> None:
    calls = ["@everyone", "@here", "<!channel>", "<@U123>", "<#C123>"]
    said = message_of([_news("agenda", Concern(Cause.BRAKE, f"rows {' and '.join(calls)} are twice there", ""))], "").body
    assert [call for call in calls if call in said] == []
    told = harmless(text)
    assert len(told.splitlines()) <= 1
    assert len(told) <= 2 * MOST_CHARS
    assert replaced(told) == told


def _recipients(cwd: Path, values: dict[str, str], owner: str, *notify: str) -> list[tuple[str, str]]:
    problems: list[str] = []
    found = read_channels(values, cwd, problems).recipients(owner, notify)
    assert problems == []
    return [(one.name, one.address.get_secret_value()) for one in found]


def test_an_address_with_a_place_for_the_owner_is_each_owners_own(tmp_path: Path) -> None:
    values = {"EVENTSYNC_NOTIFY": "mailtos://us:secret99@smtp.example.org?to={owner} json://a.example/x"}
    everyones = ("all (2)", "json://a.example/x")
    own = ("all (agenda+1@example.org)", "mailtos://us:secret99@smtp.example.org?to=agenda%2B1@example.org")
    assert _recipients(tmp_path, values, "agenda+1@example.org") == [own, everyones]
    for owner in ("team:agenda", "x@example.org&from=boss@example.org"):
        assert _recipients(tmp_path, values, owner) == [everyones]


def test_what_is_no_address_is_told_by_its_place_alone(tmp_path: Path) -> None:
    hook = "json://hooks.example.org/t0ps3cret-path-17"
    (tmp_path / "notify.txt").write_text("ops=s3cret-without-scheme\n", "utf-8")
    with pytest.raises(ConfigError) as refused:
        read_settings({"EVENTSYNC_NOTIFY": f"{hook} hush-hush-17 o%s={hook}", "EVENTSYNC_NOTIFY_FILE": "notify.txt"}, tmp_path)
    told = str(refused.value)
    assert [line.partition(": is no")[0] for line in told.splitlines()] == [
        "EVENTSYNC_NOTIFY: entry 2",
        "EVENTSYNC_NOTIFY: entry 3",
        f"EVENTSYNC_NOTIFY_FILE: {tmp_path / 'notify.txt'}:1",
    ]
    assert "s3cret" not in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#announcements", ["T1JJ3T3L2", "TIiajkdnlazkcOXrIdevi7FQ"]),
        ("tgram://123456789:abcdefg_hijklmnop/12315544/", ["abcdefg_hijklmnop", "123456789:abcdefg_hijklmnop"]),
        ("mailtos://me:p%40ss%2Fword@smtp.example.org?to=agenda@example.org", ["p%40ss%2Fword", "p@ss/word"]),
        ("json://hooks.example.org/eventsync?+X-Token=8a7b6c5d4e3f", ["8a7b6c5d4e3f"]),
        ("pover://user1Key2of3me@token4of5the6app", ["user1Key2of3me", "token4of5the6app"]),
    ],
)
def test_keys_in_addresses_are_masked_and_words_are_not(tmp_path: Path, address: str, secrets: list[str]) -> None:
    mask: Mask = read_settings({"EVENTSYNC_NOTIFY": f"ops={address}"}, tmp_path).mask
    for secret in [*secrets, address]:
        assert secret not in mask.hide(f"it said {secret}, and no more")
    plain = "eventsync told agenda@example.org and #announcements at smtp.example.org, hooks.example.org"
    assert mask.hide(plain) == plain


def test_who_cannot_be_reached_is_left_alone_for_longer_and_longer_and_a_clock_that_went_wrong_does_not_count() -> None:
    post, waits = SentMessages(), []
    for _ in range(6):
        post = post.after(TOLD, is_accepted=False)
        waits.append(next(minute for minute in range(200) if post.may_go(TOLD + timedelta(minutes=minute))))
    assert waits == [5, 10, 20, 40, 60, 60]
    assert post.after(TOLD, is_accepted=True).may_go(TOLD)
    assert SentMessages((TOLD + timedelta(days=365),) * MOST_AN_HOUR).may_go(TOLD)
    assert SentMessages().after(TOLD + timedelta(days=1), is_accepted=False).may_go(TOLD)


PAGE = (Path(__file__).parents[3] / "docs" / "notifications.md").read_text("utf-8")
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def _cells(heading: str) -> list[list[str]]:
    """The rows of the table that begins with a heading."""
    rows = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_lists_every_cause_with_its_title_in_the_order_of_their_gravity() -> None:
    titles = [message_of([_news("f", Concern(cause, "it broke", ""))], "").title for cause in Cause]
    said = [(f"`{cause.value}`", title.removeprefix("eventsync: f: ")) for cause, title in zip(Cause, titles, strict=True)]
    assert [(cells[0], cells[1]) for cells in _cells("cause")] == said


def test_the_file_of_addresses_tells_whom_the_table_says(tmp_path: Path) -> None:
    (tmp_path / "notify").write_text(BLOCKS[0], "utf-8")
    for owner, notify, told in _cells("`owner`"):
        wanted = [word for word in notify.strip("`").split(", ") if word]
        found = _recipients(tmp_path, {"EVENTSYNC_NOTIFY_FILE": "notify"}, owner.strip("`"), *wanted)
        assert [name for name, _ in found] == re.findall(r"`([^`]+)`", told)


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    assert f"At most {MOST_AN_HOUR} messages an hour" in PAGE
    assert f"Of more than {MOST_FEEDS} feeds" in PAGE
    assert "three minutes" in PAGE
    assert LOST_AFTER == 3
    assert f"`{NOTICES_SENSOR}`" in PAGE
