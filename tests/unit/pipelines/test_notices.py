"""Owners are told from the books: each cause once, its end once, in one message, whatever gets through and whoever asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine
from structlog.testing import capture_logs
from unit.pipelines.feed_files import feed as feed_file

from connectors.notify import Message
from mappings.errors import MappingFileError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.notices import MOST_AN_HOUR, Notifier
from pipelines.run.outcome import ExitCode, RunOutcome
from pipelines.settings import read_channels
from state.ledger.ledger import Ledger

HERE = "https://events.example#default"
OK = RunOutcome("done", ExitCode.DONE)
BRAKED = RunOutcome("stopped by a brake", ExitCode.BRAKE, "3 of 40 rows rejected", "mend the source")
AWAY = RunOutcome("paused", ExitCode.LATER, "the service answered 503", "come back at 12:15 UTC")


@dataclass
class World:
    """A clock to turn, the books of some feeds, and what came in at each address. `deaf`: those that accept nothing."""

    folder: Path
    engine: Engine
    at: datetime = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
    inbox: list[tuple[str, Message]] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)
    tries: int = 0

    def now(self) -> datetime:
        return self.at

    def deliver(self, address: SecretStr, message: Message) -> str:
        self.tries += 1
        text = address.get_secret_value()
        if text in self.deaf:
            return "connection refused"
        self.inbox.append((text, message))
        return ""

    def notifier(self, channels: str = "json://a.example/all ops=json://b.example/ops") -> Notifier:
        return Notifier(self.engine, HERE, read_channels({"EVENTSYNC_NOTIFY": channels}, self.folder, []), self.deliver, self.now)

    def feed(self, feed: str = "agenda", owner: str = "", notify: str = "", cron: str = "") -> FeedMapping:
        schedule = f'schedule: {{cron: "{cron}", timezone: Europe/Warsaw}}\n' if cron else ""
        return feed_file(self.folder, more=f'{schedule}owner: "{owner}"\nnotify: [{notify}]', name=feed)

    def begin(self, feed: str = "agenda", launched_by: str = "a test") -> str:
        self.at += timedelta(minutes=1)
        run_id = f"{feed}-{self.at:%d%H%M%S}"
        self._ledger(feed).begin_run(run_id, launched_by=launched_by)
        return run_id

    def run(self, outcome: RunOutcome, feed: str = "agenda", launched_by: str = "a test") -> None:
        run_id, code = self.begin(feed, launched_by), int(outcome.exit_code)
        self._ledger(feed).finish_run(run_id, outcome=outcome.name, exit_code=code, message=outcome.text)

    def hold(self, feed: str = "agenda") -> None:
        self._ledger(feed).acquire_lease("a run")

    def after(self, *outcomes: RunOutcome) -> list[str]:
        """What comes in about a feed that is run so, notified of after each run, by title."""
        for outcome in outcomes:
            self.run(outcome)
            self.notifier().notify([self.feed()])
        return self.heard()

    def heard(self) -> list[str]:
        """What has come in since it was last asked, by title."""
        titles = [message.title.removeprefix("eventsync: ") for _, message in self.inbox]
        self.inbox.clear()
        return titles

    def _ledger(self, feed: str) -> Ledger:
        return Ledger(self.engine, HERE, FeedName(feed), namespace="default", now=self.now)


@pytest.fixture
def world(tmp_path: Path, engine: Engine) -> World:
    return World(tmp_path, engine)


def test_a_stopped_feed_is_told_once_however_often_it_runs_and_then_that_it_is_over(world: World) -> None:
    for outcome, title in ((BRAKED, "stopped by a brake"), (OK, "over"), (BRAKED, "stopped by a brake")):
        assert world.after(*[outcome] * 4) == [f"agenda: {title}"]


def test_one_cause_after_another_is_one_message(world: World) -> None:
    feed, notifier = world.feed(), world.notifier()
    world.run(AWAY)
    notifier.notify([feed])
    world.run(BRAKED)
    notifier.notify([feed])
    (_, first), (_, second) = world.inbox
    assert first.title.endswith("agenda: paused")
    assert "What would help: come back at 12:15 UTC" in first.body
    assert second.title.endswith("agenda: stopped by a brake")
    assert "- Over, told on 2026-03-01 08:01 UTC: the service answered 503" in second.body


@pytest.mark.parametrize(
    ("name", "code", "title"),
    [
        ("cannot go on", ExitCode.CONFIG, "cannot run as it is set up"),
        ("refused by the service", ExitCode.REFUSED, "the service refuses us"),
        ("failed", ExitCode.ATTENTION, "the run failed"),
    ],
)
def test_each_way_to_fail_has_its_own_title(world: World, name: str, code: ExitCode, title: str) -> None:
    assert world.after(RunOutcome(name, code, "why")) == [f"agenda: {title}"]


@pytest.mark.parametrize(("name", "code"), [("held by another run", ExitCode.HELD), ("interrupted", ExitCode.INTERRUPTED)])
def test_runs_that_were_held_or_that_a_person_stopped_say_nothing(world: World, name: str, code: ExitCode) -> None:
    silent = RunOutcome(name, code)
    assert world.after(silent, BRAKED, *[silent] * 12) == ["agenda: stopped by a brake"]


def test_several_feeds_of_one_owner_are_one_message_and_other_owners_hear_of_none_of_them(world: World) -> None:
    notifier = world.notifier("json://mail.example/?to={owner} ops=json://b.example/ops")
    feeds = [world.feed("a", "ann@example.org"), world.feed("b", "ann@example.org", "ops"), world.feed("c", "bob@example.org")]
    for feed in "abc":
        world.run(BRAKED, feed)
    notifier.notify(feeds)
    assert {address: message.title for address, message in world.inbox} == {
        "json://mail.example/?to=ann@example.org": "eventsync: 2 feeds need somebody",
        "json://mail.example/?to=bob@example.org": "eventsync: c: stopped by a brake",
        "json://b.example/ops": "eventsync: b: stopped by a brake",
    }


def test_who_cannot_be_reached_is_told_later_and_the_others_only_once(world: World) -> None:
    feed, notifier = world.feed(notify="ops"), world.notifier()
    world.deaf = {"json://b.example/ops"}
    world.run(BRAKED)
    with capture_logs() as logs:
        notifier.notify([feed])
    assert [(line["log_level"], line["recipient"], line["problem"]) for line in logs if "problem" in line] == [
        ("warning", "ops", "connection refused")
    ]
    assert notifier.unfinished() == {"agenda"}
    notifier.notify([feed])
    assert (world.heard(), world.tries) == (["agenda: stopped by a brake"], 2)
    world.deaf, world.at = set(), world.at + timedelta(minutes=5)
    notifier.notify([feed])
    assert [address for address, _ in world.inbox] == ["json://b.example/ops"]
    assert notifier.unfinished() == frozenset()


def test_a_storm_of_feeds_is_a_few_messages_the_last_of_which_tells_of_all_that_waited(world: World) -> None:
    notifier, feeds = world.notifier(), [world.feed(f"feed-{number}") for number in range(20)]
    for feed in feeds:
        world.run(AWAY, feed.feed)
        notifier.notify([feed])
    assert len(world.heard()) == MOST_AN_HOUR
    world.at += timedelta(hours=1)
    notifier.notify(feeds)
    assert world.heard() == [f"{20 - MOST_AN_HOUR} feeds need somebody"]


def test_a_run_under_way_was_not_lost(world: World) -> None:
    world.begin()
    world.hold()
    for minutes, titles in ((0, []), (10, ["agenda: a run was lost"])):
        world.at += timedelta(minutes=minutes)
        world.notifier().notify_of_lost_runs([world.feed()])
        assert world.heard() == titles


def test_a_feed_whose_runs_do_not_come_is_told_once_and_that_one_has_come(world: World) -> None:
    feed, notifier = world.feed(cron="0 6 * * *"), world.notifier()
    world.run(OK)  # on 2026-03-01 at 9:01 in Warsaw
    world.at = datetime(2026, 3, 2, 5, 59, tzinfo=UTC)
    assert notifier.newly_overdue([feed]) == frozenset()
    world.at = datetime(2026, 3, 2, 6, 1, tzinfo=UTC)
    assert notifier.newly_overdue([feed]) == {"agenda"}
    notifier.notify([feed])
    assert world.heard() == [], "unless the caller knows that the daemon was there"
    notifier.notify([feed], late=["agenda"])
    for _ in range(2):
        assert notifier.newly_overdue([feed]) == frozenset()
        notifier.notify([feed])
    (_, message) = world.inbox[0]
    assert world.heard() == ["agenda: no run has come"]
    assert "no run has come since 2026-03-01 08:01 UTC: one was due at 2026-03-02 05:00 UTC" in message.body
    world.run(AWAY)
    notifier.notify([feed])
    (_, message) = world.inbox[0]
    assert world.heard() == ["agenda: paused"]
    assert "- Over, told on 2026-03-02 06:01 UTC: no run has come since" in message.body


@pytest.mark.parametrize(
    ("outcome", "launched_by"),
    [
        pytest.param(OK, "backfill", id="a window of the past"),
        pytest.param(RunOutcome("held by another run", ExitCode.HELD), "schedule", id="it found the feed held"),
        pytest.param(RunOutcome("interrupted", ExitCode.INTERRUPTED), "cli", id="somebody stopped it"),
    ],
)
def test_some_runs_do_not_count_as_having_come(world: World, outcome: RunOutcome, launched_by: str) -> None:
    feed, notifier = world.feed(cron="0 6 * * *"), world.notifier()
    world.run(OK)
    world.at = datetime(2026, 3, 2, 9, tzinfo=UTC)
    world.run(outcome, launched_by=launched_by)
    assert notifier.newly_overdue([feed]) == {"agenda"}
    notifier.notify([feed], late=["agenda"])
    assert world.heard() == ["agenda: no run has come"]


def test_a_run_at_work_has_come_and_feeds_without_a_clock_or_without_a_recipient_are_not_missed(world: World) -> None:
    daily, nobodys = world.feed(cron="0 6 * * *"), world.notifier("ops=json://b.example/ops")
    world.run(OK)
    world.at = datetime(2026, 3, 2, 5, 30, tzinfo=UTC)
    world.hold()
    world.begin()
    world.at += timedelta(hours=2)
    assert world.notifier().newly_overdue([daily]) == frozenset()
    world.at += timedelta(days=40)
    assert (world.notifier().newly_overdue([world.feed()]), nobodys.newly_overdue([daily])) == (frozenset(), frozenset())


def test_a_channel_that_is_not_configured_is_complained_of_and_fails_nothing(world: World) -> None:
    feed = world.feed(notify="opps")
    world.run(BRAKED)
    with capture_logs() as logs:
        world.notifier().notify([feed])
    assert world.heard() == ["agenda: stopped by a brake"]
    assert [line["channel"] for line in logs if "channel" in line] == ["opps"]


def test_a_channel_that_a_feed_names_later_hears_what_is_open_and_one_it_leaves_hears_no_more(world: World) -> None:
    notifier = world.notifier()
    world.run(BRAKED)
    notifier.notify([world.feed()])
    notifier.notify([world.feed(notify="ops")])
    assert [address for address, _ in world.inbox] == ["json://a.example/all", "json://b.example/ops"]
    world.inbox.clear()
    world.run(OK)
    notifier.notify([world.feed()])
    assert [address for address, _ in world.inbox] == ["json://a.example/all"]


def test_an_interrupted_message_is_due_again(world: World) -> None:
    feed, notifier = world.feed(), world.notifier()
    world.run(BRAKED)

    def interrupted(_address: SecretStr, _message: Message) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(notifier, deliver=interrupted).notify([feed])
    notifier.notify([feed])
    assert world.heard() == ["agenda: stopped by a brake"]


def test_a_file_that_cannot_be_used_is_told_to_its_owner_until_it_is_mended(world: World) -> None:
    notifier = world.notifier("json://a.example/all ops=json://b.example/ops")
    sound = world.feed("crm")
    path = world.folder / "agenda.yaml"
    path.write_text("feed: agenda\nowner: x@example.org\nnotify: ops\nsource: {kind: csvv, path: x}\n", "utf-8")
    with pytest.raises(MappingFileError) as broken:
        load_feed(path)
    for _ in range(2):
        notifier.notify(*notifier.files([broken.value], [sound]))
    assert [address for address, _ in world.inbox] == ["json://b.example/ops", "json://a.example/all"]
    assert "agenda.yaml:" in world.inbox[0][1].body
    assert set(world.heard()) == {"agenda: its mapping file is broken"}
    notifier.notify(*notifier.files([], [sound, world.feed(notify="ops")]))
    assert world.heard() == ["agenda: over"] * 2
    assert notifier.files([], [sound]) == ([], {})


def test_a_file_without_a_name_is_called_by_its_own_and_one_that_takes_anothers_name_as_well(world: World) -> None:
    notifier, sound, errors = world.notifier(), world.feed("crm"), []
    for name, text in (("odd.yaml", "what: is this"), ("copy.yaml", "feed: crm")):
        (world.folder / name).write_text(text, "utf-8")
        with pytest.raises(MappingFileError) as broken:
            load_feed(world.folder / name)
        errors.append(broken.value)
    notifier.notify(*notifier.files(errors, [sound]))
    (_, message) = world.inbox.pop()
    assert [block.partition("\n")[0] for block in message.body.split("\n\n")[:2]] == ["copy.yaml", "odd.yaml"]
    (world.folder / "odd.yaml").unlink()
    notifier.notify(*notifier.files(errors[1:], [sound]))
    assert world.heard() == ["odd.yaml: over"]
