"""Lineage: a team's assets before a feed and after it, become stale when they should, and run it when they are updated."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.asset_daemon_cursor import AssetDaemonCursor
from on_dagster.desk import FEED, MAPPING, Desk, desk_in, is_stale_in, line, metadata_of, observed_version_of

from mappings.spec.feed import FeedMapping
from pipelines.clock import now
from pipelines.orchestration import names
from pipelines.orchestration.feeds import build_definitions, load_feeds
from pipelines.orchestration.layout import FeedTranslator, Layout
from pipelines.orchestration.run_tags import feeds_of
from pipelines.run.context import open_context
from pipelines.run.options import RunOptions

SOURCE, STAGED, PUBLISHED = (dg.AssetKey([FEED, phase]) for phase in ("source", "staged", "published"))
EXPORT = dg.AssetKey(["warehouse", "events"])
EXPORTED = MAPPING.replace(
    'schedule: {{cron: "15 */2 * * *", timezone: Europe/Warsaw}}', "after: [warehouse/events]\nschedule: {{on_update: true}}"
).replace("path: ../{source}", "path: ../export/{{date:%Y-%m-%d}}.csv\n  files: newest")


@dg.asset(deps=[PUBLISHED], automation_condition=dg.AutomationCondition.eager())
def newsletter() -> None: ...


@dg.asset(
    deps=[PUBLISHED],
    automation_condition=dg.AutomationCondition.eager().replace("newly_updated", dg.AutomationCondition.data_version_changed()),
)
def calendar() -> None: ...


@dg.asset(key=EXPORT)
def export() -> None: ...


def around(desk: Desk) -> dg.Definitions:
    return dg.Definitions.merge(desk.definitions(), dg.Definitions(assets=[newsletter, calendar, export]))


def make(desk: Desk, *keys: dg.AssetKey) -> None:
    """Materialize or observe assets, as from their pages."""
    job = around(desk).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=desk.instance, asset_selection=list(keys)).success


def is_stale(desk: Desk, key: dg.AssetKey) -> bool:
    return is_stale_in(around(desk), desk.instance, key)


def version_of(desk: Desk, key: dg.AssetKey) -> str:
    event = desk.instance.get_latest_materialization_event(key)
    assert event is not None
    return (event.tags or {})["dagster/data_version"]


def observed_version(desk: Desk) -> str | None:
    return observed_version_of(desk.instance, SOURCE)


def conditions(desk: Desk, cursor: AssetDaemonCursor | None = None) -> dg.EvaluateAutomationConditionsResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.evaluate_automation_conditions(around(desk), desk.instance, cursor=cursor)


def test_a_run_and_an_observation_see_the_same_version_of_an_unchanged_source(desk: Desk) -> None:
    assert desk.run().success
    first = observed_version(desk)
    make(desk, SOURCE)
    assert (observed_version(desk), is_stale(desk, STAGED), is_stale(desk, PUBLISHED)) == (first, False, False)
    desk.source(map(line, range(12)))
    make(desk, SOURCE)
    assert observed_version(desk) not in (None, first)
    assert is_stale(desk, STAGED)
    versions = []
    for rows in (12, 13, 0):
        if rows:
            desk.source(map(line, range(rows)))
        assert desk.run().success
        assert not is_stale(desk, STAGED), "made from the version that the run itself has seen"
        versions.append(version_of(desk, STAGED))
    assert versions[0] != versions[1] == versions[2]


def test_a_run_of_some_rows_leaves_the_others_stale(desk: Desk) -> None:
    assert desk.run().success
    desk.source(map(line, range(12)))
    assert desk.run(RunOptions(keys=("11",))).success
    assert is_stale(desk, STAGED)
    assert desk.run().success
    assert not is_stale(desk, STAGED)


def test_what_depends_on_a_feed_is_stale_once_something_was_delivered_and_only_then(desk: Desk) -> None:
    assert desk.run().success
    make(desk, newsletter.key, calendar.key)
    cursor = conditions(desk).cursor
    seen = []
    for rows in (10, 12, 12):
        desk.source(map(line, range(rows)))
        result = desk.run()
        assert result.success
        stale = is_stale(desk, newsletter.key)
        asked = conditions(desk, cursor)
        cursor = asked.cursor
        requested = asked.get_num_requested(newsletter.key), asked.get_num_requested(calendar.key)
        seen.append((metadata_of(result, "published")["delivered"].value, stale, requested))
        make(desk, newsletter.key, calendar.key)
        cursor = conditions(desk, cursor).cursor
    # `eager` counts every materialization as an update, whatever its data version.
    assert seen == [(0, False, (1, 0)), (2, True, (1, 1)), (0, False, (1, 0))]


def test_published_names_the_first_hundred_events_that_its_run_delivered(desk: Desk) -> None:
    desk.source(map(line, range(101)))
    result = desk.run()
    ids = metadata_of(result, "published")["delivered events"].value
    assert isinstance(ids, list)
    assert ids == sorted(event["id"] for event in desk.events())[:100]
    desk.source(map(line, range(102)))
    (last,) = metadata_of(desk.run(), "published")["delivered events"].value  # type: ignore[misc]
    assert last not in ids
    assert "delivered events" not in metadata_of(desk.run(), "published")


@pytest.fixture
def exported(tmp_path: Path, home: dg.DagsterInstance) -> Iterator[Desk]:
    """A feed of dated files that a team's asset writes."""
    with desk_in(tmp_path, home) as desk:
        desk.mapping(text=EXPORTED)
        (desk.folder / "export").mkdir()
        desk.source(map(line, range(10)))
        (desk.folder / "events.csv").rename(desk.folder / "export" / f"{now():%Y-%m-%d}.csv")
        yield desk


