"""Several feeds at a time, each in a worker process: reports, exit codes, signals, and processes that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from integration.desk import Command, Desk, lines, shell_environ, untidy_runs
from integration.service import Service
from integration.waiting import pause, until
from lookalikes.dagster import dagster_webserver

pytestmark = pytest.mark.slow
FEEDS = ("a", "b", "c", "d", "e")
ZONES = dict(zip(FEEDS, ("Europe/Warsaw", "Europe/London", "Europe/Athens", "Asia/Tokyo", "America/New_York"), strict=True))
ROWS = 30
RUN_ALL = ("run", "--all", "--no-dagster", "--json", "--jobs")


@pytest.fixture
def five_feeds(desk: Desk) -> Desk:
    """Five feeds of the same rows, each with titles and times of its own."""
    (desk.folder / "feeds" / "town.yaml").unlink()
    for feed in FEEDS:
        desk.mapping(name=f"{feed}.yaml", feed=feed, title=f'{{join: [{{from: TITLE}}, " of {feed}"]}}', zone=ZONES[feed])
    desk.source(lines(ROWS))
    return desk


def _workers(run: Command) -> list[psutil.Process]:
    """The processes that run feeds: the fork server's children."""
    return [worker for server in psutil.Process(run.pid).children() for worker in server.children()]


def _mid_way(desk: Desk, service: Service, *, answer_delay_ms: int = 0) -> Command:
    """Start two feeds at a time, slowly, and wait until both are sending."""
    service.switch(latency_ms=1_500, answer_delay_ms=answer_delay_ms)
    run = desk.start(*RUN_ALL, "2")
    until(lambda: len({event["title"].rpartition(" ")[2] for event in service.events()}) == 2)
    return run


def _assert_all_sent(desk: Desk, service: Service) -> None:
    service.switch(latency_ms=0, answer_delay_ms=0)
    desk.command(*RUN_ALL, "3", code=0)
    assert len(service.titles()) == len(set(service.titles())) == ROWS * len(FEEDS)
    assert list(untidy_runs(desk)) == []


def test_every_feed_is_reported_in_the_folders_order_with_the_gravest_exit_code(five_feeds: Desk, service: Service) -> None:
    five_feeds.mapping(name="c.yaml", feed="c", title="{from: NO SUCH COLUMN}")
    (five_feeds.folder / "feeds" / "z.yaml").write_text("feed: z\n", "utf-8")
    said = five_feeds.command(*RUN_ALL, "3", code=2)
    assert [(run["feed"], run["exit_code"]) for run in said.document["runs"]] == [(f, 5 if f == "c" else 0) for f in FEEDS]
    assert "z.yaml" in said.err
    (five_feeds.folder / "feeds" / "z.yaml").unlink()
    five_feeds.mapping(name="c.yaml", feed="c", title='{join: [{from: TITLE}, " of c"]}', zone=ZONES["c"])
    _assert_all_sent(five_feeds, service)
    twice = five_feeds.command("run", "a", "a.yaml", "--no-dagster", "--json", "--jobs", "2", code=0)
    assert [run["feed"] for run in twice.document["runs"]] == ["a"]
    five_feeds.command("run", "a", "b", "--dry-run", "--jobs", "2").assert_told(2, "--dry-run and --jobs")


