"""What holds for every test: the environment of whoever runs it is not part of it."""

import os
import signal
from collections.abc import Iterator

import pytest
from postgres import Postgres, postgres_server
from profiles import load_profile

OURS = ("EVENT_API_", "EVENTSYNC_", "DAGSTER_")
KEPT = ("EVENTSYNC_TEST_",)


def pytest_configure() -> None:
    """Search for the same examples every time, unless told otherwise; and hear Ctrl-C, as processes of a terminal do.

    A shell's job in the background is born without, and so are its children.
    """
    load_profile()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Half as many workers again as cores: many tests wait for a service's pause, a process's start or the disk."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a parallel run the longest come first, and what starts nothing comes last.

    The first worker begins with what waits for processes while the others are busy with the rest, which it gives away from
    its end; and no run ends with a long test on one worker and nothing on the others.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -max((mark.kwargs.get("about_s", 1) for mark in item.iter_markers("slow")), default=0))


@pytest.fixture(autouse=True)
def _nobodys_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out settings of ours and of terminals: a worker of a parallel run has a width, a terminal of 80 columns has not."""
    for name in list(os.environ):
        if (name.startswith(OURS) and not name.startswith(KEPT)) or name in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, started by the first test that asks for one."""
    with postgres_server() as server:
        yield server
