"""Being asked to stop, in every phase of a run: the exit code, the document, the books and the lease are as they should be,
and the next run goes on as if nothing had been.
"""

from __future__ import annotations

import os
import random
import re
import select
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
from integration.desk import FEED, Command, Desk, Said, evenings, line, lines, mid_way, untidy_runs
from integration.service import Service
from integration.waiting import pause, until
from lookalikes.dagster import RUN_ID, dagster_webserver
from lookalikes.demo import FEEDS, running_places
from lookalikes.sheets import Fault
from sqlalchemy import select as rows_of

from state.database import writing
from state.tables import LEASE

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
each_signal = pytest.mark.parametrize("number", STOPPING, ids=lambda number: number.name)
pytestmark = pytest.mark.slow
PROMPT_S = 15.0
"""Less than the grace of 20 s and than any wait that a signal cuts short here."""


def _stop(run: Command, number: int = signal.SIGTERM, *, is_prompt: bool = True) -> Said:
    """Ask a command to stop; `is_prompt`: there is nothing that it may wait for."""
    began = monotonic()
    run.signal(number)
    said = run.ended()
    assert not is_prompt or monotonic() - began < PROMPT_S
    return said


def _assert_stopped(desk: Desk, said: Said) -> None:
    assert said.code == 130, said.words
    assert (said.run["outcome"], said.run["exit_code"]) == ("interrupted", 130)
    assert "Traceback" not in said.err
    assert desk.command("runs", "--json").document["runs"][0]["outcome"] == "interrupted"
    assert list(untidy_runs(desk)) == []
    assert desk.books.holders() == []


def _assert_all_sent(desk: Desk, service: Service, rows: int) -> None:
    service.switch(latency_ms=0, answer_delay_ms=0)
    desk.run_with(lines(rows), code=0)
    assert service.titles() == evenings(rows)


@contextmanager
def _unanswered(deaf: socket.socket) -> Iterator[None]:
    """Wait for a request, and leave it without an answer. A connection alone may be that of a process of another test."""
    while True:
        until(lambda: select.select([deaf], [], [], 0)[0], what="a connection")
        connection, _ = deaf.accept()
        with connection:
            if select.select([connection], [], [], PROMPT_S)[0] and connection.recv(1, socket.MSG_PEEK):
                pause(0.5)  # Python misses a signal that comes just before it waits in the kernel
                yield
                return


RUN_NOW = ("run", FEED, "--no-dagster", "--json")
WAITING: dict[str, tuple[tuple[str, ...], bool, int]] = {
    "a run for the lists of the service": (RUN_NOW, False, signal.SIGINT),
    **{f"a run for its source, {number.name}": (RUN_NOW, True, number) for number in STOPPING},
    "a run in Dagster for its source": (("run", FEED, "--json"), True, signal.SIGHUP),
    "a rehearsal for its source": ((*RUN_NOW, "--dry-run"), True, signal.SIGINT),
    "a check for the service": (("check", "--live", "--json"), False, signal.SIGTERM),
}


@pytest.mark.parametrize(("words", "is_source", "number"), WAITING.values(), ids=WAITING)
def test_while_it_waits_for_an_answer_that_never_comes(
    desk: Desk, service: Service, words: tuple[str, ...], is_source: bool, number: int
) -> None:
    desk.source(lines(5))
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        if is_source:
            desk.edit("../events.csv", f"{address}/events.csv")
        else:
            desk.point_to(address)
        run = desk.start(*words)
        with _unanswered(deaf):
            said = _stop(run, number)
    if words[0] == "check":
        assert (said.code, said.document["error"]["message"].startswith("interrupted")) == (130, True), said.words
    elif "--dry-run" in words:
        assert (said.code, said.document["rehearsals"][0]["outcome"]) == (130, "interrupted"), said.words
    else:
        _assert_stopped(desk, said)
        assert "staging" in said.run["message"]
    assert service.requests() == []
    desk.mapping()
    desk.point_to(service)
    _assert_all_sent(desk, service, 5)