def test_a_report_goes_to_a_file_while_people_read_a_pipe(five_feeds: Desk, service: Service) -> None:
    report = five_feeds.folder / "report.json"
    command = [str(Path(sys.executable).parent / "eventsync"), *RUN_ALL, "2"]
    with report.open("w") as file:
        file.write("\n")  # as `>>` continues a file
        file.flush()
        environ = shell_environ(five_feeds.env)
        done = subprocess.run(command, env=environ, cwd=five_feeds.folder, stdout=file, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr
    assert [run["exit_code"] for run in json.loads(report.read_text())["runs"]] == [0] * len(FEEDS)
    assert len(service.titles()) == ROWS * len(FEEDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_stops_the_feeds_at_work_in_good_order_and_begins_no_other(
    five_feeds: Desk, service: Service, number: int
) -> None:
    run = _mid_way(five_feeds, service)
    if number == signal.SIGINT:
        os.killpg(run.pid, number)  # as a terminal does it
    else:
        for process in psutil.Process(run.pid).children(recursive=True):  # as systemd does it
            process.send_signal(number)
        run.signal(number)
    said = run.ended(130)
    assert [(one["feed"], one["outcome"]) for one in said.document["runs"]] == [("a", "interrupted"), ("b", "interrupted")]
    assert sum(one["publish"]["delivered"] for one in said.document["runs"]) == len(service.events()), "what was in flight counts"
    assert "3 feeds not begun" in said.err
    assert "Traceback" not in said.err
    _assert_all_sent(five_feeds, service)


def test_a_second_signal_leaves_at_once(five_feeds: Desk, service: Service) -> None:
    run = _mid_way(five_feeds, service, answer_delay_ms=60_000)
    workers = _workers(run)
    run.signal(signal.SIGINT)
    until(lambda: run.text(".err").count("in flight") == 2)
    assert not run.has_ended
    pause(0.2)
    run.signal(signal.SIGINT)
    said = run.ended(130, within_s=15)
    assert said.document["exit_code"] == 130
    assert psutil.wait_procs(workers, timeout=15)[1] == []
    _assert_all_sent(five_feeds, service)


def test_a_killed_worker_fails_its_feed_alone(five_feeds: Desk, service: Service) -> None:
    run = _mid_way(five_feeds, service)
    _workers(run)[0].kill()
    service.switch(latency_ms=0)
    said = run.ended(1)
    runs = said.document["runs"]
    (lost,) = (one for one in runs if one["exit_code"])
    assert (lost["outcome"], "has died" in lost["message"]) == ("failed", True)
    assert [one["publish"]["delivered"] for one in runs if one is not lost] == [ROWS] * 4
    until(lambda: five_feeds.command("run", lost["feed"], "--no-dagster", "--wait").code == 0)
    _assert_all_sent(five_feeds, service)


def test_workers_whose_parent_was_killed_stop_in_good_order(five_feeds: Desk, service: Service) -> None:
    run = _mid_way(five_feeds, service)
    workers = _workers(run)
    run.kill()
    assert psutil.wait_procs(workers, timeout=30)[1] == []
    assert 0 < len(service.events()) < 2 * ROWS
    told = five_feeds.command("runs", "--json").document["runs"]
    assert [one["outcome"] for one in told] == ["interrupted"] * 2
    _assert_all_sent(five_feeds, service)


def test_with_dagster_workers_create_the_instance_once_and_run_the_jobs_on_it(five_feeds: Desk) -> None:
    said = five_feeds.command("run", "--all", "--json", "--jobs", "2", code=0)
    assert [(run["feed"], run["publish"]["delivered"]) for run in said.document["runs"]] == [(feed, ROWS) for feed in FEEDS]
    assert all(run["dagster_run_id"] for run in five_feeds.command("runs", "--json").document["runs"])


def test_on_a_webserver_runs_are_launched_side_by_side(five_feeds: Desk) -> None:
    with dagster_webserver("STARTED") as webserver:
        run = five_feeds.start("run", "--all", "--json", "--jobs", "3", EVENTSYNC_DAGSTER_URL=webserver.url)
        until(lambda: len(webserver.followed) == 3, what="a look at three runs")
        run.signal(signal.SIGINT)
        said = run.ended(130)
    assert [(one["feed"], one["outcome"]) for one in said.document["runs"]] == [(feed, "interrupted") for feed in FEEDS[:3]]
    assert {one["run_id"] for one in said.document["runs"]} == webserver.followed


def test_a_feed_that_the_webserver_lacks_keeps_no_other_from_being_launched(five_feeds: Desk) -> None:
    lacking = FEEDS[1]
    with dagster_webserver("SUCCESS", lacking=lacking) as webserver:
        said = five_feeds.command("run", "--all", "--json", "--jobs", "2", code=1, EVENTSYNC_DAGSTER_URL=webserver.url)
    reports = {one["feed"]: (one["run_id"] in webserver.followed, one["message"]) for one in said.document["runs"]}
    assert list(reports) == list(FEEDS)
    assert [feed for feed in FEEDS if not reports[feed][0]] == [lacking]
    assert reports[lacking][1].startswith(f"Dagster refused to launch {lacking}: it has no such feed")


def test_a_webserver_that_has_not_loaded_a_new_file_yet_is_reloaded_before_its_run(five_feeds: Desk) -> None:
    with dagster_webserver("SUCCESS", lacking=FEEDS[1], is_behind=True) as webserver:
        said = five_feeds.command("run", "--all", "--json", code=1, EVENTSYNC_DAGSTER_URL=webserver.url)
    assert ({one["run_id"] for one in said.document["runs"]}, webserver.reloads) == (webserver.followed, 1)
