"""What Dagster shows of feeds before anything runs: assets, jobs, schedules, options, and mapping files that are broken."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import dagster as dg
import pytest
from on_dagster.desk import FEED, MAPPING, Desk, checks_of, failure_of, schedules_of_feeds
from reference_pages.__main__ import write_assets

from mappings.errors import MappingFileError
from mappings.yaml.loader import load_feed, load_folder
from pipelines.definitions import application
from pipelines.orchestration import names
from pipelines.run.context import open_context

SOURCE, STAGED, PUBLISHED, BACKFILLED = (dg.AssetKey([FEED, name]) for name in ("source", "staged", "published", "backfilled"))


def spec_of(definitions: dg.Definitions, key: dg.AssetKey) -> dg.AssetSpec:
    return next(spec for spec in definitions.resolve_all_asset_specs() if spec.key == key)


def test_a_feed_is_four_assets_that_depend_on_one_another_with_their_groups_owner_and_kinds(desk: Desk) -> None:
    specs = list(desk.definitions().resolve_all_asset_specs())
    deps = {spec.key: [dep.asset_key for dep in spec.deps] for spec in specs}
    assert deps == {SOURCE: [], STAGED: [SOURCE], PUBLISHED: [STAGED], BACKFILLED: [SOURCE]}
    groups = {(spec.group_name, *spec.owners) for spec in specs}
    assert groups == {(group, "agenda@example.org") for group in ("town_hall", "backfills")}
    kinds = {SOURCE: {"csv"}, STAGED: {"sqlite"}, **{key: {"http"} for key in (PUBLISHED, BACKFILLED)}}
    assert {spec.key: spec.kinds for spec in specs} == kinds
    settings = desk.settings.model_copy(update={"state_url": "postgresql+psycopg://worker@db.example.org/eventsync"})
    assert spec_of(application(settings, _never), STAGED).kinds == {"postgres"}


def test_one_job_stages_and_publishes_all_feeds(desk: Desk) -> None:
    desk.mapping("other-feed")
    job = desk.definitions().resolve_job_def("sync")
    others = {dg.AssetKey(["other-feed", phase]) for phase in names.PHASES}
    assert set(job.asset_layer.executable_asset_keys) == {STAGED, PUBLISHED, *others}
    options = job.resource_defs["eventsync_options"].config_schema.config_type.fields
    expected = {"full", "limit", "row_keys", "as_draft", "accept", "wait", "publish_only"}
    assert set(options) == expected
    assert all(len(field.description or "") > 20 and not field.is_required for field in options.values())


def test_an_edited_mapping_file_is_another_code_version(desk: Desk) -> None:
    (feed,) = load_folder(desk.folder / "feeds").feeds
    before = spec_of(desk.definitions(), STAGED).code_version
    desk.mapping(text=MAPPING.replace("collapse", "collapse, trim"))
    after = spec_of(desk.definitions(), STAGED).code_version
    assert before == feed.digest.hex()[:12]
    assert after != before


def test_the_schedule_runs_from_the_start_on_the_feeds_own_clock_and_a_feed_without_one_has_none(desk: Desk) -> None:
    schedule = desk.definitions().resolve_schedule_def("sync_town_hall_schedule")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("15 */2 * * *", "Europe/Warsaw")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    desk.mapping(text="\n".join(one for one in MAPPING.splitlines() if not one.startswith("schedule")))
    assert schedules_of_feeds(desk.definitions()) == []


OURS = {names.FEED_TAG: FEED}
TICKS = {
    "ended or never begun": (OURS, ["SUCCESS", "FAILURE", "CANCELED", "NOT_STARTED"], False),
    "another feed's": ({names.FEED_TAG: "other-feed"}, ["STARTED"], False),
    "a backfill, whose slices it comes between": (OURS | {names.LAUNCHED_BY_TAG: "backfill"}, ["STARTED"], False),
    "begun, and killed: no process holds the lease": (OURS, ["STARTED", "CANCELING"], False),
    "starting": (OURS, ["STARTING"], True),
}


def test_a_tick_asks_for_a_run_unless_one_of_the_feed_is_at_work(desk: Desk, home: dg.DagsterInstance) -> None:
    definitions = desk.definitions()
    job, schedule = definitions.resolve_job_def("sync"), definitions.resolve_schedule_def("sync_town_hall_schedule")
    for which, (tags, statuses, is_skipped) in TICKS.items():
        for status in statuses:
            run = home.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus[status])
            tick = schedule.evaluate_tick(dg.build_schedule_context(home))
            launched_by = [one.tags[names.LAUNCHED_BY_TAG] for one in tick.run_requests or ()]
            assert launched_by == ["schedule"] * (not is_skipped), (which, status)
            assert (f"at work: run {run.run_id}" == tick.skip_message) is is_skipped
            home.delete_run(run.run_id)
    mapping = load_feed(desk.folder / "feeds" / f"{FEED}.yaml")
    home.create_run_for_job(job, tags=OURS, status=dg.DagsterRunStatus.STARTED)
    for holder, is_skipped in {"run 7, launched by cli": True, "run 8, launched by backfill": False}.items():
        with open_context(desk.settings) as context, context.lease(mapping, holder, is_patient=False):
            assert bool(schedule.evaluate_tick(dg.build_schedule_context(home)).run_requests) is not is_skipped


def test_fifty_feeds_load_without_a_word_to_the_network(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        desk.mapping(f"feed-{number}")
    monkeypatch.setattr(socket.socket, "connect", _never)
    definitions = application(desk.settings, _never)
    dg.Definitions.validate_loadable(definitions)
    assert (len(list(definitions.resolve_all_asset_specs())), schedules_of_feeds(definitions)) == (204, [])


def _never(*_words: object) -> NoReturn:
    raise AssertionError("opened while loading, when Dagster would wait for it")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("https://partner.example/agenda.csv", "https://partner.example/agenda.csv"),
        ("https://ana:s3cret-word@partner.example/agenda.csv?token=s3cret-word", "https://partner.example/agenda.csv?…"),
        ("https://ana:s3cret-word@[::1/agenda.csv", "https://…"),
    ],
)
def test_the_place_of_a_source_is_an_address_to_click_on_without_its_secrets(desk: Desk, path: str, shown: str) -> None:
    desk.mapping(text=MAPPING.replace("../{source}", path))
    place = spec_of(desk.definitions(), SOURCE).metadata["source"]
    assert place == dg.MetadataValue.url(shown)


@pytest.mark.parametrize(
    ("source", "kind", "shown"),
    [
        (
            "{kind: google_sheets, spreadsheet: 1AbCdEfGhIjKlMnOpQrStUvWxYz0123456789, gid: 7}",
            "googlesheets",
            dg.MetadataValue.url("https://docs.google.com/spreadsheets/d/1AbCdEfGhIjKlMnOpQrStUvWxYz0123456789/edit#gid=7"),
        ),
        ("{kind: salesforce, object: Event__c}", "salesforce", dg.MetadataValue.text("Event__c")),
        ("{kind: xlsx, path: ../events.xlsx}", "excel", dg.MetadataValue.text("../events.xlsx")),
    ],
)
def test_a_source_stands_under_dagsters_own_name_for_its_kind_with_its_place(
    desk: Desk, source: str, kind: str, shown: dg.MetadataValue[str]
) -> None:
    desk.mapping(text=MAPPING.replace("\n  kind: csv\n  path: ../{source}", f" {source}".replace("{", "{{").replace("}", "}}")))
    spec = spec_of(desk.definitions(), SOURCE)
    assert (set(spec.kinds), spec.metadata["source"]) in [({kind}, shown), ({kind}, shown.value)]


def test_the_page_about_assets_is_what_the_definitions_say() -> None:
    page = Path(__file__).parents[2] / "docs" / "assets.md"
    assert page.read_text("utf-8") == write_assets(), "generate it again: make reference"


def test_what_has_no_public_name_in_dagster_is_imported_in_one_module_only() -> None:
    private, package = re.compile(r"^\s*(?:from|import) dagster\w*\._", re.MULTILINE), Path(names.__file__).parents[1]
    found = {path.name for path in package.rglob("*.py") if private.search(path.read_text("utf-8"))}
    assert found == {"dagster_private.py"}


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
    text = text.replace("owner: agenda@example.org", 'owner: "\\e[35m\\u202e evil"')
    desk.mapping("broken\x1b\udce9", text=text)
    definitions = desk.definitions()
    dg.Definitions.validate_loadable(definitions)
    (red,) = told(definitions, desk).asset_events
    assert isinstance(red, dg.AssetCheckEvaluation)
    assert red.asset_key == dg.AssetKey(["broken_feeds", "broken_1b__dce9__yaml"])
    assert "\u241b[35m\ufffd\ufffd evil" in (red.description or "")
    owners = "".join(owner for spec in definitions.resolve_all_asset_specs() for owner in spec.owners)
    assert not {"\x1b", "\x9b", "\u202e", "\udce9"} & {*(red.description or ""), *owners}


def test_a_person_may_run_the_check_and_it_passes_once_the_file_is_mended(desk: Desk) -> None:
    checks = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(dg.AssetCheckKey(KEY, "loads")))
    job = dg.Definitions.merge(break_one(desk), dg.Definitions(jobs=[checks])).resolve_job_def("checks")
    assert not checks_of(job.execute_in_process(instance=desk.instance))["loads"].passed
    desk.mapping("broken", text=MAPPING.replace("{feed}", OTHER))
    mended = checks_of(job.execute_in_process(instance=desk.instance))["loads"]
    assert (mended.passed, "eventsync reload" in (mended.description or "")) == (True, True)


def test_its_feed_keeps_its_place_its_owner_its_schedule_whose_ticks_are_red_and_fails_at_once(
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
    assert {spec.owners[0] for spec in specs} == {"agenda@example.org"}
    job, keys = definitions.resolve_job_def("sync"), [dg.AssetKey([OTHER, phase]) for phase in names.PHASES]
    failed = job.execute_in_process(instance=desk.instance, asset_selection=keys, raise_on_error=False)
    assert "titel" in failure_of(failed)[0]


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
    assert {key.path[0] for key in definitions.resolve_job_def("sync").asset_layer.executable_asset_keys} == {FEED}
    assert definitions.resolve_schedule_def("sync_town_hall_schedule").cron_schedule == "15 */2 * * *"
    (red,) = (spec for spec in definitions.resolve_all_asset_specs() if spec.key == KEY)
    assert red.owners == (["agenda@example.org"] if "owner:" in text else [])


def test_it_is_red_where_definitions_are_validated(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_IS_DEFS_VALIDATION_CLI", "1")
    desk.mapping("broken", text="feed: [")
    with pytest.raises(MappingFileError, match=r"broken\.yaml"):
        application(desk.settings, lambda: open_context(desk.settings))


def test_a_schedule_that_is_itself_the_mistake_is_not_kept(desk: Desk) -> None:
    definitions = break_one(desk, MAPPING.replace("15 */2", "61 */2"))
    assert schedules_of_feeds(definitions) == ["sync_town_hall_schedule"]


@pytest.mark.parametrize("owner", ["The agenda desk", "team:agenda", "ana@", "agenda@example.org", ".x@example.org", "team:"])
def test_no_owner_takes_the_definitions_down(desk: Desk, owner: str) -> None:
    desk.mapping(text=MAPPING.replace("agenda@example.org", f'"{owner}"'))
    dg.Definitions.validate_loadable(desk.definitions())
    (owners,) = {tuple(spec.owners) for spec in desk.definitions().resolve_all_asset_specs()}
    assert owner.removeprefix("team:") in owners[0]
