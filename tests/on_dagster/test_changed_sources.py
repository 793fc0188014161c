"""Feeds that run when something has come or changed: files as they are delivered, looked at as often as the schedule says."""

from __future__ import annotations

import os
from datetime import timedelta

import dagster as dg
import pytest
from on_dagster.desk import FEED, HEADER, MAPPING, Desk, line, schedules_of_feeds

from mappings.errors import MappingFileError
from mappings.yaml.loader import load_feed
from pipelines.clock import now
from pipelines.orchestration import automation, names

WATCHED = MAPPING.replace('{{cron: "15 */2 * * *", timezone: Europe/Warsaw}}', "{{look_every: 5m}}")
DELIVERED = WATCHED.replace("path: ../{source}", "path: ../in/*.csv\n  files: new")
LONG_AGO = 1_900_000_000


def look(desk: Desk, cursor: str | None = None) -> dg.SensorExecutionData:
    sensor = desk.definitions().resolve_sensor_def("sync_town_hall_when_changed")
    return sensor.evaluate_tick(dg.build_sensor_context(instance=desk.instance, cursor=cursor))


def test_the_sensor_looks_from_the_start_as_often_as_the_file_says_beside_a_schedule_if_it_names_one(desk: Desk) -> None:
    desk.mapping(text=WATCHED)
    definitions = desk.definitions()
    sensor = definitions.resolve_sensor_def("sync_town_hall_when_changed")
    assert (sensor.minimum_interval_seconds, sensor.default_status) == (300, dg.DefaultSensorStatus.RUNNING)
    assert sensor.job_name == "sync"
    assert schedules_of_feeds(definitions) == []
    desk.mapping(text=MAPPING.replace("timezone: Europe/Warsaw}}", "timezone: Europe/Warsaw, look_every: 10m}}", 1))
    assert desk.definitions().resolve_schedule_def("sync_town_hall_schedule")
    assert desk.definitions().resolve_sensor_def("sync_town_hall_when_changed")


def test_a_file_runs_the_feed_once_for_each_of_its_versions_however_alike(desk: Desk) -> None:
    desk.mapping(text=WATCHED)
    first = look(desk)
    (request,) = first.run_requests
    assert (request.run_key, request.tags[names.LAUNCHED_BY_TAG]) == (None, "schedule")
    same = look(desk, first.cursor)
    assert (same.run_requests, same.skip_message) == ([], "unchanged: ../events.csv")

    keys, cursor = [], same.cursor
    for times in (LONG_AGO, LONG_AGO + 60, LONG_AGO):
        os.utime(desk.folder / "events.csv", (times, times))
        seen = look(desk, cursor)
        keys.extend(request.run_key for request in seen.run_requests)
        assert look(desk, cursor).run_requests == seen.run_requests, "asked again before the cursor was kept: the same run"
        cursor = seen.cursor
    assert len(set(keys)) == 3


def test_a_delivery_runs_the_feed_and_its_removal_does_not(desk: Desk) -> None:
    desk.mapping(text=DELIVERED)
    folder, cursor = desk.folder / "in", None
    folder.mkdir()
    for name, is_there, runs in (("a.csv", True, 1), ("b.csv", False, 0), ("b.csv", True, 1), ("b.csv", False, 0)):
        (folder / name).write_text(f"{HEADER}\n{line(1)}\n", "utf-8")
        os.utime(folder / name, (LONG_AGO, LONG_AGO))
        if not is_there:
            (folder / name).unlink()
        seen = look(desk, cursor)
        assert len(seen.run_requests) == runs
        cursor = seen.cursor


def test_a_file_that_has_just_changed_is_not_looked_at_before_it_has_settled(desk: Desk) -> None:
    desk.mapping(text=WATCHED.replace("path: ../{source}", "path: ../{source}\n  settle: 1h"))
    told = look(desk)
    assert not told.run_requests
    assert "changed less than 3600 s ago" in (told.skip_message or "")


def test_a_change_while_a_run_is_at_work_is_seen_by_the_next_look(desk: Desk) -> None:
    desk.mapping(text=WATCHED)
    cursor = look(desk).cursor
    os.utime(desk.folder / "events.csv", (LONG_AGO, LONG_AGO))
    job = desk.definitions().resolve_job_def("sync")
    run = desk.instance.create_run_for_job(job, tags={names.FEED_TAG: FEED}, status=dg.DagsterRunStatus.STARTING)
    busy = look(desk, cursor)
    assert run.run_id in (busy.skip_message or "")
    desk.instance.report_run_canceled(run)
    assert len(look(desk, busy.cursor or cursor).run_requests) == 1


@pytest.mark.parametrize(
    ("ending", "minutes", "runs"),
    [
        ({}, 6, 1),
        ({}, 4, 0),
        ({names.RUN_RETRY_TAG: "false"}, 6, 0),
    ],
    ids=["killed, or stopped by an outage", "a moment ago", "it would fail again"],
)
def test_a_later_look_continues_a_run_that_failed_though_the_source_is_the_same(
    desk: Desk, ending: dict[str, str], minutes: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.mapping(text=WATCHED)
    cursor = look(desk).cursor
    job = desk.definitions().resolve_job_def("sync")
    run = desk.instance.create_run_for_job(job, tags={names.FEED_TAG: FEED, **ending}, status=dg.DagsterRunStatus.STARTED)
    desk.instance.report_run_failed(run, "run worker exited with code 137")
    later = now() + timedelta(minutes=minutes)
    monkeypatch.setattr(automation, "now", lambda: later)
    seen = look(desk, cursor)
    assert len(seen.run_requests) == runs
    assert look(desk, cursor).run_requests == seen.run_requests
    assert desk.run().success
    assert not look(desk, seen.cursor).run_requests


def test_a_folder_that_is_not_there_is_a_red_tick_that_says_so(desk: Desk) -> None:
    desk.mapping(text=DELIVERED)
    with pytest.raises(dg.Failure, match="there is no folder"):
        look(desk)


@pytest.mark.parametrize("cursor", ["", "again, please", '{"turn": 1}', "[]", "7"])
def test_whatever_a_person_writes_into_the_cursor_has_the_feed_run(desk: Desk, cursor: str) -> None:
    desk.mapping(text=WATCHED)
    (request,) = look(desk, cursor).run_requests
    assert request.run_key is None


@pytest.mark.parametrize(
    ("schedule", "kind", "words"),
    [
        ("{{look_every: 5m}}", "salesforce\n  object: Event__c", "a source of kind salesforce cannot be checked"),
        ("{{look_every: 5s}}", "csv\n  path: a.csv", '"5s" is too short'),
        ("{{timezone: Europe/Warsaw}}", "csv\n  path: a.csv", "a schedule needs cron, look_every or on_update"),
        ("{{on_update: true}}", "csv\n  path: a.csv", "town-hall.yaml:6:23: on_update needs after"),
        ("{{on_update: true}}\nafter: [the warehouse]", "csv\n  path: a.csv", '"the warehouse" is not an asset key'),
    ],
)
def test_a_schedule_that_could_not_be_kept_is_a_mistake_at_its_place(desk: Desk, schedule: str, kind: str, words: str) -> None:
    text = WATCHED.replace("{{look_every: 5m}}", schedule).replace("csv\n  path: ../{source}", kind)
    with pytest.raises(MappingFileError, match=r"town-hall\.yaml:") as refused:
        load_feed(desk.mapping(text=text))
    assert words in str(refused.value)
