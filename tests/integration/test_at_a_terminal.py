"""`eventsync` at a real terminal: what a person sees while something takes its time, and what Ctrl-C says then."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from integration.desk import FEED, Desk, lines
from integration.service import Service

pytestmark = pytest.mark.slow


class Terminal:
    """A command whose stderr is a terminal; its stdout goes to nobody."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process, self.seen, self._screen = process, "", screen

    def until(self, words: str) -> None:
        """Watch until the words have come; fail at the end of the command."""
        while words not in self.seen:
            shown = self._read()
            assert shown, f"{words!r} never came: {self.seen}"
            self.seen += shown

    def ended(self) -> int:
        """Watch to the end; return the exit code."""
        while shown := self._read():
            self.seen += shown
        return self.process.wait(60)

    def _read(self) -> str:
        with suppress(OSError):  # a terminal that everybody has left
            return os.read(self._screen, 65536).decode("utf-8", "replace")
        return ""


@contextmanager
def at_a_terminal(desk: Desk, *words: str) -> Iterator[Terminal]:
    """Start a command of the desk as a person does."""
    screen, theirs = pty.openpty()
    command = [Path(sys.executable).with_name("eventsync"), *words]
    env = {**desk.env, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, cwd=desk.folder, env=env, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    try:
        yield Terminal(process, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def test_a_run_says_that_it_waits_for_dagster_and_ctrl_c_ends_it_then(desk: Desk, service: Service) -> None:
    desk.source(lines(3))
    with at_a_terminal(desk, "run", FEED) as terminal:
        terminal.until("starting Dagster")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130, terminal.seen
    assert "running" not in terminal.seen, "it is heard at once"
    assert "the state is intact" in terminal.seen
    assert "Traceback" not in terminal.seen
    assert service.titles() == []


def test_a_backfill_that_is_interrupted_so_early_leaves_its_slice_to_the_next(desk: Desk, service: Service) -> None:
    desk.source(lines(3))
    with at_a_terminal(desk, "backfill", FEED, "--from", "2031-01-01", "--to", "2031-01-03", "--by", "event") as terminal:
        terminal.until("starting Dagster")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130, terminal.seen
    assert service.titles() == []
    (backfill,) = desk.command("backfill", FEED, "--list", "--json").document["backfills"]
    assert backfill["left"] == len(backfill["slices"])
    assert {one["state"] for one in backfill["slices"]} == {"left"}
    desk.command("backfill", FEED, "--resume", "--no-dagster", code=0)
    assert len(service.titles()) == 3