def look(desk: Desk, cursor: str | None) -> dg.SensorExecutionData:
    sensor = desk.definitions().resolve_sensor_def("sync_town_hall_when_updated")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    return sensor.evaluate_tick(dg.build_sensor_context(instance=desk.instance, cursor=cursor))


def test_the_source_depends_on_the_assets_of_another_team_wherever_they_are_defined(exported: Desk) -> None:
    for definitions in (exported.definitions(), around(exported)):
        dg.Definitions.validate_loadable(definitions)
        assert definitions.get_repository_def().asset_graph.get(SOURCE).parent_keys == {EXPORT}
    make(exported, SOURCE)


def test_an_update_runs_the_feed_once_and_what_was_there_before_does_not(exported: Desk) -> None:
    make(exported, EXPORT)
    first = look(exported, None)
    assert (first.run_requests, first.skip_message) == ([], "waits for an update of warehouse/events")
    assert not look(exported, first.cursor).run_requests
    make(exported, EXPORT)
    make(exported, EXPORT)
    seen = look(exported, first.cursor)
    (request,) = seen.run_requests
    assert look(exported, first.cursor).run_requests == [request], "asked again before the cursor was kept: the same run"
    assert request.tags.items() >= {names.FEED_TAG: FEED, names.LAUNCHED_BY_TAG: "schedule"}.items()
    assert request.asset_selection == [STAGED, PUBLISHED]
    assert not look(exported, seen.cursor).run_requests

    job = exported.definitions().resolve_job_def("sync")
    result = job.execute_in_process(instance=exported.instance, asset_selection=request.asset_selection, tags=request.tags)
    assert (result.success, len(exported.events())) == (True, 10)


def test_an_update_while_a_run_is_at_work_starts_no_second_one_and_is_seen_later(exported: Desk) -> None:
    cursor = look(exported, None).cursor
    make(exported, EXPORT)
    job = exported.definitions().resolve_job_def("sync")
    run = exported.instance.create_run_for_job(job, tags={names.FEED_TAG: FEED}, status=dg.DagsterRunStatus.STARTING)
    busy = look(exported, cursor)
    assert (busy.run_requests, run.run_id in (busy.skip_message or "")) == ([], True)
    exported.instance.report_run_canceled(run)
    assert len(look(exported, busy.cursor or cursor).run_requests) == 1


def test_an_asset_that_gives_its_own_version_is_updated_when_that_changes(exported: Desk) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.multi_observable_source_asset(specs=[dg.AssetSpec(EXPORT)])  # type: ignore[untyped-decorator]
        def observed() -> Iterator[dg.ObserveResult]:
            yield dg.ObserveResult(asset_key=EXPORT, data_version=dg.DataVersion(version))

    @dg.asset(key=EXPORT)
    def made() -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(data_version=dg.DataVersion(version))

    cursor = look(exported, None).cursor
    for asset in (observed, made):
        runs = []
        for version in ("a", "a", "b"):  # noqa: B007  # the assets give it
            job = dg.Definitions(assets=[asset]).resolve_implicit_global_asset_job_def()
            assert job.execute_in_process(instance=exported.instance).success
            seen = look(exported, cursor)
            runs.append(len(seen.run_requests))
            cursor = seen.cursor
        assert runs == [1, 0, 1]
    for version in ("b", "c"):
        reported = dg.AssetMaterialization(EXPORT, tags={"dagster/data_version": version})
        exported.instance.report_runless_asset_event(reported)
        runs.append(len(look(exported, cursor).run_requests))
    assert runs[3:] == [0, 1], "reported from outside of Dagster"


