"""A feed whose shards are runs of their own: the run that stages publishes the first, a sensor launches the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

import dagster as dg
from on_dagster.desk import FEED, MAPPING, Desk, ended, failure_of, line, materialized, metadata_of

from pipelines.orchestration import names
from pipelines.orchestration.automation import at_work
from pipelines.run.context import open_context
from state.ledger.accounts import PublishAccount

ROWS = 330
SHARDED = MAPPING.replace("in_flight: 4", "in_flight: 4\n  shards: 3")


def look(desk: Desk) -> dg.SensorExecutionData:
    sensor = desk.definitions().resolve_sensor_def("sync_town_hall_shards")
    return sensor.evaluate_tick(dg.build_sensor_context(instance=desk.instance))


def launched(desk: Desk, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
    """A run as the daemon launches it."""
    job = desk.definitions().resolve_job_def("sync_town_hall")
    assets: Sequence[dg.AssetKey] | None = request.asset_selection
    config: Mapping[str, object] = request.run_config
    tags = {names.FEED_TAG: FEED, **request.tags}
    return job.execute_in_process(
        instance=desk.instance, run_config=config, asset_selection=assets, tags=tags, raise_on_error=False
    )


def counted(result: dg.ExecuteInProcessResult) -> tuple[object, object]:
    shown = metadata_of(result, "published")
    return shown["shard"].value, shown["delivered"].value


def test_each_shard_is_a_run_and_the_last_one_closes_the_record(desk: Desk) -> None:
    desk.mapping(text=SHARDED)
    desk.source(line(number) for number in range(ROWS))
    assert not look(desk).run_requests
    first = desk.run()
    assert (first.success, counted(first), desk.book(first.run_id).outcome) == (True, ("1 of 3", 110), None)
    requests = look(desk).run_requests
    assert [request.run_key for request in requests] == [f"{first.run_id} 2", f"{first.run_id} 3"]
    assert len({request.tags[names.FEED_TAG] for request in requests}) == 2, "dagster.yaml allows one run of each"
    assert "sk-" not in json.dumps([request.run_config for request in requests])
    waiting = desk.instance.create_run_for_job(
        desk.definitions().resolve_job_def("sync_town_hall"), tags=requests[0].tags, status=dg.DagsterRunStatus.STARTING
    )
    assert at_work(desk.instance, FEED, partial(open_context, desk.settings)), "a tick would stage anew"
    desk.instance.delete_run(waiting.run_id)

    second, third = (launched(desk, request) for request in requests)
    assert (second.success, counted(second)) == (True, ("2 of 3", 220))
    assert (third.success, counted(third), materialized(third)) == (True, ("3 of 3", ROWS), {"published"})
    record = desk.book(first.run_id)
    assert (record.outcome, record.publish) == ("done", PublishAccount(new=ROWS, delivered=ROWS))
    assert [one.dagster_run_id for one in record.shards] == [first.run_id, second.run_id, third.run_id]
    assert (desk.posts(), look(desk).run_requests) == (ROWS, [])

    late, _ = failure_of(launched(desk, requests[0]))
    assert "has ended, or a newer run continues" in late
    assert desk.posts() == ROWS


def test_no_shard_begins_after_one_that_the_service_has_stopped(desk: Desk) -> None:
    desk.mapping(text=SHARDED)
    desk.source(line(number) for number in range(ROWS))
    first = desk.run()
    requests = look(desk).run_requests
    desk.api_key = f"{desk.api_key}-revoked"
    assert not launched(desk, requests[0]).success
    assert not look(desk).run_requests
    record = desk.book(first.run_id)
    assert (record.outcome, record.exit_code) == ("refused by the service", 3)
    assert [one.outcome for one in record.shards] == ["done", "refused by the service", "lost"]
    assert record.message.startswith("shard 2 of 3: ")


def test_no_shard_begins_after_one_whose_run_ended_before_it_began(desk: Desk) -> None:
    desk.mapping(text=SHARDED)
    desk.source(line(number) for number in range(ROWS))
    first = desk.run()
    second, third = look(desk).run_requests
    job = desk.definitions().resolve_job_def("sync_town_hall")
    tags = {**second.tags, "dagster/run_key": str(second.run_key)}
    desk.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.CANCELED)
    assert not look(desk).run_requests
    record = desk.book(first.run_id)
    assert ([one.outcome for one in record.shards], record.finished_at is None) == (["done", "lost", "lost"], False)
    late, _ = failure_of(launched(desk, third))
    assert "has ended, or a newer run continues" in late


def test_shards_that_never_began_are_left_to_the_next_run(desk: Desk) -> None:
    desk.mapping(text=SHARDED)
    desk.source(line(number) for number in range(ROWS))
    first = desk.run()
    second = desk.run()
    assert second.success
    record = desk.book(first.run_id)
    assert (record.outcome, record.publish) == ("lost", PublishAccount(new=110, delivered=110))
    assert [request.run_key for request in look(desk).run_requests] == [f"{second.run_id} 2"], "220 rows are left for two"


def test_a_run_in_the_commands_process_publishes_its_shards_itself(desk: Desk) -> None:
    desk.source(line(number) for number in range(ROWS))
    code, out, err = ended(desk.start("run", FEED, "--json", "--shards", "3"))
    assert code == 0, err
    (run,) = json.loads(out)["runs"]
    assert (run["publish"]["delivered"], [one["outcome"] for one in run["shards"]]) == (ROWS, ["done"] * 3)
    assert desk.posts() == ROWS
