"""Feeds that share a schedule: one run for all that are due, with accounts, checks and a failure of its own for each."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._grpc.types import ExecuteRunArgs
from integration.desk import shell_environ
from lookalikes.notices import webhook
from on_dagster.desk import HEADER, MAPPING, Desk, desk_in, ended, metadata_of, schedules_of_feeds, until
from on_dagster.test_notices_sensor import Told

from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.orchestration import names
from pipelines.orchestration.automation import FEWEST_FEEDS, MOST_FEEDS, MOST_ROWS
from pipelines.orchestration.metadata import PUBLISH_CHECKS
from pipelines.orchestration.run_tags import feed_tags
from pipelines.run.context import open_context
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.run.options import BRAKE_TEXTS, RunOptions
from state.queries import LedgerQueries, RunRecord

SCHEDULE = "due_feeds_15_xby2_x_x_x_Europe_Warsaw"
FEEDS = [f"hall-{number}" for number in range(FEWEST_FEEDS)]
AWAY, BRAKED, HELD, BROKEN = "hall-3", "hall-7", "hall-11", "hall-15"
SOME = ("hall-0", AWAY, BRAKED, HELD, BROKEN, "hall-19")
"""Enough of them where a run is executed: each feed of it takes half a second."""
CALM = MAPPING.replace("schedule: {{", "schedule: {{alone: true, ")


@pytest.fixture
def halls(tmp_path: Path, home: dg.DagsterInstance, request: pytest.FixtureRequest) -> Iterator[Desk]:
    """As many feeds as share a schedule, with three good rows each."""
    with desk_in(tmp_path, home, warm=partial(request.getfixturevalue, "warm")) as made:
        for feed in FEEDS:
            made.mapping(feed, source=f"{feed}.csv")
            write_rows(made, feed)
        yield made


def write_rows(desk: Desk, feed: str, *, count: int = 3, day: str = "2031-05-01") -> None:
    lines = [f"{number},{feed} night {number},{day},19:30,concert" for number in range(count)]
    (desk.folder / f"{feed}.csv").write_text("\n".join([HEADER, *lines]) + "\n", "utf-8")


def tick(desk: Desk) -> list[dg.RunRequest]:
    """The runs that the shared schedule asks for."""
    schedule = desk.definitions().resolve_schedule_def(SCHEDULE)
    with dg.build_schedule_context(instance=desk.instance) as context:
        return list(schedule.evaluate_tick(context).run_requests or ())


def feeds_of(request: dg.RunRequest) -> list[str]:
    return list(dict.fromkeys(key.path[0] for key in request.asset_selection or ()))


def run(desk: Desk, request: dg.RunRequest, *feeds: str) -> dg.ExecuteInProcessResult:
    """Run what is asked for, or these feeds of it."""
    job = desk.definitions().resolve_job_def(names.JOB)
    assert request.asset_check_keys == []
    selection = {key for key in request.asset_selection or () if not feeds or key.path[0] in feeds}
    tags = {names.LAUNCHED_BY_TAG: request.tags[names.LAUNCHED_BY_TAG], **feed_tags(feeds)} if feeds else request.tags
    own = job.get_subset(asset_selection=selection, asset_check_selection=set())
    return own.execute_in_process(instance=desk.instance, tags=tags, raise_on_error=False)


def failures(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """What each failed step says, by its feed."""
    failed = [event for event in result.all_events if event.is_step_failure]
    told = {str(event.step_key): event.step_failure_data.user_failure_data for event in failed}
    steps = ((feed, names.step_of(FeedName(feed), phase)) for feed in FEEDS for phase in names.PHASES)
    return {feed: one.description or "" for feed, step in steps if (one := told.get(step))}


def evaluated(desk: Desk, feed: str, asset: str) -> dict[str, bool]:
    """Whether each check of an asset passed last time, as its page shows."""
    key = dg.AssetKey([feed, asset])
    keys = [dg.AssetCheckKey(key, name) for name in (BRAKE_TEXTS if asset == "staged" else PUBLISH_CHECKS)]
    found = desk.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    return {one.name: record.status.value == "SUCCEEDED" for one, record in found.items()}


def test_each_of_the_feeds_of_a_run_has_its_own_accounts_checks_and_failure(halls: Desk) -> None:
    assert schedules_of_feeds(halls.definitions()) == [], "the feeds have none of their own"
    (halls.folder / f"{AWAY}.csv").unlink()
    write_rows(halls, BRAKED, day="someday")
    (request,) = tick(halls)
    assert feeds_of(request) == sorted(FEEDS)
    assert request.tags[names.FEEDS_TAG] == str(len(FEEDS)), "the list of runs hides their names"
    job = (
        halls.definitions()
        .resolve_job_def(names.JOB)
        .get_subset(asset_selection=set(request.asset_selection or ()), asset_check_selection=set())
    )
    halls.instance.create_run_for_job(job, tags=request.tags, status=dg.DagsterRunStatus.STARTING)
    assert tick(halls) == [], "a run of these feeds is starting"
    halls.mapping(BROKEN, source=f"{BROKEN}.csv", text=MAPPING.replace("title:", "titel:"))
    with open_context(halls.settings) as context, context.lease(load(halls, HELD), "run 7, launched by cli", is_patient=False):
        result = run(halls, request, *SOME)
    said = failures(result)
    causes = {AWAY: "there is no file", BRAKED: "3 of 3 rows rejected", HELD: "is held by run 7", BROKEN: "titel"}
    assert {feed: text for feed, text in said.items() if causes.get(feed, "no other") not in text} == {}
    assert said.keys() == causes.keys()
    delivered = [feed for feed in SOME if feed not in said]
    assert halls.titles() == sorted(f"{feed} night {number}" for feed in delivered for number in range(3))
    shown = {feed: metadata_of(result, "published", feed)["delivered events"].value for feed in delivered}
    online = {event["title"]: event["id"] for event in halls.events()}
    assert shown == {feed: sorted(online[f"{feed} night {number}"] for number in range(3)) for feed in delivered}
    for feed in delivered:
        book = halls.book(result.run_id, feed=feed)
        assert (book.outcome, book.launched_by, book.publish and book.publish.delivered) == ("done", "schedule", 3)
    assert evaluated(halls, "hall-0", "published") == dict.fromkeys(PUBLISH_CHECKS, True)
    assert evaluated(halls, BRAKED, "staged") == {name: name != "rejected" for name in BRAKE_TEXTS if name != "left_out"}
    assert evaluated(halls, BRAKED, "published") == evaluated(halls, AWAY, "staged") == {}
    records = halls.instance.get_asset_records([dg.AssetKey([AWAY, "staged"])])
    assert [one.asset_entry.last_run_id for one in records] == [result.run_id], "its page shows that this run failed"
    code, out, err = ended(halls.start("runs", result.run_id, "--json"))
    assert (code, sorted(one["feed"] for one in json.loads(out)["runs"])) == (0, sorted({*SOME} - {BROKEN})), err


def test_an_owner_is_told_of_the_feeds_that_failed_and_of_no_other_and_a_second_run_sends_nothing(halls: Desk) -> None:
    (halls.folder / f"{AWAY}.csv").unlink()
    (request,) = tick(halls)
    run(halls, request, AWAY, BRAKED, HELD)
    sent = halls.posts()
    assert sent == 3 * 2
    with webhook() as hook:
        told = Told(halls, hook)
        told.tick()
        (message,) = hook.told
        assert hook.titles() == [f"{AWAY}: its configuration has a mistake"]
        assert [feed for feed in FEEDS if feed in message.body] == [AWAY]
        write_rows(halls, AWAY, count=1)
        (again,) = tick(halls)
        assert run(halls, again, AWAY, BRAKED).success
        assert told.heard() == [f"{AWAY}: resolved"]
    assert halls.posts() == sent + 1


def test_a_re_execution_that_fails_notifies_the_owner_of_its_feed_alone(halls: Desk) -> None:
    (halls.folder / f"{AWAY}.csv").unlink()
    (request,) = tick(halls)
    first, step = run(halls, request, AWAY, BRAKED), names.step_of(FeedName(AWAY), "staged")
    chain = {"parent_run_id": first.run_id, "root_run_id": first.run_id}
    again = dg.DagsterRun(names.JOB, str(uuid4()), tags=request.tags, step_keys_to_execute=[step], **chain)
    halls.instance.add_run(again)
    halls.instance.report_run_failed(again, "it failed again")
    with webhook() as hook:
        Told(halls, hook).tick()
        assert [feed for feed in FEEDS if feed in hook.told[0].body] == [AWAY]


def test_slow_feeds_run_alone_and_many_small_ones_in_several_runs_of_like_size(halls: Desk) -> None:
    many = [f"room-{number}" for number in range(MOST_FEEDS)]
    for feed in many:
        halls.mapping(feed, source="hall-0.csv")
    halls.mapping("calm", source="hall-0.csv", text=CALM)
    write_rows(halls, "hall-5", count=MOST_ROWS + 1)
    with open_context(halls.settings) as context:
        FeedRun(context, load(halls, "hall-5"), RunIdentity("large", "cli"), RunOptions(stage_only=True)).run()
    definitions = halls.definitions()
    assert schedules_of_feeds(definitions) == ["sync_calm_schedule"], "it asked to be alone"
    tags = {names.FEED_TAG: "hall-6", names.LAUNCHED_BY_TAG: "backfill"}
    job = definitions.resolve_job_def(names.JOB).get_subset(asset_selection={dg.AssetKey(["hall-6", "staged"])})
    halls.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    large, waiting, *small = tick(halls)
    assert (feeds_of(large), large.tags[names.FEED_TAG]) == (["hall-5"], "hall-5")
    assert feeds_of(waiting) == ["hall-6"], "it may have to wait for a slice of the backfill"
    assert sorted(feed for one in small for feed in feeds_of(one)) == sorted({*FEEDS, *many} - {"hall-5", "hall-6"})
    assert [len(feeds_of(one)) for one in small] == [34, 34]


@pytest.mark.slow(about_s=40)
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_the_next_tick_continues_a_run_that_was_stopped_in_the_middle(halls: Desk, ending: signal.Signals) -> None:
    (request,) = tick(halls)
    halls.switch(answer_delay_ms=300)
    worker = started(halls, request)
    until(lambda: halls.posts() > 6 or worker.poll() is not None, what="the third feed")
    worker.send_signal(ending)
    worker.communicate(timeout=60)
    (stopped,) = halls.instance.get_runs()
    if ending == signal.SIGKILL:
        assert stopped.status is dg.DagsterRunStatus.STARTED, "Dagster does not find out where its launcher has no health checks"
        assert tick(halls), "no process holds the leases"
        (stopped,) = halls.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    done = {feed for feed in FEEDS if (book := book_of(halls, stopped.run_id, feed)) and book.outcome == "done"}
    assert 0 < len(done) < len(FEEDS)
    assert halls.posts() <= 3 * len(done) + 3, "those not begun are not sent"
    with webhook() as hook:
        Told(halls, hook).tick()
        told = {feed for message in hook.told for feed in re.findall(r"hall-\d+", message.body)}
    halls.switch(answer_delay_ms=0)
    (request,) = tick(halls)
    assert feeds_of(request) == sorted(FEEDS)
    begun = {event["title"].partition(" ")[0] for event in halls.events()}
    further = {*sorted(begun), *sorted({*FEEDS} - begun)[:2]} - {*sorted(done)[1:]}
    assert run(halls, request, *further).success
    assert halls.titles() == sorted(f"{feed} night {number}" for feed in done | further for number in range(3))
    assert all(len(bodies) == 1 for bodies in halls.bodies().values())
    missed = set(FEEDS) - done if ending == signal.SIGKILL else set()
    assert missed <= told
    assert len(told - missed) <= 1, "the one at work, which had just ended"


def started(desk: Desk, request: dg.RunRequest) -> subprocess.Popen[bytes]:
    """Start a process for a run of several feeds."""
    job = ReconstructableRepository.for_module("pipelines.definitions", "defs").get_reconstructable_job(names.JOB)
    environ = shell_environ({**desk.environ, "DAGSTER_HOME": str(desk.folder / "home")})
    made = desk.instance.create_run_for_job(
        desk.definitions().resolve_job_def(names.JOB),
        asset_selection=frozenset(request.asset_selection or ()),
        tags=request.tags,
        job_code_origin=job.get_python_origin(),
    )
    words = ExecuteRunArgs(job.get_python_origin(), made.run_id, desk.instance.get_ref()).get_command_args()
    return subprocess.Popen(
        [Path(sys.executable).with_name("dagster"), *words[1:]],
        cwd=desk.folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def load(desk: Desk, feed: str) -> FeedMapping:
    return load_feed(desk.folder / "feeds" / f"{feed}.yaml", folders=(desk.folder,))


def book_of(desk: Desk, run_id: str, feed: str) -> RunRecord | None:
    with open_context(desk.settings) as context:
        return LedgerQueries(context.engine).run(desk.settings.destination, FeedName(feed), run_id)