def test_feeds_that_follow_one_another_in_a_circle_leave_the_others_alone(desk: Desk) -> None:
    follows = MAPPING.replace("key: [ID]", "after: [{after}]\nkey: [ID]")
    for feed, before in (("a-first", "b-then/published"), ("b-then", "a-first/published"), ("self-made", "self-made/staged")):
        desk.mapping(feed, text=follows.replace("{after}", before))
    definitions = desk.definitions()
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.get_repository_def().asset_graph
    assert graph.get(dg.AssetKey(["a-first", "source"])).parent_keys == {dg.AssetKey(["b-then", "published"])}
    broken = [spec for spec in definitions.resolve_all_asset_specs() if spec.key.path[0] == "broken_feeds"]
    assert [spec.key.path[1] for spec in broken] == ["b-then_yaml", "self-made_yaml"]
    assert "b-then.yaml:7:8: after leads back to this feed" in str(broken[0].description)
    assert desk.run().success


class FlatKeys(FeedTranslator):
    """A team that has keys of one part."""

    def get_asset_spec(self, feed: FeedMapping, spec: dg.AssetSpec) -> dg.AssetSpec:  # noqa: ARG002
        return spec.replace_attributes(key=dg.AssetKey("_".join(spec.key.path)))


def test_a_run_of_several_feeds_with_keys_of_one_part_knows_them_all(desk: Desk) -> None:
    desk.mapping("night-walks")
    settings = desk.settings
    layout = Layout(translator=FlatKeys(), state_kind=settings.state_kind)
    definitions = build_definitions(load_feeds(settings), settings, lambda: open_context(settings), layout)
    selected = [dg.AssetKey(f"{feed}_staged") for feed in ("night-walks", FEED)]
    pages = definitions.resolve_implicit_global_asset_job_def()
    run_id = pages.execute_in_process(instance=desk.instance, asset_selection=selected, raise_on_error=False).run_id
    run = desk.instance.get_run_by_id(run_id)
    assert run is not None
    assert sorted(feeds_of(run)) == ["night-walks", FEED]


def test_a_prefix_of_the_keys_changes_names_and_nothing_else(exported: Desk) -> None:
    desk, settings = exported, exported.settings
    desk.mapping("night-walks")
    desk.mapping(text=EXPORTED.replace("on_update: true", 'on_update: true, look_every: 5m, cron: "5 * * * *"'))
    desk.source([line(1)])
    layout = Layout(("agenda", "v-1"), state_kind=settings.state_kind)
    ours = build_definitions(load_feeds(settings), settings, lambda: open_context(settings), layout)
    definitions = dg.Definitions.merge(ours, dg.Definitions(assets=[export]))
    dg.Definitions.validate_loadable(definitions)
    keys = [dg.AssetKey(["agenda", "v-1", FEED, phase]) for phase in names.PHASES]
    clock = definitions.resolve_schedule_def("agenda_v_1_sync_town_hall_schedule")
    sensors = [definitions.resolve_sensor_def(f"agenda_v_1_sync_town_hall_when_{event}") for event in ("changed", "updated")]
    assert {clock.job_name, *(one.job_name for one in sensors)} == {"agenda_v_1_sync"}
    before = sensors[1].evaluate_tick(dg.build_sensor_context(instance=desk.instance)).cursor
    make(desk, EXPORT)
    requests = [
        *(clock.evaluate_tick(dg.build_schedule_context(instance=desk.instance)).run_requests or ()),
        *(sensors[0].evaluate_tick(dg.build_sensor_context(instance=desk.instance)).run_requests or ()),
        *(sensors[1].evaluate_tick(dg.build_sensor_context(instance=desk.instance, cursor=before)).run_requests or ()),
    ]
    assert [one.asset_selection for one in requests] == [keys] * 3
    assert {one.tags[names.FEED_TAG] for one in requests} == {FEED}
    job = definitions.resolve_job_def("agenda_v_1_sync")
    result = job.execute_in_process(instance=desk.instance, asset_selection=keys, tags=requests[0].tags)
    assert (result.success, len(desk.events())) == (True, 10)

    pages = definitions.resolve_implicit_global_asset_job_def()
    for feeds in ([FEED], ["night-walks", FEED]):
        selected = [dg.AssetKey(["agenda", "v-1", feed, "staged"]) for feed in feeds]
        run_id = pages.execute_in_process(instance=desk.instance, asset_selection=selected).run_id
        run = desk.instance.get_run_by_id(run_id)
        assert run is not None
        assert (sorted(feeds_of(run)), run.tags.get(names.FEED_TAG)) == (sorted(feeds), FEED if feeds == [FEED] else None)
