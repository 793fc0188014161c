"""How a run fails in Dagster: with outcome, exit code, cause and help; tried again by nothing where that would be in vain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dagster as dg
import fsspec
import pytest
from fsspec.spec import AbstractFileSystem
from on_dagster.desk import HEADER, MAPPING, Desk, failure_of, line, materialized

from mappings.yaml.loader import load_folder
from pipelines.run.context import open_context
from pipelines.run.options import RunOptions

RETRY_TAG = "dagster/retry_on_asset_or_op_failure"


def retried(desk: Desk, result: dg.ExecuteInProcessResult) -> tuple[bool, str]:
    """Whether a step was tried again, and what the run's tag says of it."""
    run, events = desk.instance.get_run_by_id(result.run_id), {event.event_type for event in result.all_events}
    return dg.DagsterEventType.STEP_UP_FOR_RETRY in events, run.tags.get(RETRY_TAG, "") if run else "no run"


def revoke_the_key(desk: Desk) -> None:
    desk.api_key = "sk-revoked-9999"


def damage_the_state_db(desk: Desk) -> None:
    (desk.folder / "state").mkdir()
    (desk.folder / "state" / "state.db").write_bytes(b"this is no database, and long enough to be looked at " * 40)


class FaultyStore(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A driver that fails as no driver should."""

    protocol = "faulty"

    def info(self, path: str, **_: object) -> dict[str, object]:
        raise ZeroDivisionError(path)


def take_a_faulty_driver(desk: Desk) -> None:
    fsspec.register_implementation("faulty", FaultyStore, clobber=True)
    desk.mapping(text=MAPPING.replace("../{source}", "faulty://store/events.csv"))


@pytest.mark.parametrize(
    ("break_it", "outcome", "code", "cause", "words"),
    [
        (revoke_the_key, "refused by the service", 3, "KeyRefusedError", ["9999", "EVENT_API_KEY"]),
        (
            lambda desk: desk.source([line(1)], HEADER.replace("TITLE", "TITEL")),
            "stopped by a brake",
            5,
            "MissingColumnsError",
            ['"TITLE" (closest: "TITEL")'],
        ),
        (lambda desk: (desk.folder / "events.csv").unlink(), "cannot go on", 2, "SourceRefusedError", ["events.csv"]),
        (damage_the_state_db, "cannot go on", 2, "StateDamagedError", ["is damaged"]),
        (take_a_faulty_driver, "failed", 1, "FaultError", ["while staging: ZeroDivisionError", "report it with: run "]),
    ],
)
def test_a_run_that_cannot_succeed_sends_nothing_says_why_and_is_retried_by_nothing(
    desk: Desk, break_it: Callable[[Desk], None], outcome: str, code: int, cause: str, words: Sequence[str]
) -> None:
    break_it(desk)
    result = desk.run()
    description, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == (outcome, code)
    assert [word for word in words if word not in description] == []
    assert description.endswith(f"what to do: {told['what to do']}")
    assert "sk-revoked" not in description
    error = next(event for event in result.all_events if event.is_step_failure).step_failure_data.error
    assert (error and error.cause and error.cause.cls_name) == cause
    assert retried(desk, result) == (False, "false")
    assert (materialized(result), desk.posts()) == (set(), 0)


def test_a_feed_held_by_another_run_is_left_at_once_and_may_be_run_again_later(desk: Desk) -> None:
    (feed,) = load_folder(desk.folder / "feeds").feeds
    with open_context(desk.settings) as workshop, workshop.lease(feed, "the other run", is_patient=False):
        result = desk.run()
    description, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == ("held by another run", 4)
    assert "the other run" in description
    assert retried(desk, result) == (False, "")


def test_a_pause_longer_than_the_feed_waits_ends_the_run_as_paused_and_leaves_the_rows_owed(desk: Desk) -> None:
    desk.run(RunOptions(stage_only=True))
    desk.switch(rate_events="1/h", retry_after="absurd")
    result = desk.run(RunOptions(publish_only=True))
    said, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == ("paused", 6)
    assert "asks us to pause for 365 days: longer than this feed's patience (15 min)" in said
    assert retried(desk, result) == (False, "")
    assert desk.book(result.run_id).publish.pending == 9  # type: ignore[union-attr]
