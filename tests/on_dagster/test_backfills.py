"""Windows of the past as Dagster sees them: days of an asset where the source has days, a job of its own where it has none."""

from __future__ import annotations

import json
import os
from functools import partial

import dagster as dg
import pytest
from lookalikes.dagster import dagster_webserver
from on_dagster.desk import FEED, HEADER, MAPPING, Desk, ended, failure_of, line, until

from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import BulkActionStatus, PartitionBackfill
from pipelines.orchestration.webserver import launch_config, launch_tags, wanted_assets
from pipelines.run.options import RunOptions, Window

BACKFILLED = dg.AssetKey([FEED, "backfilled"])
DATED = MAPPING.replace("path: ../{source}", "path: ../in/{{date:%Y%m%d}}.csv")


@pytest.fixture
def dated(desk: Desk) -> FeedMapping:
    """A feed of dated files, of three days with two rows each."""
    (desk.folder / "in").mkdir()
    for day in (1, 2, 3):
        lines = [HEADER, line(day * 10), line(day * 10 + 1)]
        (desk.folder / "in" / f"2026050{day}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    return load_feed(desk.mapping(text=DATED))


def window(by: str, first: str, last: str) -> RunOptions:
    return RunOptions(window=Window.model_validate({"by": by, "first": first, "last": last}))


def run(desk: Desk, mapping: FeedMapping, options: RunOptions, tags: dict[str, str]) -> dg.ExecuteInProcessResult:
    definitions, paths = desk.definitions(), wanted_assets(mapping, options)
    if options.window is None:
        paths = [(mapping.feed, "backfilled")]
    is_ours = paths[0][-1] in names.PHASES
    job = definitions.resolve_job_def(names.JOB) if is_ours else definitions.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=desk.instance,
        run_config=launch_config(options),
        asset_selection=[dg.AssetKey(path) for path in paths],
        tags=tags,
        raise_on_error=False,
    )


def made(desk: Desk) -> set[str]:
    return set(desk.instance.get_materialized_partitions(BACKFILLED))


def test_a_backfill_of_days_in_the_ui_reads_those_days_and_shows_them_as_made(desk: Desk, dated: FeedMapping) -> None:
    span = {"dagster/asset_partition_range_start": "2026-05-01", "dagster/asset_partition_range_end": "2026-05-02"}
    result = run(desk, dated, RunOptions(), span)
    assert result.success, failure_of(result)
    assert made(desk) == {"2026-05-01", "2026-05-02"}
    assert sorted(event["title"] for event in desk.events()) == ["Evening 10", "Evening 11", "Evening 20", "Evening 21"]
    again = run(desk, dated, RunOptions(), {**span, "dagster/asset_partition_range_end": "2026-05-03"})
    assert (again.success, len(made(desk)), len(desk.events()), desk.posts()) == (True, 3, 6, 6)


@pytest.mark.parametrize(
    ("first", "last", "days", "events"),
    [("2026-05-02", "2026-05-03", {"2026-05-02", "2026-05-03"}, 4), ("2014-12-30", "2026-05-01", set[str](), 2)],
    ids=["tagged with its days", "it begins before the first day that is shown"],
)
def test_a_window_of_the_command_line_is_brought_in(
    desk: Desk, dated: FeedMapping, first: str, last: str, days: set[str], events: int
) -> None:
    options = window("file", first, last)
    result = run(desk, dated, options, dict(launch_tags(dated, options, "backfill")))
    assert (result.success, made(desk), len(desk.events())) == (True, days, events)


def test_a_source_without_days_runs_for_a_window_of_its_events(desk: Desk) -> None:
    desk.source([line(1, day="2031-05-01"), line(2, day="2031-06-01")])
    mapping = load_feed(desk.mapping())
    options = window("event", "2031-06-01", "2031-06-30")
    result = run(desk, mapping, options, dict(launch_tags(mapping, options, "backfill")))
    assert result.success, failure_of(result)
    assert [event["title"] for event in desk.events()] == ["Evening 2"]
    keys = {spec.key.path[-1] for spec in desk.definitions().resolve_all_asset_specs()}
    assert keys == {"source", "staged", "published"}


