"""A run of a feed in Dagster: numbers, tables, checks, brakes and options; how it fails, and what is tried again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg
import fsspec
import pytest
import yaml
from fsspec.spec import AbstractFileSystem
from on_dagster.desk import FEED, HEADER, MAPPING, Desk, checks_of, failure_of, line, materialized, metadata_of

from mappings.yaml.loader import load_folder
from pipelines.orchestration import names
from pipelines.orchestration.run_tags import feeds_of
from pipelines.run.context import open_context
from pipelines.run.options import BRAKE_TEXTS, RunOptions

BAD = "31 May 2031"


def rows(good: int, bad: int = 0, *, day: str = BAD) -> list[str]:
    """Good rows, then those of a bad day."""
    return [line(number, **({} if number < good else {"day": day})) for number in range(good + bad)]


def numbers(told: Mapping[str, dg.MetadataValue[Any]], *names: str) -> tuple[Any, ...]:
    """The numbers of these names; a count of zero may be left out."""
    return tuple(told[name].value if name in told else 0 for name in names)


def test_a_run_publishes_every_row_once_and_tells_both_accounts_as_numbers(desk: Desk) -> None:
    result = desk.run()
    assert result.success
    staged, published = metadata_of(result, "staged"), metadata_of(result, "published")
    assert isinstance(staged["new"], dg.IntMetadataValue)
    assert numbers(staged, "read", "new", "rejected", "dagster/row_count") == (10, 10, 0, 10)
    assert numbers(published, "new", "delivered", "pending", "rejected") == (10, 10, 0, 0)
    assert "conflict" not in published
    assert isinstance(published["rows per second"], dg.FloatMetadataValue)
    checks = checks_of(result)
    assert set(checks) == {*BRAKE_TEXTS, "drift", "within_limits", "contract"} - {"left_out"}
    assert all(check.passed for check in checks.values())
    book = desk.book(result.run_id)
    assert (book.dagster_run_id, book.outcome, book.exit_code) == (result.run_id, "done", 0)
    again = desk.run()
    assert numbers(metadata_of(again, "staged"), "unchanged", "new") == (10, 0)
    assert numbers(metadata_of(again, "published"), "delivered") == (0,)
    assert (again.success, len(desk.events()), desk.posts()) == (True, 10, 10)


def test_a_run_writes_at_most_28_events_also_if_nothing_has_changed(desk: Desk) -> None:
    counts = [len(desk.instance.get_records_for_run(desk.run().run_id).records) for _ in range(2)]
    assert max(counts) <= 28, counts


def test_a_count_once_shown_stays_in_the_plots_as_zero_and_one_that_was_always_zero_is_nowhere(desk: Desk) -> None:
    desk.source([*rows(9), line(3)])
    assert metadata_of(desk.run(), "staged")["duplicate"].value == 1
    desk.source(rows(9))
    for _ in range(2):
        result = desk.run()
        staged = metadata_of(result, "staged")
        assert staged["duplicate"].value == 0
        assert "held" not in staged
        observed = {event.asset_key for event in result.get_asset_observation_events()}
        assert observed == {dg.AssetKey([FEED, "source"])}, "an event between two materializations breaks the lines of a plot"


def test_a_run_tells_what_it_has_seen_of_the_source(desk: Desk) -> None:
    seen = observed(desk.run())
    assert (seen["rows"].value, seen["dagster/row_count"].value, seen["read"].value) == (10, 10, "all rows")
    assert isinstance(seen["rows per second"], dg.FloatMetadataValue)


def observed(result: dg.ExecuteInProcessResult) -> Mapping[str, dg.MetadataValue[Any]]:
    (event,) = (one for one in result.get_asset_observation_events() if one.asset_key == dg.AssetKey([FEED, "source"]))
    return event.asset_observation_data.asset_observation.metadata


def test_to_observe_a_source_is_a_glance_that_neither_reads_nor_sends(desk: Desk) -> None:
    job = dg.define_asset_job("look", selection=[dg.AssetKey([FEED, "source"])])
    with_job = dg.Definitions.merge(desk.definitions(), dg.Definitions(jobs=[job]))
    result = with_job.resolve_job_def("look").execute_in_process(instance=desk.instance)
    assert observed(result)["files"].value == 1
    assert desk.look("/requests")["requests"] == []


def test_what_was_delivered_and_has_changed_is_a_number_a_table_with_places_and_a_warning(desk: Desk) -> None:
    before = desk.run()
    assert metadata_of(before, "published")["changed"] == dg.MetadataValue.int(0)
    desk.source([line(3, day="2031-06-01"), *map(line, (0, 1, 2, 4, 5, 6, 7, 8))])
    result = desk.run()
    assert result.success
    published = metadata_of(result, "published")
    assert numbers(published, "changed", "waiting: vanished", "waiting for a person") == (1, 1, 1)
    table = published["differs from what was delivered"]
    assert isinstance(table, dg.TableMetadataValue)
    changed, gone = (record.data for record in table.records)
    assert (changed["place"], changed["what"], changed["fields"]) == ("events.csv:2", "edited", "startAt")
    assert (gone["row key"], gone["what"]) == ("9", "vanished")
    drift = checks_of(result)["drift"]
    assert (drift.passed, drift.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "1 changed and 1 gone" in (drift.description or "")


def test_rejected_rows_are_shown_in_a_short_table_with_place_problem_and_hint(desk: Desk) -> None:
    desk.source(rows(400, 50))
    staged = metadata_of(desk.run(), "staged")
    table = staged["rejected rows"]
    assert isinstance(table, dg.TableMetadataValue)
    assert (staged["rejected"].value, len(table.records)) == (50, 20)
    row = table.records[0].data
    assert (row["place"], row["column"], row["found"]) == ("events.csv:402", "DAY", BAD)
    assert "date" in str(row["problem"])
    assert "2026-03-31" in str(row["problem"]), "written as the partner would write it"
    assert row["hint for the mapping"] == 'write it like "2026-03-31"', "for the engineer"


def test_dagster_keeps_nothing_of_a_cell_that_a_terminal_obeys(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[35m\x9b31m\u202e\b evil"
    desk.mapping(
        text=MAPPING.replace("key: [ID]", 'key: [ID]\nrows: [{{skip: {{column: DAY, equals: x}}, because: "\\e[35mx"}}]')
    )
    desk.source([*rows(10, 1, day=hostile), line(11, day="x")])
    result = desk.run()
    table = metadata_of(result, "staged")["rejected rows"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["found"] for record in table.records] == ["\u241b[35m\ufffd31m\ufffd\u2408 evil"]
    desk.source(rows(10, 20, day=hostile))
    stopped = desk.run()
    desk.mapping(text=MAPPING.replace("from: TITLE", 'from: "TITLE\\e[35m\\u202e"'))
    failed = desk.run()
    assert (stopped.success, failed.success) == (False, False)
    for each in (result, stopped, failed):
        kept = [dg.serialize_value(record.event_log_entry) for record in desk.instance.get_records_for_run(each.run_id).records]
        assert not [text for text in kept if re.search(r"\\u(?:001b|009b|202e)|\\b|[\x1b\x9b\u202e\b]", text)]
    assert "\u202e" not in capfd.readouterr().err


@pytest.fixture
def braked(desk: Desk) -> Desk:
    desk.source(rows(7, 3))
    return desk


def test_a_brake_stops_the_run_before_anything_is_sent_and_nothing_tries_it_again(braked: Desk) -> None:
    result = braked.run()
    assert not result.success
    assert materialized(result) == {"staged"}
    rejected = checks_of(result)["rejected"]
    assert (rejected.passed, rejected.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "3 of 10 rows rejected (30.0%; the feed allows 20.0%" in (rejected.description or "")
    assert numbers(metadata_of(result, "staged"), "waiting: rejected", "waiting: earlier", "still_refused") == (3, 0, 0)
    book = braked.book(result.run_id)
    assert (book.outcome, book.exit_code) == ("stopped by a brake", 5)
    assert "--accept rejected" in book.message
    description, shown = failure_of(result)
    accepting = shown["to accept it, in the launchpad"]
    assert description == f"{book.message}\nto accept it, in the launchpad: {accepting}"
    assert rejected.metadata["to accept it, in the launchpad"].value == accepting
    assert rejected.metadata["what to do"].value == shown["what to do"]
    assert braked.instance.get_run_by_id(result.run_id).tags["dagster/retry_on_asset_or_op_failure"] == "false"  # type: ignore[union-attr]
    assert braked.posts() == 0
    assert braked.run_configured(yaml.safe_load(accepting)).success


def test_what_a_brake_held_is_published_alone_only_once_it_is_accepted(braked: Desk) -> None:
    braked.run()
    (braked.folder / "events.csv").unlink()
    description, told = failure_of(braked.run(RunOptions(publish_only=True)))
    assert "stopped by rejected" in description
    assert (told["exit_code"], braked.posts()) == (5, 0)
    result = braked.run(RunOptions(publish_only=True, accept=("rejected",)))
    assert result.success, failure_of(result)
    assert (materialized(result), len(braked.events())) == ({"published"}, 7)


def test_a_source_that_is_away_fails_the_run_once_what_is_staged_was_sent(desk: Desk) -> None:
    desk.run(RunOptions(stage_only=True))
    (desk.folder / "events.csv").unlink()
    result = desk.run()
    assert (result.success, materialized(result), len(desk.events())) == (False, set(), 10)
    book = desk.book(result.run_id)
    assert ("there is no file" in book.message, book.exit_code, book.publish and book.publish.delivered) == (True, 2, 10)
    assert failure_of(result)[0] == book.message


def configured(**options: object) -> dict[str, object]:
    return {"resources": {names.OPTIONS: {"config": options}}}


def test_a_brake_that_is_accepted_warns_and_lets_the_good_rows_through(braked: Desk) -> None:
    result = braked.run_configured(configured(accept=list(BRAKE_TEXTS)))
    rejected = checks_of(result)["rejected"]
    assert (result.success, len(braked.events())) == (True, 7)
    assert (rejected.passed, rejected.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_the_options_of_the_launchpad_reach_the_run(desk: Desk) -> None:
    staged = desk.run(RunOptions(stage_only=True))
    assert (materialized(staged), desk.posts()) == ({"staged"}, 0)
    result = desk.run(RunOptions(limit=2, keys=("2", "5", "7"), status="draft"))
    assert numbers(metadata_of(result, "published"), "delivered", "pending") == (2, 8)
    assert {(event["title"], event["status"]) for event in desk.events()} == {("Evening 2", "draft"), ("Evening 5", "draft")}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accept": ["everything"]}, "accept.0: Input should be 'rejected', 'shrink'"),
        ({"limit": -3}, "limit: Input should be greater than or equal to 1"),
        ({"publish_only": True, "full": True}, "full and window cannot be combined with publish_only"),
    ],
)
def test_an_option_that_cannot_be_used_fails_the_run_before_anything_is_read_and_says_why(
    desk: Desk, options: Mapping[str, object], words: str
) -> None:
    result = desk.run_configured(configured(**options))
    assert (result.success, materialized(result), (desk.folder / "state").exists()) == (False, set(), False)
    error = next(event for event in result.all_events if event.is_run_failure).job_failure_data.error
    assert error is not None
    assert f"the run's options cannot be used: {words}" in error.message


def test_an_announced_refusal_is_a_warning_of_its_own_check_and_blocks_nothing(desk: Desk) -> None:
    desk.switch(contract="new_required_field", contract_rules="as_specified")
    result = desk.run()
    check = checks_of(result)["contract"]
    assert (result.success, len(desk.events())) == (True, 10)
    assert (check.passed, check.severity, check.blocking) == (False, dg.AssetCheckSeverity.WARN, False)
    (notice,) = desk.book(result.run_id).notices
    for text in (check.description or "", notice):
        assert "`organizer` is required" in text


def test_a_changed_list_of_classifications_is_shown_with_what_was_staged(desk: Desk) -> None:
    assert "notices" not in metadata_of(desk.run(), "staged")
    desk.switch(classification_list="revised")
    notices = metadata_of(desk.run(), "staged")["notices"]
    assert "changed from 2026-03-02 to 2026-10-01" in str(notices.value)


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


@pytest.mark.parametrize(("asset", "check"), [("staged", "rejected"), ("published", "drift")])
def test_a_check_that_is_executed_alone_reads_and_sends_nothing_and_says_what_to_do(desk: Desk, asset: str, check: str) -> None:
    key = dg.AssetKey([FEED, asset])
    job = desk.definitions().resolve_implicit_global_asset_job_def()
    alone = job.get_subset(asset_check_selection={dg.AssetCheckKey(key, check)})
    result = alone.execute_in_process(instance=desk.instance, raise_on_error=False)
    assert f"Materialize {asset} instead" in failure_of(result)[0]
    assert (materialized(result), desk.posts(), (desk.folder / "state").exists()) == (set(), 0, False)


def test_a_run_of_assets_from_their_pages_is_known_as_a_run_of_their_feeds(desk: Desk) -> None:
    desk.mapping("night-walks")
    job = desk.definitions().resolve_implicit_global_asset_job_def()
    for feeds in ([FEED], ["night-walks", FEED]):
        selected = [dg.AssetKey([feed, "staged"]) for feed in feeds]
        result = job.execute_in_process(instance=desk.instance, asset_selection=selected, raise_on_error=False)
        run = desk.instance.get_run_by_id(result.run_id)
        assert run is not None
        assert sorted(feeds_of(run)) == sorted(feeds), "a tick is skipped meanwhile, and its owner notified"
        assert run.tags.get(names.FEED_TAG) == (FEED if feeds == [FEED] else None)
