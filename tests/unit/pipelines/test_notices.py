"""Owners are told from the books when the causes of a feed have changed; what a message says, and whom it goes to."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from sqlalchemy import Engine
from structlog.testing import capture_logs
from unit.pipelines.feed_files import feed as feed_file

from connectors.masking import Mask
from connectors.notify import Message, Tone
from mappings.errors import ConfigError, MappingFileError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.notices import (
    MOST_CHARS,
    MOST_FEEDS,
    Cause,
    Concern,
    FeedNews,
    Notifier,
    harmless,
    message_of,
)
from pipelines.orchestration.instance import LOST_AFTER, NOTICES_SENSOR
from pipelines.run.outcome import ExitCode, RunOutcome
from pipelines.safe_output import replaced
from pipelines.settings import read_channels, read_settings
from state.ledger.ledger import Ledger

HERE = "https://events.example#default"
OK = RunOutcome("done", ExitCode.DONE)
BRAKED = RunOutcome("stopped by a brake", ExitCode.BRAKE, "3 of 40 rows rejected", "mend the source")
AWAY = RunOutcome("paused", ExitCode.LATER, "the service answered 503", "come back at 12:15 UTC")
HELD, INTERRUPTED = RunOutcome("held by another run", ExitCode.HELD), RunOutcome("interrupted", ExitCode.INTERRUPTED)
STOPPED, OVER, LATE = "agenda: stopped by a brake", "agenda: resolved", "agenda: no run has started"


@dataclass
class World:
    """A clock to turn, the books of some feeds, and what came in at each address. `deaf`: those that accept nothing."""

    folder: Path
    engine: Engine
    at: datetime = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
    inbox: list[tuple[str, Message]] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)
    channels: str = "json://a.example/all ops=json://b.example/ops"
    body: str = ""

    def deliver(self, address: SecretStr, message: Message) -> str:
        text = address.get_secret_value()
        self.inbox.append((text, message))
        return "connection refused" if text in self.deaf else ""

    @property
    def notifier(self) -> Notifier:
        channels = read_channels({"EVENTSYNC_NOTIFY": self.channels}, self.folder, [])
        return Notifier(self.engine, HERE, channels, self.deliver, lambda: self.at)

    def feed(self, feed: str = "agenda", owner: str = "", notify: str = "", cron: str = "") -> FeedMapping:
        schedule = f'schedule: {{cron: "{cron}", timezone: Europe/Warsaw}}\n' if cron else ""
        return feed_file(self.folder, more=f'{schedule}owner: "{owner}"\nnotify: [{notify}]', name=feed)

    def ledger(self, feed: str = "agenda") -> Ledger:
        return Ledger(self.engine, HERE, FeedName(feed), namespace="default", now=lambda: self.at)

    def begin(self, feed: str = "agenda", launched_by: str = "a test") -> str:
        self.at += timedelta(minutes=1)
        run_id = f"{feed}-{self.at:%d%H%M%S}"
        self.ledger(feed).begin_run(run_id, launched_by=launched_by)
        return run_id

    def run(self, outcome: RunOutcome, feed: str = "agenda", launched_by: str = "a test") -> None:
        run_id, code = self.begin(feed, launched_by), int(outcome.exit_code)
        self.ledger(feed).finish_run(run_id, outcome=outcome.name, exit_code=code, message=outcome.text)

    def told(self, *feeds: FeedMapping, late: Collection[str] = ()) -> list[tuple[str, str]]:
        """Notify of feeds; the name of each server that was asked to take a message, and its title."""
        self.notifier.notify(feeds, late=[FeedName(one) for one in late])
        return self.heard()

    def heard(self) -> list[tuple[str, str]]:
        heard = [(address[7], message.title.removeprefix("eventsync: ")) for address, message in self.inbox]
        self.body = self.inbox[-1][1].body if self.inbox else ""
        self.inbox.clear()
        return heard

    def overdue(self, feed: FeedMapping, at: str) -> bool:
        self.at = datetime.fromisoformat(at).replace(tzinfo=UTC)
        return bool(self.notifier.newly_overdue([feed]))


@pytest.fixture
def world(tmp_path: Path, engine: Engine) -> World:
    return World(tmp_path, engine)


@pytest.mark.parametrize(
    ("runs", "titles"),
    [
        ([*[BRAKED] * 4, *[OK] * 4, *[BRAKED] * 4], [STOPPED, OVER, STOPPED]),
        ([RunOutcome("cannot go on", ExitCode.CONFIG, "why")], ["agenda: its configuration has a mistake"]),
        ([RunOutcome("refused by the service", ExitCode.REFUSED, "why")], ["agenda: the service refuses the API key"]),
        ([RunOutcome("failed", ExitCode.ATTENTION, "why")], ["agenda: the run failed"]),
        ([HELD, BRAKED, *[HELD] * 12], [STOPPED]),
        ([INTERRUPTED, BRAKED, *[INTERRUPTED] * 12], [STOPPED]),
    ],
    ids=["once however often it runs, and its end", "settings", "the service", "a failure", "held runs", "stopped by a person"],
)
def test_each_cause_is_told_once_by_its_title_and_runs_that_did_not_happen_say_nothing(
    world: World, runs: list[RunOutcome], titles: list[str]
) -> None:
    heard = []
    for outcome in runs:
        world.run(outcome)
        heard += world.told(world.feed())
    assert heard == [("a", title) for title in titles]


def test_one_cause_after_another_is_one_message(world: World) -> None:
    world.run(AWAY)
    assert world.told(world.feed()) == [("a", "agenda: paused")]
    assert "What to do: come back at 12:15 UTC" in world.body
    world.run(BRAKED)
    assert world.told(world.feed()) == [("a", STOPPED)]
    assert "\nOver: paused\n" in f"{world.body}\n"


def test_several_feeds_of_one_owner_are_one_message_and_other_owners_hear_of_none_of_them(world: World) -> None:
    world.channels = "json://{owner}.example ops=json://ops.example"
    for feed in "abc":
        world.run(BRAKED, feed)
    told = world.told(world.feed("a", "x@example.org"), world.feed("b", "x@example.org", "ops"), world.feed("c", "y@example.org"))
    stopped = "stopped by a brake"
    assert set(told) == {("x", "2 feeds need attention"), ("y", f"c: {stopped}"), ("o", f"b: {stopped}")}


def test_who_cannot_be_reached_is_told_later_and_the_others_only_once(world: World) -> None:
    feed = world.feed(notify="ops")
    world.deaf = {"json://b.example/ops"}
    world.run(BRAKED)
    with capture_logs() as logs:
        assert sorted(world.told(feed)) == [("a", STOPPED), ("b", STOPPED)]
    problems = [(line["log_level"], line["recipient"], line["problem"]) for line in logs if "problem" in line]
    assert problems == [("warning", "ops", "connection refused")]
    world.deaf = set()
    assert (world.told(feed), world.told(feed)) == ([("b", STOPPED)], [])


def test_a_run_under_way_was_not_lost(world: World) -> None:
    world.begin()
    world.ledger().acquire_lease("a run")
    for minutes, titles in ((0, []), (10, [("a", "agenda: a run was lost")])):
        world.at += timedelta(minutes=minutes)
        world.notifier.notify_of_lost_runs([world.feed()])
        assert world.heard() == titles


def test_a_feed_whose_runs_do_not_come_is_told_once_and_that_one_has_come(world: World) -> None:
    feed = world.feed(cron="0 6 * * *")
    world.run(OK)  # on 2026-03-01 at 9:01 in Warsaw
    assert [world.overdue(feed, f"2026-03-02 {clock}") for clock in ("05:59", "06:01")] == [False, True]
    assert world.told(feed) == [], "unless the caller knows that the daemon was there"
    assert world.told(feed, late=["agenda"]) == [("a", LATE)]
    assert "the last run started at 2026-03-01 08:01 UTC, and the run due at 2026-03-02 05:00 UTC has not started" in world.body
    assert (world.overdue(feed, "2026-03-02 06:01"), world.told(feed)) == (False, [])
    world.run(AWAY)
    assert world.told(feed) == [("a", "agenda: paused")]
    assert "Over: no run has started" in world.body


@pytest.mark.parametrize(
    ("outcome", "launched_by"),
    [(OK, "backfill"), (HELD, "schedule"), (INTERRUPTED, "cli")],
    ids=["backfill", "held", "interrupted"],
)
def test_some_runs_do_not_count_as_having_come(world: World, outcome: RunOutcome, launched_by: str) -> None:
    feed = world.feed(cron="0 6 * * *")
    world.run(OK)
    world.at = datetime(2026, 3, 2, 9, tzinfo=UTC)
    world.run(outcome, launched_by=launched_by)
    assert world.overdue(feed, "2026-03-02 09:01")
    assert world.told(feed, late=["agenda"]) == [("a", LATE)]


def test_a_run_at_work_has_come_and_feeds_without_a_clock_or_without_a_recipient_are_not_missed(world: World) -> None:
    daily = world.feed(cron="0 6 * * *")
    world.run(OK)
    world.at = datetime(2026, 3, 2, 5, 30, tzinfo=UTC)
    world.ledger().acquire_lease("a run")
    world.begin()
    assert not world.overdue(daily, "2026-03-02 07:31")
    assert not world.overdue(world.feed(), "2026-04-11 07:31")
    world.channels = "ops=json://b.example/ops"
    assert not world.overdue(daily, "2026-04-11 07:31")


def test_a_channel_that_is_not_configured_is_complained_of_and_fails_nothing(world: World) -> None:
    world.run(BRAKED)
    with capture_logs() as logs:
        assert world.told(world.feed(notify="opps")) == [("a", STOPPED)]
    assert [line["channel"] for line in logs if "channel" in line] == ["opps"]


def test_a_channel_that_a_feed_names_later_hears_what_is_open_and_one_it_leaves_hears_no_more(world: World) -> None:
    world.run(BRAKED)
    assert [world.told(world.feed(notify=name)) for name in ("", "ops")] == [[("a", STOPPED)], [("b", STOPPED)]]
    world.run(OK)
    assert world.told(world.feed()) == [("a", OVER)]


def test_an_interrupted_message_is_due_again(world: World) -> None:
    world.run(BRAKED)

    def interrupted(_address: SecretStr, _message: Message) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(world.notifier, deliver=interrupted).notify([world.feed()])
    assert world.told(world.feed()) == [("a", STOPPED)]


def broken_file(world: World, name: str, text: str) -> MappingFileError:
    (world.folder / name).write_text(text, "utf-8")
    with pytest.raises(MappingFileError) as broken:
        load_feed(world.folder / name)
    return broken.value


def told_of_files(world: World, broken: list[MappingFileError], *sound: FeedMapping) -> list[tuple[str, str]]:
    world.notifier.notify(*world.notifier.files(broken, sound))
    return world.heard()


def test_a_file_that_cannot_be_used_is_told_to_its_owner_until_it_is_mended(world: World) -> None:
    sound, title = world.feed("crm"), "agenda: its mapping file is broken"
    text = "feed: agenda\nowner: x@example.org\nnotify: ops\nsource: {kind: csvv, path: x}\n"
    broken = broken_file(world, "agenda.yaml", text)
    assert told_of_files(world, [broken], sound) == [("b", title), ("a", title)]
    assert "agenda.yaml:" in world.body
    assert told_of_files(world, [broken], sound) == []
    assert told_of_files(world, [], sound, world.feed(notify="ops")) == [("b", OVER), ("a", OVER)]
    assert world.notifier.files([], [sound]) == ([], {})


def test_a_file_without_a_name_is_called_by_its_own_and_one_that_takes_anothers_name_as_well(world: World) -> None:
    sound = world.feed("crm")
    errors = [broken_file(world, name, text) for name, text in (("odd.yaml", "what: is this"), ("copy.yaml", "feed: crm"))]
    told_of_files(world, errors, sound)
    assert [block.partition("\n")[0] for block in world.body.split("\n\n")[:2]] == ["copy.yaml", "odd.yaml"]
    (world.folder / "odd.yaml").unlink()
    assert told_of_files(world, errors[1:], sound) == [("a", "odd.yaml: resolved")]


BRAKE = Concern(Cause.BRAKE, "3 of 40 rows rejected", "mend the source")
REJECTED = Concern(Cause.REJECTED, "3 rows rejected", "look at them", 3)
DRIFT = Concern(Cause.DRIFT, "17 rows changed", "publish them by hand", 17)


def _news(feed: str, *new: Concern, over: bool = False, standing: tuple[Concern, ...] = ()) -> FeedNews:
    return FeedNews(FeedName(feed), "agenda@example.org", new, (Cause.AWAY,) if over else (), standing)


def test_one_feed_is_named_in_the_title_and_told_in_full() -> None:
    message = message_of([_news("agenda", BRAKE, REJECTED, over=True, standing=(DRIFT,))], "https://events.example")
    assert message.title == "eventsync: agenda: stopped by a brake, and 1 more"
    first, *_, still, nothing, _service = message.body.splitlines()
    assert (first, still, nothing) == ("agenda (owner: agenda@example.org)", "Still open, reported before: rows changed (17)", "")
    assert message.tone is Tone.ALARM


def test_the_gravest_feed_comes_first_and_the_page_of_runs_last() -> None:
    news = [_news("b-well", over=True), _news("a-drift", DRIFT), _news("c-braked", BRAKE)]
    message = message_of(news, "https://events.example", "https://dagster.example/runs")
    assert message.title == "eventsync: 2 feeds need attention"
    assert [block.partition(" ")[0] for block in message.body.split("\n\n")] == ["c-braked", "a-drift", "b-well", "Service:"]
    assert message.body.endswith("Runs: https://dagster.example/runs")


def test_the_tone_is_that_of_the_gravest() -> None:
    tones = {(): Tone.RELIEF, (BRAKE,): Tone.ALARM, (REJECTED,): Tone.WARNING, (REJECTED, BRAKE): Tone.ALARM}
    assert {new: message_of([_news("agenda", *new, over=True)], "").tone for new in tones} == tones
    assert message_of([_news("agenda", over=True), _news("crm", over=True)], "").title == "eventsync: resolved for 2 feeds"


def test_of_very_many_feeds_most_are_only_named() -> None:
    news = [_news(f"feed-{number:03}", Concern(Cause.AWAY, "no answer " * 500, "wait " * 500)) for number in range(200)]
    message = message_of(news, "https://events.example")
    assert message.title == "eventsync: 200 feeds need attention"
    assert message.body.count("What to do") == MOST_FEEDS
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


PAGE = (Path(__file__).parents[3] / "docs" / "notifications.md").read_text("utf-8")
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def _cells(heading: str) -> list[list[str]]:
    """The rows of the table that begins with a heading."""
    rows = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_file_of_addresses_tells_whom_the_table_says(tmp_path: Path) -> None:
    (tmp_path / "notify").write_text(BLOCKS[0], "utf-8")
    for owner, notify, told in _cells("`owner`"):
        wanted = [word for word in notify.strip("`").split(", ") if word]
        found = _recipients(tmp_path, {"EVENTSYNC_NOTIFY_FILE": "notify"}, owner.strip("`"), *wanted)
        assert [name for name, _ in found] == re.findall(r"`([^`]+)`", told)


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    assert f"Of more than {MOST_FEEDS} feeds" in PAGE
    assert "three minutes" in PAGE
    assert LOST_AFTER == 3
    assert f"`{NOTICES_SENSOR}`" in PAGE