def test_a_run_without_a_window_says_what_it_lacks(desk: Desk, dated: FeedMapping) -> None:
    told, metadata = failure_of(run(desk, dated, RunOptions(), {}))
    assert "no days of town-hall were selected" in told
    assert metadata["exit_code"] == 2
    assert "select partitions" in told


def shown(desk: Desk) -> tuple[PartitionBackfill, list[dg.DagsterRun]]:
    """The one backfill of the Backfills tab, and all runs."""
    with dg.DagsterInstance.from_config(str(desk.folder / "dagster")) as instance:
        (backfill,) = instance.get_backfills()
        return backfill, list(instance.get_runs())


@pytest.mark.slow(about_s=25)
def test_a_backfill_by_event_runs_here_beside_the_local_ui_and_its_tab_shows_how_far_it_is(desk: Desk) -> None:
    desk.source([line(1, day="2031-05-01"), line(2, day="2031-07-01")])
    go = partial(desk.start, "backfill", FEED, "--from", "2031-05-01", "--to", "2031-08-31", "--json")
    with dagster_webserver("FAILURE") as ui:
        (desk.folder / "dagster").mkdir()
        (desk.folder / "dagster" / "eventsync-ui.json").write_text(json.dumps({"url": ui.url, "pid": os.getpid()}), "utf-8")
        seen = list[tuple[int, BulkActionStatus, str]]()
        for key, limit in ((desk.api_key, ("--limit", "1")), ("sk-unknown", ()), (desk.api_key, ())):
            desk.api_key = key
            code, _, _ = ended(go(*limit), within_s=180)
            backfill, runs = shown(desk)
            seen.append((code, backfill.status, backfill.tags["slices"]))
    assert seen == [
        (0, BulkActionStatus.CANCELED, "1 of 4 done"),
        (3, BulkActionStatus.COMPLETED_FAILED, "1 of 4 done"),
        (0, BulkActionStatus.COMPLETED_SUCCESS, "4 of 4 done"),
    ]
    assert backfill.partition_names == ["2031-05-01 to 2031-05-31", "2031-06-01 to 2031-06-30", "2031-07-01 to 2031-07-31"]
    assert {run.tags["dagster/partition"] for run in runs if run.is_success} == set(backfill.partition_names)
    assert {run.tags["dagster/backfill"] for run in runs} == {backfill.backfill_id}


@pytest.mark.slow(about_s=20)
@pytest.mark.usefixtures("dated")
def test_after_a_kill_the_same_command_goes_on_with_dagsters_runs_and_every_day_is_shown_as_made(desk: Desk) -> None:
    words = ("backfill", FEED, "--from", "2026-05-01", "--to", "2026-05-02", "--json")
    desk.switch(latency_ms=1_500)
    struck = desk.start(*words)
    until(lambda: desk.posts() > 2, what="the second slice")
    struck.kill()
    ended(struck)
    assert shown(desk)[0].status is BulkActionStatus.CANCELED
    desk.switch(latency_ms=0)
    code, out, err = ended(desk.start(*words), within_s=180)
    assert code == 0, err
    assert [one["state"] for one in json.loads(out)["backfill"]["slices"]] == ["done"] * 2
    backfill, runs = shown(desk)
    assert (backfill.status, backfill.job_name) == (BulkActionStatus.COMPLETED_SUCCESS, "__ASSET_JOB")
    assert backfill.partition_names == ["2026-05-01", "2026-05-02"]
    assert {run.tags["dagster/backfill"] for run in runs} == {backfill.backfill_id}
    with dg.DagsterInstance.from_config(str(desk.folder / "dagster")) as instance:
        assert instance.get_materialized_partitions(BACKFILLED) == {"2026-05-01", "2026-05-02"}
        assert {run.tags[names.LAUNCHED_BY_TAG] for run in instance.get_runs()} == {"backfill"}
        assert not [run for run in instance.get_runs() if run.status is dg.DagsterRunStatus.STARTED]
    assert len(desk.events()) == 4