def test_while_rows_are_staged(desk: Desk, service: Service) -> None:
    desk.source(lines(40_000))
    run = desk.start_run()
    until(lambda: run.has_ended or desk.books.has_rows())
    said = _stop(run, signal.SIGTERM, is_prompt=False)
    _assert_stopped(desk, said)
    assert said.run["read"]["read"] < 40_000
    assert service.requests() == []
    _assert_all_sent(desk, service, 5)


@each_signal
def test_while_events_are_sent(any_desk: Desk, service: Service, number: int) -> None:
    said = _stop(mid_way(any_desk, service, 150), number, is_prompt=False)
    _assert_stopped(any_desk, said)
    assert "stopping: " in said.err
    assert "in flight, up to 20 s; press Ctrl-C again to quit at once" in said.err
    account, left = said.run["publish"], Counter(any_desk.states().values())
    assert account["delivered"] == len(service.events()) == left["delivered"], "what was in flight was waited for"
    assert account["pending"] == left["pending"] > 0
    _assert_all_sent(any_desk, service, 150)
    assert service.outcomes() == {"created": 150}


def test_a_run_that_the_service_made_pause_leaves_at_once_and_limits_alone_start_no_clock(desk: Desk, service: Service) -> None:
    desk.source(lines(60))
    service.switch(rate_events="1/m", rate_burst=5)
    run = desk.start_run()
    until(lambda: any(request["status"] == 429 for request in service.requests()))
    pause(0.2)
    said = _stop(run)
    _assert_stopped(desk, said)
    assert "stopping: 0 requests in flight" in said.err
    rows = [row for row in desk.books.rows() if row.state == "pending"]
    assert len(rows) == 60 - len(service.events())
    assert [row for row in rows if row.copies] == [], "none that was answered 429 may have created its event"


def test_while_it_waits_for_another_run(desk: Desk, service: Service) -> None:
    first = mid_way(desk, service, 10, after=0, latency_ms=2_000)
    second = desk.start_run("--wait")
    until(lambda: "waiting" in second.text(".err"))
    said = _stop(second)
    assert said.code == 130, said.words
    assert "waiting for the feed" in said.run["message"]
    assert first.ended().code == 0
    assert sorted(run["outcome"] for run in desk.command("runs", "--json").document["runs"]) == ["done", "interrupted"]
    assert list(untidy_runs(desk)) == []
    assert service.outcomes() == {"created": 10}


def test_at_any_moment_there_is_one_document_and_the_next_run_goes_on(desk: Desk, service: Service) -> None:
    desk.source(lines(400))
    service.switch(latency_ms=5)
    dice = random.Random(7)  # where to strike
    for number in range(8):
        run = desk.start_run()
        until(lambda run=run: run.base.with_suffix(".err").exists())  # type: ignore[misc]  # mypy knows no bound default
        pause(0.05 + dice.uniform(0, 1.2))
        said = _stop(run, STOPPING[number % 3], is_prompt=False)
        assert said.code in {0, 130}, said.words
        # One that was struck before it had begun has no account to give: the error is its document.
        assert said.document.get("exit_code", 130) == said.code
        assert "exit_code" in said.document or "interrupted" in said.document["error"]["message"]
        assert "Traceback" not in said.err
        assert desk.books.holders() == []
        desk.source([*lines(400), *(line(400 + more) for more in range(number))])
    _assert_all_sent(desk, service, 407)
    assert list(untidy_runs(desk)) == []


def test_a_second_ctrl_c_leaves_at_once_with_a_document(desk: Desk, service: Service) -> None:
    desk.source(lines(100))
    service.switch(answer_delay_ms=60_000)
    run = desk.start_run()
    until(service.events)
    run.signal(signal.SIGINT)
    until(lambda: re.search(r"stopping: \d+ requests? in flight", run.text(".err")))
    assert not run.has_ended, "the first one waits for what is in flight"
    pause(0.2)
    said = _stop(run, signal.SIGINT)
    _assert_stopped(desk, said)
    _assert_all_sent(desk, service, 100)
    assert [len(bodies) for bodies in service.bodies().values()] == [1] * 100, "what had no answer was asked for as it was"


