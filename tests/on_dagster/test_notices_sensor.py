"""The sensor that tells owners: of runs of the daemon, of those that crashed before they could say why, once each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import dagster as dg
import pytest
from lookalikes.notices import Inbox, webhook
from on_dagster.desk import FEED, Desk

from mappings.yaml.loader import load_feed
from pipelines.clock import now
from pipelines.definitions import application
from pipelines.orchestration import names
from pipelines.orchestration.feeds import build_definitions, load_feeds
from pipelines.orchestration.instance import LOST_AFTER, NOTICES_SENSOR, notices_sensors
from pipelines.orchestration.layout import Layout
from pipelines.orchestration.run_tags import feed_tags
from pipelines.run.context import open_context
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.settings import Settings, read_settings


@dataclass
class Told:
    """A desk whose owners are told, with the sensor's cursor."""

    desk: Desk
    hook: Inbox
    cursor: str | None = None
    state_url: str = ""

    @property
    def settings(self) -> Settings:
        state_url = self.state_url or self.desk.environ["EVENTSYNC_STATE_URL"]
        environ = {**self.desk.environ, "EVENTSYNC_NOTIFY": self.hook.address(), "EVENTSYNC_STATE_URL": state_url}
        return read_settings(environ, self.desk.folder)

    def tick(self) -> str:
        settings = self.settings
        sensor = application(settings, lambda: open_context(settings)).resolve_sensor_def(NOTICES_SENSOR)
        with dg.build_sensor_context(instance=self.desk.instance, cursor=self.cursor) as context:
            told = sensor(context)
            self.cursor = context.cursor
        assert isinstance(told, dg.SkipReason)
        return told.skip_message or ""

    def heard(self) -> list[str]:
        """Let the sensor look once; the titles of what has come in."""
        self.tick()
        return self.hook.titles()

    def passed(self, length: timedelta, *, away: timedelta = timedelta()) -> None:
        """Have the daemon be at work for so long, and then away."""
        cursor = json.loads(self.cursor or "")
        cursor["steady_since"] -= (length + away).total_seconds()
        cursor["last_tick"] -= away.total_seconds()
        self.cursor = json.dumps(cursor)

    def failed(self, *, tags: Mapping[str, str] | None = None) -> None:
        """Have a run of the feed fail in Dagster before it reached the books."""
        job = self.desk.definitions().resolve_job_def(names.JOB)
        run = self.desk.instance.create_run_for_job(job, tags={names.FEED_TAG: FEED, **(tags or {})})
        self.desk.instance.report_run_failed(run, "run worker exited with code 137")

    def ran(self, run_id: str, ago: timedelta) -> None:
        """Have the feed be run so long ago, not by Dagster."""
        with open_context(self.settings) as workshop:
            past = replace(workshop, now=lambda: now() - ago)
            mapping = load_feed(self.desk.folder / "feeds" / f"{FEED}.yaml", folders=(self.desk.folder,))
            assert FeedRun(past, mapping, RunIdentity(run_id, "cron")).run().name == "done"


@pytest.fixture
def told(desk: Desk) -> Iterator[Told]:
    assert not desk.definitions().sensors, "without anybody to tell there is no sensor"
    with webhook() as hook:
        yield Told(desk, hook)


def test_a_run_that_crashed_before_it_began_is_told_once_in_dagsters_words(told: Told) -> None:
    told.failed(tags={"dagster/will_retry": "true"})
    assert told.heard() == [], "it is tried again"
    told.failed()
    told.tick()
    (message,) = told.hook.told
    assert told.hook.titles() == [f"{FEED}: the run failed"]
    assert "run worker exited with code 137" in message.body
    told.failed()
    assert told.heard() == []
    told.desk.run()
    assert told.heard() == [f"{FEED}: resolved"]
    told.failed()
    told.ran("by-cron", timedelta())
    assert told.heard() == [], "old news once the feed was run elsewhere"


def test_an_interrupted_run_is_no_news_as_the_next_one_goes_on(told: Told) -> None:
    @dg.job(name=names.JOB, tags={names.FEED_TAG: FEED})
    def interrupted() -> None:
        stop()

    run = interrupted.execute_in_process(instance=told.desk.instance, raise_on_error=False)
    assert not run.success
    assert told.heard() == []


