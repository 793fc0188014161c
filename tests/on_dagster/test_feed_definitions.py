"""What Dagster shows of feeds before anything runs: assets, jobs, schedules, options, and where their rows come from."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import NoReturn

import dagster as dg
import pytest
from on_dagster.desk import FEED, MAPPING, Desk, schedules_of_feeds
from reference_pages.__main__ import write_assets

from mappings.yaml.loader import load_folder
from pipelines.definitions import build_definitions
from pipelines.orchestration import names

SOURCE, STAGED, PUBLISHED = (dg.AssetKey([FEED, name]) for name in ("source", "staged", "published"))


def spec_of(definitions: dg.Definitions, key: dg.AssetKey) -> dg.AssetSpec:
    return next(spec for spec in definitions.resolve_all_asset_specs() if spec.key == key)


def test_a_feed_is_three_assets_that_depend_on_one_another_in_a_group_of_its_name_with_their_owner_and_kinds(desk: Desk) -> None:
    specs = list(desk.definitions().resolve_all_asset_specs())
    deps = {spec.key: [dep.asset_key for dep in spec.deps] for spec in specs}
    assert deps == {SOURCE: [], STAGED: [SOURCE], PUBLISHED: [STAGED]}
    assert {(spec.group_name, *spec.owners) for spec in specs} == {("town_hall", "agenda@example.org")}
    kinds = {SOURCE: {"csv"}, STAGED: {"python", "sqlite"}, PUBLISHED: {"python", "http"}}
    assert {spec.key: spec.kinds for spec in specs} == kinds
    settings = desk.settings.model_copy(update={"state_url": "postgresql+psycopg://worker@db.example.org/eventsync"})
    assert spec_of(build_definitions(settings, _never), STAGED).kinds == {"python", "postgres"}


def test_the_job_of_a_feed_stages_and_publishes_it_alone(desk: Desk) -> None:
    desk.mapping("other-feed")
    job = desk.definitions().resolve_job_def("sync_town_hall")
    assert set(job.asset_layer.executable_asset_keys) == {STAGED, PUBLISHED}
    assert job.tags["eventsync/feed"] == FEED
    options = job.resource_defs["options"].config_schema.config_type.fields
    assert set(options) == {"full", "limit", "row_keys", "as_draft", "accept", "wait", "publish_only", "window"}
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
    "at work": (OURS, ["STARTING", "STARTED", "CANCELING"], True),
}


def test_a_tick_asks_for_a_run_unless_one_of_the_feed_is_at_work(desk: Desk, home: dg.DagsterInstance) -> None:
    definitions = desk.definitions()
    job, schedule = definitions.resolve_job_def("sync_town_hall"), definitions.resolve_schedule_def("sync_town_hall_schedule")
    for which, (tags, statuses, is_skipped) in TICKS.items():
        for status in statuses:
            run = home.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus[status])
            tick = schedule.evaluate_tick(dg.build_schedule_context(home))
            launched_by = [one.tags[names.LAUNCHED_BY_TAG] for one in tick.run_requests or ()]
            assert launched_by == ["schedule"] * (not is_skipped), (which, status)
            assert (f"run {run.run_id} of {FEED} has not ended yet" == tick.skip_message) is is_skipped
            if is_skipped:
                home.report_run_canceled(run)


def test_fifty_feeds_load_without_a_word_to_the_network(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        desk.mapping(f"feed-{number}")
    monkeypatch.setattr(socket.socket, "connect", _never)
    definitions = build_definitions(desk.settings, _never)
    dg.Definitions.validate_loadable(definitions)
    assert (len(list(definitions.resolve_all_asset_specs())), len(schedules_of_feeds(definitions))) == (153, 51)


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
        ("{kind: google_sheets, spreadsheet: Our programme}", "googlesheets", dg.MetadataValue.text("Our programme")),
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
