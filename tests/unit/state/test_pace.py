"""What workers know of a rate limit: one text for all of a route, changed by one at a time, on both databases."""

from __future__ import annotations

import threading

from sqlalchemy import Engine
from unit.state.world import Clock

from state.notes import SharedRate


def shared(engine: Engine, clock: Clock | None = None, route: str = "POST /events") -> SharedRate:
    return SharedRate(engine, "https://events.example 1a2b", route, clock or Clock())


def test_what_one_worker_has_learned_the_others_read_with_its_age(engine: Engine) -> None:
    clock = Clock()
    assert shared(engine, clock).read() == ("", 0.0)
    shared(engine, clock).change(lambda _text, _age_s: "learned")
    clock.turn(seconds=5)
    text, age_s = shared(engine, clock).read()
    assert text == "learned"
    assert age_s >= 0.0 if engine.dialect.name == "postgresql" else age_s == 5.0


def test_another_route_is_another_limit(engine: Engine) -> None:
    shared(engine).change(lambda _text, _age_s: "learned")
    assert shared(engine, route="POST /media").read()[0] == ""


def test_changes_at_the_same_time_lose_nothing(engine: Engine) -> None:
    def work() -> None:
        for _ in range(20):
            shared(engine).change(lambda text, _age_s: text + "x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shared(engine).read()[0]) == 80
