"""The pace that workers share: who is there, one change at a time, on both databases."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine
from unit.state.world import Clock

from state.database import open_database
from state.pace import PRESENCE_S, PaceBook, SharedPace

ROUTE = "POST /events"


def book(engine: Engine, worker: str, clock: Clock | None = None, route: str = ROUTE) -> PaceBook:
    return PaceBook(engine, "https://events.example 1a2b", route, worker, clock or Clock())


def test_workers_of_a_route_see_one_another_until_they_leave(engine: Engine) -> None:
    first, second = book(engine, "first"), book(engine, "second")
    assert first.meet().others == 0
    assert second.meet().others == 1
    assert first.meet().others == 1
    second.leave()
    assert first.meet().others == 0


def test_another_route_is_another_company(engine: Engine) -> None:
    book(engine, "first").meet()
    assert book(engine, "second", route="POST /media").meet().others == 0


def test_a_worker_that_dies_leaves_nothing_behind(tmp_path: Path) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path / 'state.db'}"), Clock()
    book(engine, "dead", clock).meet()
    clock.turn(seconds=PRESENCE_S + 0.1)
    assert book(engine, "alive", clock).meet().others == 0
    engine.dispose()


@pytest.mark.parametrize(("how", "others"), [("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 0), ("input()", 1)])
def test_a_process_that_was_killed_is_forgotten_at_once(engine: Engine, how: str, others: int) -> None:
    told = "from state.holders import this_process; print(this_process('worker'), flush=True)"
    command = [sys.executable, "-c", f"{told}\n{how}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = process.stdout.readline().strip()
        book(engine, worker).meet()
        process.wait() if not others else None
        assert book(engine, "alive").meet().others == others
        process.kill()


def test_what_one_has_learned_the_others_read(engine: Engine) -> None:
    assert book(engine, "first").look().text == ""
    put = book(engine, "first").change(lambda _: "learned")
    seen = book(engine, "second").look()
    assert (seen.text, seen.version) == ("learned", put.version)
    assert seen.now_s >= put.now_s == put.written_s == seen.written_s


def test_changes_at_the_same_time_lose_nothing(engine: Engine) -> None:
    def longer(there: SharedPace) -> str:
        return there.text + "x"

    def work(worker: str) -> None:
        for _ in range(20):
            book(engine, worker).change(longer)

    threads = [threading.Thread(target=work, args=(f"worker {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = book(engine, "last").look()
    assert (len(seen.text), seen.version) == (80, 80)
