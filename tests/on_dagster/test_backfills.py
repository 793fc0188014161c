"""Days of a feed that are read and sent again: partitions of an asset in Dagster, made by its daemon or by the command."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest
from on_dagster.desk import FEED, HEADER, MAPPING, Desk, ended, eventsync_ui, failure_of, line, until

from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.clock import now
from pipelines.orchestration import names
from pipelines.orchestration.run_request import launch_config, launch_tags, wanted_assets
from pipelines.run.options import By, RunOptions, Window

BACKFILLED = dg.AssetKey([FEED, "backfilled"])
DATED = MAPPING.replace("path: ../{source}", "path: ../in/{{date:%Y%m%d}}.csv")
SOON = now().date() + timedelta(days=100)
DAYS = tuple(date(2026, 5, day) for day in (1, 2, 3))


def dated(desk: Desk, *days: date) -> FeedMapping:
    """A feed of dated files, with two rows in each."""
    (desk.folder / "in").mkdir()
    for number, day in enumerate(days, start=1):
        lines = [HEADER, line(number * 10), line(number * 10 + 1)]
        (desk.folder / "in" / f"{day:%Y%m%d}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    return load_feed(desk.mapping(text=DATED))


def run(desk: Desk, mapping: FeedMapping, first: date, last: date, by: By) -> dg.ExecuteInProcessResult:
    """Make the days as one run of a backfill does."""
    options = RunOptions(window=Window(by=by, first=first, last=last))
    return (
        desk.definitions()
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(
            instance=desk.instance,
            run_config=launch_config(options, mapping.feed),
            asset_selection=[dg.AssetKey(path) for path in wanted_assets(mapping, options)],
            tags=launch_tags(mapping, options, "backfill"),
            raise_on_error=False,
        )
    )


def made(instance: dg.DagsterInstance) -> set[str]:
    return set(instance.get_materialized_partitions(BACKFILLED))


def test_days_of_files_are_read_and_sent_once_and_shown_as_made(desk: Desk) -> None:
    mapping = dated(desk, *DAYS)
    result = run(desk, mapping, DAYS[0], DAYS[1], "file")
    assert result.success, failure_of(result)
    assert made(desk.instance) == {"2026-05-01", "2026-05-02"}
    (event, *_) = result.get_asset_materialization_events()
    shown = {name: one.value for name, one in event.materialization.metadata.items()}
    assert shown == {"days": "2026-05-01 to 2026-05-02", "by": "file", "read": 4, "new": 4, "delivered": 4}
    assert sorted(event["title"] for event in desk.events()) == ["Evening 10", "Evening 11", "Evening 20", "Evening 21"]
    again = run(desk, mapping, DAYS[0], DAYS[2], "file")
    assert (again.success, len(made(desk.instance)), len(desk.events()), desk.posts()) == (True, 3, 6, 6)


def test_a_source_without_days_is_backfilled_by_the_days_of_its_events_those_to_come_too(desk: Desk) -> None:
    desk.source([line(1, day=str(SOON)), line(2, day=str(SOON + timedelta(days=1)))])
    mapping = load_feed(desk.mapping())
    refused, metadata = failure_of(run(desk, mapping, SOON, SOON, "file"))
    assert (metadata["exit_code"], "cannot be read by file" in refused) == (2, True)
    result = run(desk, mapping, SOON, SOON, "event")
    assert result.success, failure_of(result)
    assert ([event["title"] for event in desk.events()], made(desk.instance)) == (["Evening 1"], {str(SOON)})


@pytest.mark.slow(about_s=20)
def test_after_a_kill_the_same_command_goes_on_with_runs_in_its_own_process_and_every_day_is_shown_as_made(desk: Desk) -> None:
    dated(desk, *DAYS[:2])
    words = ("backfill", FEED, "--from", "2026-05-01", "--to", "2026-05-02", "--json")
    desk.switch(latency_ms=1_500)
    struck = desk.start(*words)
    until(lambda: desk.posts() > 2, what="the second slice")
    struck.kill()
    ended(struck)
    desk.switch(latency_ms=0)
    code, out, err = ended(desk.start(*words), within_s=180)
    assert code == 0, err
    assert [one["state"] for one in json.loads(out)["backfill"]["slices"]] == ["done"] * 2
    with dg.DagsterInstance.from_config(str(desk.folder / "dagster")) as instance:
        assert made(instance) == {"2026-05-01", "2026-05-02"}
        assert {run.tags[names.LAUNCHED_BY_TAG] for run in instance.get_runs()} == {"backfill"}
        assert not [run for run in instance.get_runs() if run.status is dg.DagsterRunStatus.STARTED]
        assert instance.get_backfills() == [], "the state DB alone knows how far it is"
    assert len(desk.events()) == 4


@pytest.mark.slow(about_s=150)
def test_where_the_ui_runs_dagster_makes_the_backfill_and_a_killed_command_loses_nothing_of_it(desk: Desk) -> None:
    def backfill(*words: str) -> Any:
        code, out, err = ended(desk.start("backfill", FEED, "--json", *words), within_s=240)
        assert code == 0, out + err
        return {**json.loads(out), "printed": err}

    dated(desk, *DAYS, date(2026, 7, 10))
    home = desk.folder / "dagster"
    words = ("--from", "2026-05-01", "--to", "2026-07-31")
    desk.mapping(text=DATED.replace("in_flight: 4", "in_flight: 1"))
    desk.switch(latency_ms=15_000)
    with eventsync_ui(desk.environ, home, desk.folder):
        struck = desk.start("backfill", FEED, *words)
        until(lambda: desk.posts() > 0, within_s=180, what="the first run")
        struck.kill()
        assert "waits for Dagster's daemon, which looks every 30 s" in ended(struck)[2]
        _, listing, _ = ended(desk.start("backfill", FEED, "--list"))
        assert ["queued" in line for line in listing.splitlines() if "2026-07-02 to" in line] == [True], listing
        cancelled = backfill("--cancel")
        desk.switch(latency_ms=0)
        resumed = backfill("--resume")
        listed = backfill("--list")["backfills"]
        empty = backfill("--from", "2026-06-01", "--to", "2026-06-20")
    ends = [(one["from"], one["to"], one["state"]) for one in resumed["backfill"]["slices"]]
    assert ends == [("2026-05-01", "2026-05-31", "done"), ("2026-07-02", "2026-07-31", "done")], "none for June"
    assert (cancelled["backfill"]["state"], cancelled["backfill"]["left"]) == ("cancelled", 2)
    assert (resumed["backfill"]["state"], resumed["backfill"]["left"], resumed["read"]) == ("done", 0, 8)
    assert f"{resumed['backfill']['id']}, which continues {cancelled['backfill']['id']}: 2 of 2 slices done" in resumed["printed"]
    assert [one["id"] for one in listed] == [resumed["backfill"]["id"]]
    assert (empty["exit_code"], empty["backfill"]["slices"]) == (0, [])
    assert set(Counter(event["title"] for event in desk.events()).values()) == {1}
    assert len(desk.events()) == 8
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert len(made(instance)) == 31 + 30
        tags = {one.tags[names.PLAN_TAG] for one in instance.get_backfills()}
        assert (tags, len(instance.get_backfills())) == ({"2026-05-01 to 2026-07-31 by file"}, 2)
