"""A mapping file that cannot be used: shown with its mistakes, red, its feed's name and schedule kept, the others untouched."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
import pytest
from on_dagster.desk import FEED, MAPPING, Desk, checks_of, failure_of, schedules_of_feeds

from mappings.errors import MappingFileError
from pipelines.definitions import build_definitions
from pipelines.run.context import open_context

AT = datetime(2031, 5, 1, 14, 15, tzinfo=UTC)
KEY = dg.AssetKey(["broken_feeds", "broken_yaml"])
WRONG = MAPPING.replace("title:", "titel:")
OTHER = "night-walks"


def break_one(desk: Desk, text: str = WRONG, feed: str = OTHER) -> dg.Definitions:
    desk.mapping("broken", text=text.replace("{feed}", feed))
    definitions = desk.definitions()
    dg.Definitions.validate_loadable(definitions)
    return definitions


def told(definitions: dg.Definitions, desk: Desk, cursor: str | None = None) -> dg.SensorExecutionData:
    sensor = definitions.resolve_sensor_def("broken_mapping_files")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    return sensor.evaluate_tick(dg.build_sensor_context(instance=desk.instance, cursor=cursor))


def test_its_check_turns_red_by_itself_once_for_each_new_set_of_mistakes_and_says_where_they_are(desk: Desk) -> None:
    assert not list(desk.definitions().sensors or ())
    first = told(break_one(desk), desk)
    (red,) = first.asset_events
    assert isinstance(red, dg.AssetCheckEvaluation)
    assert (red.asset_key, red.check_name, red.passed) == (KEY, "loads", False)
    assert "broken.yaml:" in (red.description or "")
    assert "titel" in (red.description or "")
    assert red.metadata["problems"] == dg.MetadataValue.int(2)
    again = told(break_one(desk), desk, first.cursor)
    assert (again.asset_events, again.cursor) == ([], first.cursor)
    assert "1 mapping file" in (again.skip_message or "")
    worse = WRONG.replace("timezone: Europe/Warsaw}", "timezone: Europe/Warsow}")
    assert len(told(break_one(desk, worse), desk, first.cursor).asset_events) == 1


def test_a_file_with_hostile_text_in_its_name_and_in_it_is_shown_with_the_others(desk: Desk) -> None:
    text = WRONG.replace("titel:", '"\\e[35m\\x9b\\u202e evil":').replace("{feed}", OTHER)
    desk.mapping("broken\x1b\udce9", text=text)
    definitions = desk.definitions()
    dg.Definitions.validate_loadable(definitions)
    (red,) = told(definitions, desk).asset_events
    assert isinstance(red, dg.AssetCheckEvaluation)
    assert red.asset_key == dg.AssetKey(["broken_feeds", "broken_1b__dce9__yaml"])
    assert "\u241b[35m\ufffd\ufffd evil" in (red.description or "")
    assert not {"\x1b", "\x9b", "\u202e", "\udce9"} & set(red.description or "")


def test_a_person_may_run_the_check_and_it_passes_once_the_file_is_mended(desk: Desk) -> None:
    checks = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(dg.AssetCheckKey(KEY, "loads")))
    job = dg.Definitions.merge(break_one(desk), dg.Definitions(jobs=[checks])).resolve_job_def("checks")
    assert not checks_of(job.execute_in_process(instance=desk.instance))["loads"].passed
    desk.mapping("broken", text=MAPPING.replace("{feed}", OTHER))
    mended = checks_of(job.execute_in_process(instance=desk.instance))["loads"]
    assert (mended.passed, "eventsync reload" in (mended.description or "")) == (True, True)


def test_its_feed_keeps_its_place_its_schedule_whose_ticks_are_red_and_its_job_which_fails_at_once(
    desk: Desk, home: dg.DagsterInstance
) -> None:
    definitions = break_one(desk)
    specs = [spec for spec in definitions.resolve_all_asset_specs() if spec.group_name == "night_walks"]
    assert {spec.key.path[-1] for spec in specs} == {"source", "staged", "published"}
    assert all("titel" in (spec.description or "") for spec in specs)
    schedule = definitions.resolve_schedule_def("sync_night_walks_schedule")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("15 */2 * * *", "Europe/Warsaw")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    with pytest.raises(dg.Failure, match=r"broken\.yaml:.*titel"):
        schedule.evaluate_tick(dg.build_schedule_context(instance=home, scheduled_execution_time=AT))
    job = definitions.resolve_job_def("sync_night_walks")
    assert "titel" in failure_of(job.execute_in_process(instance=desk.instance, raise_on_error=False))[0]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("feed: [", id="no YAML at all"),
        pytest.param(WRONG.replace("feed: {feed}", "feed: Night Walks!"), id="a name that is none"),
        pytest.param(WRONG.replace("feed: {feed}", f"feed: {FEED}"), id="the name of a feed that can run"),
    ],
)
def test_a_file_whose_feed_cannot_be_told_is_shown_alone(desk: Desk, text: str) -> None:
    definitions = break_one(desk, text)
    assert {job.name for job in definitions.resolve_all_job_defs() if job.name.startswith("sync_")} == {"sync_town_hall"}
    assert definitions.resolve_schedule_def("sync_town_hall_schedule").cron_schedule == "15 */2 * * *"
    assert KEY in {spec.key for spec in definitions.resolve_all_asset_specs()}


def test_it_is_red_where_definitions_are_validated(desk: Desk) -> None:
    desk.mapping("broken", text="feed: [")
    with pytest.raises(MappingFileError, match=r"broken\.yaml"):
        build_definitions(desk.settings, lambda: open_context(desk.settings), is_strict=True)


def test_a_schedule_that_is_itself_the_mistake_is_not_kept(desk: Desk) -> None:
    definitions = break_one(desk, MAPPING.replace("15 */2", "61 */2"))
    assert definitions.resolve_job_def("sync_night_walks")
    assert schedules_of_feeds(definitions) == ["sync_town_hall_schedule"]


@pytest.mark.parametrize("owner", ["The agenda desk", "team:agenda", "ana@", "agenda@example.org", ".x@example.org", "team:"])
def test_no_owner_takes_the_definitions_down(desk: Desk, owner: str) -> None:
    desk.mapping(text=MAPPING.replace("agenda@example.org", f'"{owner}"'))
    dg.Definitions.validate_loadable(desk.definitions())
    (owners,) = {tuple(spec.owners) for spec in desk.definitions().resolve_all_asset_specs()}
    assert owner.removeprefix("team:") in owners[0]