@dg.op
def stop() -> None:
    """End as Ctrl-C ends a run."""
    raise KeyboardInterrupt


def test_a_notification_names_the_option_that_cannot_be_used(told: Told) -> None:
    told.desk.run_configured({"resources": {names.OPTIONS: {"config": {"limit": -3}}}})
    told.tick()
    (message,) = told.hook.told
    assert "limit: Input should be greater than or equal to 1" in message.body


def test_the_owner_of_a_feed_hears_nothing_of_another_that_failed_in_its_run_whatever_the_prefix_of_the_keys(told: Told) -> None:
    told.desk.mapping("night-walks", source="nowhere.csv")
    settings, layout = told.settings, Layout(("agenda",))
    folder, opened = load_feeds(settings), lambda: open_context(settings)
    (sensor,) = notices_sensors(folder, settings, opened, layout)
    feeds = ["night-walks", FEED]
    build_definitions(folder, settings, opened, layout).resolve_job_def(f"agenda_{names.JOB}").execute_in_process(
        instance=told.desk.instance,
        asset_selection=[layout.key_of(feed, phase) for feed in feeds for phase in names.PHASES],
        tags=feed_tags(feeds),
        raise_on_error=False,
    )
    with dg.build_sensor_context(instance=told.desk.instance) as context:
        sensor(context)
    assert told.hook.titles() == ["night-walks: its configuration has a mistake"]


def test_what_could_not_be_told_is_told_after_the_next_run(told: Told) -> None:
    told.hook.status = 503
    told.failed()
    assert told.heard() == []
    told.hook.status = 200
    assert "nothing is due" in told.tick()
    told.failed()
    assert told.heard() == [f"{FEED}: the run failed"]


def test_a_lost_state_db_is_told_once_when_it_stays_away_and_each_time_anew(told: Told) -> None:
    told.desk.run()
    told.tick()
    (told.desk.folder / "a-file").write_text("no folder", "utf-8")
    for ticks in (LOST_AFTER + 2, LOST_AFTER):
        told.state_url = "sqlite:///a-file/state.db"
        assert all("the state DB cannot be used" in told.tick() for _ in range(ticks))
        assert told.hook.titles() == ["the state DB cannot be used"]
        told.state_url = ""
        assert "nothing is due" in told.tick()


def test_a_feed_whose_runs_do_not_come_is_told_once_a_steady_daemon_should_have_run_it(told: Told) -> None:
    told.ran("long-ago", timedelta(days=2))
    assert "nothing is due" in told.tick()
    assert "nothing is due" in told.tick(), "the daemon has just come, and may yet run what was due while it was away"
    told.passed(timedelta(minutes=20))
    assert FEED in told.tick()
    assert "nothing is due" in told.tick()
    (message,) = told.hook.told
    assert told.hook.titles() == [f"{FEED}: no run has started"]
    assert "15 */2 * * * (Europe/Warsaw)" in message.body
    told.desk.run()
    assert told.heard() == [f"{FEED}: resolved"]


def test_a_daemon_that_was_away_for_a_while_is_no_longer_steady_and_a_feed_that_never_ran_is_not_late(told: Told) -> None:
    told.tick()
    told.passed(timedelta(minutes=20))
    assert "nothing is due" in told.tick()
    told.ran("long-ago", timedelta(days=2))
    told.tick()
    told.passed(timedelta(minutes=20), away=timedelta(minutes=10))
    assert "nothing is due" in told.tick()


def test_a_file_that_cannot_be_used_is_told_until_it_is_mended(told: Told) -> None:
    mended = told.desk.mapping().read_text("utf-8")
    told.desk.mapping(text=mended.replace("{", "{{").replace("}", "}}").replace("channelId", "channelIdd"))
    told.tick()
    assert told.heard() == [f"{FEED}: its mapping file is broken"]
    told.desk.mapping()
    assert told.heard() == [f"{FEED}: resolved"]
