"""`eventsync` at a real terminal: what a person sees while something takes its time, and what Ctrl-C says then."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from integration.desk import FEED, Desk, lines
from integration.service import Service

pytestmark = pytest.mark.slow


def _interrupted_at_the_start(desk: Desk, *words: str) -> str:
    """Start a command as a person does, press Ctrl-C where it says what it waits for; return what the terminal showed."""
    screen, theirs = pty.openpty()
    command, env = [Path(sys.executable).with_name("eventsync"), *words], {**desk.env, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, cwd=desk.folder, env=env, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen, is_interrupted = "", False
    try:
        with suppress(OSError):  # the terminal, once the command has left it
            while shown := os.read(screen, 65536).decode("utf-8", "replace"):
                seen += shown
                if not is_interrupted and "starting Dagster" in seen:
                    process.send_signal(signal.SIGINT)
                    is_interrupted = True
        assert (is_interrupted, process.wait(60)) == (True, 130), seen
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    return seen


def test_a_run_says_that_it_waits_for_dagster_and_ctrl_c_ends_it_then(desk: Desk, service: Service) -> None:
    desk.source(lines(3))
    said = _interrupted_at_the_start(desk, "run", FEED)
    assert "running" not in said, "it is heard at once"
    assert "the state is intact" in said
    assert "Traceback" not in said
    assert service.titles() == []


def test_a_backfill_that_is_interrupted_so_early_leaves_its_slice_to_the_next(desk: Desk, service: Service) -> None:
    desk.source(lines(3))
    _interrupted_at_the_start(desk, "backfill", FEED, "--from", "2031-01-01", "--to", "2031-01-03", "--by", "event")
    assert service.titles() == []
    (backfill,) = desk.command("backfill", FEED, "--list", "--json").document["backfills"]
    assert backfill["left"] == len(backfill["slices"])
    assert {one["state"] for one in backfill["slices"]} == {"left"}
    desk.command("backfill", FEED, "--resume", "--no-dagster", code=0)
    assert len(service.titles()) == 3
