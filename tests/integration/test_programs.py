"""A feed that a program feeds: kill -9 of the program, of the run and of both, and each row is sent once all the same."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from integration.desk import FEED, HEADER, Command, Desk, evenings, lines
from integration.service import Service
from integration.waiting import has_ended, until

ROWS = 40
TOKEN = "tok-5ecret-0f-0urs"
TAP = f"""\
#!{sys.executable} -S
import json, os, sys, time
config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
state = json.load(open(sys.argv[sys.argv.index("--state") + 1])) if "--state" in sys.argv else {{"done": 0}}
records = [json.loads(line) for line in open("records.json")]
print(json.dumps({{"type": "SCHEMA", "stream": "events", "key_properties": ["ID"], "schema": {{"properties": {{}}}}}}))
for number, record in enumerate(records[state["done"] :]):
    print(json.dumps({{"type": "RECORD", "stream": "events", "record": record}}), flush=True)
    if number == len(records) // 2 and os.path.exists("hold"):
        open(f"{{os.getpid()}}.tap", "w").close()
        print("waiting with", config["token"], file=sys.stderr, flush=True)
        time.sleep(600)
print(json.dumps({{"type": "STATE", "value": {{"done": len(records)}}}}))
"""
SOURCE = """\
  kind: command
  run: [../tap, --config, "{config}"]
  resume: [--state, "{state}"]
  config: OURS
  speaks: singer
  stream: events
"""
pytestmark = pytest.mark.slow


@pytest.fixture
def tapped(desk: Desk) -> Iterator[Desk]:
    desk.mapping()
    desk.edit("  kind: csv\n  path: ../events.csv\n", SOURCE)
    desk.env |= {"EVENTSYNC_ALLOW_COMMANDS": "1", "TAP_OURS": json.dumps({"token": TOKEN})}
    tap = desk.folder / "tap"
    tap.write_text(TAP, "utf-8")
    tap.chmod(0o755)
    _hold(desk, ROWS)
    yield desk
    assert TOKEN.encode() not in desk.written()


def _hold(desk: Desk, rows: int) -> None:
    names = HEADER.split(",")
    records = (json.dumps(dict(zip(names, one.split(","), strict=True))) for one in lines(rows))
    (desk.folder / "feeds" / "records.json").write_text("\n".join(records), "utf-8")
    (desk.folder / "feeds" / "hold").touch()


def _mid_way(desk: Desk) -> tuple[Command, int]:
    """Start a run, and wait until its tap waits in the middle of its rows; return the tap's process as well."""
    run = desk.start_run()
    until(lambda: run.has_ended or list(_taps(desk)), what="the tap")
    (pid,) = _taps(desk)
    return run, pid


def _taps(desk: Desk) -> list[int]:
    return [int(path.stem) for path in Path(desk.folder / "feeds").glob("*.tap")]


def _assert_sent_once(desk: Desk, service: Service) -> None:
    (desk.folder / "feeds" / "hold").unlink()
    desk.run(code=0)
    assert service.titles() == evenings(ROWS)
    assert desk.run(code=0).run["read"]["read"] == 0
    assert len(service.requests()) == ROWS


@pytest.mark.parametrize("killed", ["the tap", "the run", "both"])
def test_a_kill_in_the_middle_of_a_read_loses_nothing_doubles_nothing_and_leaves_no_process(
    tapped: Desk, service: Service, killed: str
) -> None:
    run, pid = _mid_way(tapped)
    tap = psutil.Process(pid)
    words = " ".join(word for each in (psutil.Process(run.pid), *tap.parents()[:1], tap) for word in each.cmdline())
    assert (TOKEN in words, "/dev/fd/" in words) == (False, True)
    if killed != "the run":
        os.kill(pid, signal.SIGKILL)
    if killed != "the tap":
        run.signal(signal.SIGKILL)
    said = run.ended()
    until(lambda: has_ended(pid), what="the end of the tap")
    if killed == "the tap":
        assert "(Killed): waiting with [key]" in said.words
    assert service.requests() == []
    _assert_sent_once(tapped, service)


def test_a_run_that_is_asked_to_stop_ends_its_tap(tapped: Desk, service: Service) -> None:
    run, pid = _mid_way(tapped)
    run.signal(signal.SIGTERM)
    assert run.ended().code == 130
    assert has_ended(pid)
    _assert_sent_once(tapped, service)


def test_without_leave_a_check_says_so_and_a_run_starts_nothing(tapped: Desk) -> None:
    tapped.env.pop("EVENTSYNC_ALLOW_COMMANDS")
    said = tapped.command("check", FEED, code=0)
    assert "feeds/town.yaml:4:8: this feed starts a program: EVENTSYNC_ALLOW_COMMANDS is not 1" in said.words
    tapped.run(code=2).assert_told(2, "EVENTSYNC_ALLOW_COMMANDS")
    assert not list(_taps(tapped))
    with suppress(FileNotFoundError):
        (tapped.folder / "feeds" / "hold").unlink()
    for words in (("preview", FEED), ("explain", FEED, "3"), ("check", FEED, "--live")):
        assert "Evening 3" in tapped.command(*words, EVENTSYNC_ALLOW_COMMANDS="1").words or words[0] == "check"
