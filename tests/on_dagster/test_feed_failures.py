from __future__ import annotations

import dagster as dg
import fsspec
from fsspec.spec import AbstractFileSystem
from on_dagster.desk import HEADER, Desk, failure_of, materialized

from mappings.yaml.loader import load_folder
from pipelines.run.context import open_context
from pipelines.run.options import RunOptions

RETRY_TAG = "dagster/retry_on_asset_or_op_failure"


def is_retried(result: dg.ExecuteInProcessResult) -> bool:
    return any(event.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY for event in result.all_events)


def tags_of(desk: Desk, result: dg.ExecuteInProcessResult) -> dict[str, str]:
    run = desk.instance.get_run_by_id(result.run_id)
    assert run is not None
    return dict(run.tags)


def test_a_refused_key_fails_at_once_with_its_exit_code_and_cause_and_is_retried_by_nothing(desk: Desk) -> None:
    desk.api_key = "sk-revoked-9999"
    result = desk.run()
    description, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == ("refused by the service", 3)
    assert "9999" in description
    assert "sk-revoked" not in description
    assert "EVENT_API_KEY" in told["what would help"]
    assert description.endswith(f"what would help: {told['what would help']}")
    assert not is_retried(result)
    assert tags_of(desk, result)[RETRY_TAG] == "false"
    error = next(event for event in result.all_events if event.is_step_failure).step_failure_data.error
    assert (error and error.cause and error.cause.cls_name) == "KeyRefusedError"


def test_a_lost_column_stops_like_a_brake_and_names_the_nearest(desk: Desk) -> None:
    desk.source(["1,Evening,2031-05-01,19:30,concert"], header=HEADER.replace("TITLE", "TITEL"))
    result = desk.run()
    description, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == ("stopped by a brake", 5)
    assert '"TITLE" (closest: "TITEL")' in description
    assert tags_of(desk, result)[RETRY_TAG] == "false"
    assert desk.posts() == 0


def test_a_feed_held_by_another_run_is_left_at_once_and_may_be_run_again_later(desk: Desk) -> None:
    (feed,) = load_folder(desk.folder / "feeds").feeds
    with open_context(desk.settings) as workshop, workshop.lease(feed, "the other run", is_patient=False):
        result = desk.run()
    description, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == ("held by another run", 4)
    assert "the other run" in description
    assert not is_retried(result)
    assert RETRY_TAG not in tags_of(desk, result)


def test_a_pause_longer_than_the_feed_waits_ends_the_run_as_paused_and_leaves_the_rows_owed(desk: Desk) -> None:
    desk.run(RunOptions(stage_only=True))
    desk.switch(rate_events="1/h", retry_after="absurd")
    result = desk.run(RunOptions(publish_only=True))
    said, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == ("paused", 6)
    assert "asks us to pause for 365 days: longer than this feed's patience (15 min)" in said
    assert RETRY_TAG not in tags_of(desk, result)
    assert desk.book(result.run_id).publish.pending == 9  # type: ignore[union-attr]


def test_a_source_that_is_not_there_is_a_failure_of_staging_and_nothing_is_published(desk: Desk) -> None:
    (desk.folder / "events.csv").unlink()
    result = desk.run()
    description, told = failure_of(result)
    assert "events.csv" in description
    assert told["exit_code"] == 2
    assert not materialized(result)


def test_a_damaged_state_db_fails_the_run_before_anything_is_sent(desk: Desk) -> None:
    (desk.folder / "state").mkdir()
    (desk.folder / "state" / "state.db").write_bytes(b"this is no database, and long enough to be looked at " * 40)
    description, told = failure_of(desk.run())
    assert "is damaged" in description
    assert told["exit_code"] == 2
    assert desk.posts() == 0


class FaultyStore(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A driver that fails as no driver should."""

    protocol = "faulty"

    def info(self, path: str, **_: object) -> dict[str, object]:
        raise ZeroDivisionError(path)


def test_a_fault_of_ours_is_reported_with_its_cause_and_retried_by_nothing(desk: Desk) -> None:
    fsspec.register_implementation("faulty", FaultyStore, clobber=True)
    feed = desk.mapping()
    feed.write_text(feed.read_text("utf-8").replace("../events.csv", "faulty://store/events.csv"), "utf-8")
    result = desk.run()
    description, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == ("failed", 1)
    assert "a fault of eventsync while staging: ZeroDivisionError" in description
    assert f"please report it: run {result.run_id}, eventsync " in description
    assert not is_retried(result)
    assert tags_of(desk, result)[RETRY_TAG] == "false"
    assert desk.book(result.run_id).exit_code == 1