def test_a_terminals_ctrl_c_that_arrives_twice_at_once_is_one(desk: Desk, service: Service) -> None:
    desk.source(lines(50))
    service.switch(latency_ms=700)
    run = desk.start_run()
    until(lambda: any(row.attempts for row in desk.books.rows()))
    pause(0.1)
    os.killpg(run.pid, signal.SIGINT)
    run.signal(signal.SIGINT)
    said = run.ended()
    _assert_stopped(desk, said)
    assert said.run["publish"]["delivered"] == len(service.events()) > 0, "what was in flight was waited for"


def test_a_run_that_hangs_in_a_locked_state_db_is_gone_after_the_second_signal_all_the_same(
    any_desk: Desk, service: Service
) -> None:
    run = mid_way(any_desk, service, 200, after=0, latency_ms=100)
    with writing(any_desk.books.engine) as connection:
        connection.execute(rows_of(LEASE.c.token).with_for_update())
        pause(0.3)
        run.signal(signal.SIGINT)
        pause(0.3)
        said = _stop(run, signal.SIGINT)
    assert said.code == 130, said.words
    assert said.document["exit_code"] == 130
    _assert_all_sent(any_desk, service, 200)


def test_after_one_of_several_feeds_the_next_is_not_begun(desk: Desk, service: Service) -> None:
    desk.mapping(name="zoo.yaml", feed="zoo-nights", title='{join: [{from: TITLE}, " at the zoo"]}')
    desk.source(lines(100))
    service.switch(latency_ms=500)
    run = desk.start("run", "--all", "--no-dagster", "--json")
    until(service.requests)
    said = _stop(run, signal.SIGINT, is_prompt=False)
    assert said.code == 130
    assert [one["feed"] for one in said.document["runs"]] == [FEED]


def test_while_it_follows_a_run_on_a_webserver_that_run_goes_on(desk: Desk) -> None:
    desk.source(lines(5))
    with dagster_webserver("STARTED") as webserver:
        run = desk.start("run", "--all", "--json", EVENTSYNC_DAGSTER_URL=webserver.url)
        until(lambda: webserver.is_followed, what="a look at the run")
        said = _stop(run, signal.SIGINT, is_prompt=False)
    assert said.code == 130, said.words
    assert (said.run["outcome"], said.run["run_id"]) == ("interrupted", RUN_ID)
    assert f"{webserver.url}/runs/{RUN_ID}" in said.run["hint"]
    assert "Ctrl-C" not in said.err


def test_a_run_on_a_webserver_says_where_it_runs_and_what_ctrl_c_ends(desk: Desk) -> None:
    desk.source(lines(5))
    with dagster_webserver("STARTED") as webserver:
        run = desk.start("run", FEED, EVENTSYNC_DAGSTER_URL=webserver.url)
        until(lambda: webserver.is_followed, what="a look at the run")
        said = _stop(run, signal.SIGINT, is_prompt=False)
    assert f"{FEED}: runs in Dagster: {webserver.url}/runs/{RUN_ID}; Ctrl-C ends only this command" in said.err


def test_while_it_waits_for_a_busy_sheet_and_the_next_run_writes_there(desk: Desk, tmp_path: Path) -> None:
    words = ("run", "demo-sheet", "--no-dagster", "--json")
    shutil.copy(FEEDS / "demo-sheet.yaml", desk.folder / "feeds")
    with running_places(tmp_path / "access") as places:
        desk.env.update(places.environ)
        busy = Fault(where="batchUpdate", status=429, headers={"Retry-After": "90"}, times=99)
        places.google.faults.append(busy)
        run = desk.start(*words)
        until(lambda: busy.times < 99, what="the first request that writes")
        said = _stop(run)
        assert (said.code, said.run["outcome"]) == (0, "done"), said.words
        (page,) = desk.books.runs(limit=9)
        assert desk.books.holders() == []
        assert (page.outcome, page.publish and page.publish.delivered) == ("done", 5)
        assert "the run was asked to stop" in " ".join(page.notices)

        places.google.faults.clear()
        desk.command(*words, code=0)
        assert ("0101", "published") in [(row["ID"], row["Status"]) for row in places.said()]
