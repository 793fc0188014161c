"""What holds for every test: the environment of the person who runs it is not part of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import psutil
import pytest
import structlog
from hypothesis import settings
from postgres import Postgres, shared_server, stop_shared_server

if TYPE_CHECKING:
    from integration.desk import WarmStart
    from unit.state.world import World

OURS = ("EVENT_API_", "EVENTSYNC_", "DAGSTER_")
KEPT = ("EVENTSYNC_TEST_",)


class Stopping:
    """Ends the whole run at Ctrl-C or SIGTERM, in good order: fixtures end what they started.

    Code under test may take a signal and go on, as a command does that stops its run; therefore the run ends after that
    test. A worker of a parallel run gets the signal from the controller and perhaps from the terminal too: the second one
    must not cut its fixtures short.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._is_worker = hasattr(config, "workerinput")
        self._has_workers = config.pluginmanager.has_plugin("dsession")
        self._is_asked = False

    def hear(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_asked and self._is_worker:
            return
        self._is_asked = True
        raise KeyboardInterrupt

    def listen(self) -> None:
        """Take the signals (back): also SIGINT, which a shell's job in the background is born without."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.hear)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self.listen()
        done = yield
        if self._is_asked:
            raise KeyboardInterrupt
        return done

    def pytest_keyboard_interrupt(self) -> None:
        """Pass the signal on to the workers."""
        for child in psutil.Process().children() if self._has_workers else []:
            with suppress(psutil.NoSuchProcess):
                child.terminate()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Search for the same examples every time, or for others where that is asked for, and answer signals."""
    settings.register_profile("steady", derandomize=True, database=None, print_blob=True, deadline=None)
    settings.register_profile("hunt", derandomize=False, print_blob=True, deadline=None)
    settings.load_profile(os.environ.get("EVENTSYNC_TEST_PROFILE", "steady"))
    stopping = Stopping(config)
    stopping.listen()
    config.pluginmanager.register(stopping)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`auto`: two workers for each core, as many tests wait for a pause, a process's start or the disk; `logical`: one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if config.option.numprocesses == "logical" else 2 * cores


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a parallel run the longest come first, and what starts nothing comes last.

    The first worker begins with what waits for processes while the others are busy with the rest, which it gives away from
    its end; and no run ends with a long test on one worker and nothing on the others.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -max((mark.kwargs.get("about_s", 1) for mark in item.iter_markers("slow")), default=0))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out settings of ours and of terminals: a worker of a parallel run has a width, a terminal of 80 columns has not."""
    for name in list(os.environ):
        if (name.startswith(OURS) and not name.startswith(KEPT)) or name in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _unconfigured_logs() -> None:
    """Forget the logs of the test before: each command configures its own, and so does a fault where none has."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    """A PostgreSQL server, started by the first test that asks for one."""
    return shared_server()


def pytest_sessionfinish() -> None:
    stop_shared_server()


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmStart]:
    """The process that forks commands, one for each test process."""
    from integration.desk import WarmStart  # noqa: PLC0415  # most tests need neither it nor what it imports

    with closing(WarmStart()) as started:
        yield started


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A feed's small world in a state DB of its own."""
    from unit.state.world import World  # noqa: PLC0415  # likewise

    made = World(tmp_path / "state.db")
    yield made
    made.engine.dispose()
