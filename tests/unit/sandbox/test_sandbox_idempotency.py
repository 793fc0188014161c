"""What a used Idempotency-Key is answered, in each of the behaviours that a service may have."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from unit.sandbox.bench import Bench, Event, Open

from sandbox.server import app_of
from sandbox.service import Environment, open_sandbox
from sandbox.switches import Switches


def test_the_same_request_again_gets_the_stored_answer_and_creates_nothing(bench: Bench, event: Event) -> None:
    first, second = bench.create(event, key="k1"), bench.create(event, key="k1")
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert len(bench.stored()) == 1
    assert [request["outcome"] for request in bench.requests()] == ["created", "replayed"]


def test_a_stored_refusal_is_replayed_with_its_request_id(bench: Bench, event: Event) -> None:
    wrong = event | {"title": ""}
    first, second = bench.create(wrong, key="k1"), bench.create(wrong, key="k1")
    assert (first.status_code, first.content) == (400, second.content)
    assert bench.create(event, key="k1").status_code == 409


def test_another_body_under_a_used_key_is_a_conflict_or_given_the_first_ones_answer(bench: Bench, event: Event) -> None:
    first, other = bench.create(event, key="k1"), event | {"title": "other"}
    answer = bench.create(other, key="k1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    bench.switch(idempotency_other_body="replay")
    assert bench.create(other, key="k1").content == first.content
    assert len(bench.stored()) == 1


def test_a_key_counts_for_one_api_key_and_one_route(bench: Bench, event: Event) -> None:
    bench.create(event, key="k1")
    assert bench.create(event, key="k1", **bench.as_key("sandbox-key-starter")).status_code == 201
    png = b"\x89PNG\r\n\x1a\n"
    upload = bench.http.post("/api/public/v1/media", content=png, headers={"Content-Type": "image/png", "Idempotency-Key": "k1"})
    assert upload.status_code == 201
    assert len(bench.stored()) == 2


@pytest.mark.parametrize(("word", "second", "kept"), [("refuse", 409, 1), ("ignore", 201, 2)])
def test_a_service_may_refuse_any_reuse_of_a_key_or_ignore_keys(
    open_bench: Open, event: Event, word: str, second: int, kept: int
) -> None:
    bench = open_bench(f"idempotency={word}")
    assert [bench.create(event, key="k1").status_code for _ in range(2)] == [201, second]
    assert [stored["idempotencyKey"] for stored in bench.stored()] == ["k1"] * kept


def test_a_key_is_forgotten_after_its_time(open_bench: Open, event: Event) -> None:
    bench = open_bench("idempotency_memory_s=60")
    bench.create(event, key="k1")
    bench.clock.now += 59
    bench.create(event, key="k1")
    assert len(bench.stored()) == 1
    bench.clock.now += 1
    assert bench.create(event | {"title": "other"}, key="k1").status_code == 201
    assert bench.create(event | {"title": "other"}, key="k1").status_code == 201
    assert len(bench.stored()) == 2


@pytest.mark.parametrize(("word", "refused", "denied"), [("none", 201, 201), ("validation", 409, 201), ("all", 409, 409)])
def test_which_refusals_use_up_a_key_is_a_switch(open_bench: Open, event: Event, word: str, refused: int, denied: int) -> None:
    bench = open_bench(f"stored_refusals={word}")
    bench.create(event | {"title": ""}, key="refused")
    assert bench.create(event, key="refused").status_code == refused
    bench.create(event | {"channelId": 105}, key="denied")
    assert bench.create(event, key="denied").status_code == denied


def test_a_401_a_403_for_the_scope_and_a_429_never_use_up_a_key(open_bench: Open, event: Event) -> None:
    bench = open_bench("rate_events=1/m", "stored_refusals=all")
    bench.create(event, key="k1", Authorization="Bearer wrong")
    bench.create(event)
    assert bench.create(event, key="k1").status_code == 429
    bench.clock.now += 60
    assert bench.create(event, key="k1").status_code == 201


@pytest.mark.parametrize(("key", "status"), [("x" * 20, 201), ("x" * 21, 400), (" ", 400)])
def test_a_key_that_is_blank_or_too_long_is_refused(open_bench: Open, event: Event, key: str, status: int) -> None:
    answer = open_bench("key_max_chars=20").create(event, key=key)
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error"]["details"]["field"] == "Idempotency-Key"


def answers_to_two_at_once(event: Event, switches: Switches) -> tuple[httpx.Response, httpx.Response, httpx.Response]:
    """Send one request, the same again while the first is in progress, and once more after it; return first, second, third."""

    async def scene() -> tuple[httpx.Response, httpx.Response, httpx.Response]:
        arrived, may_go_on = asyncio.Event(), asyncio.Event()

        async def sleep(_: float) -> None:
            arrived.set()
            await may_go_on.wait()

        app = app_of(open_sandbox(None, switches, "secret", Environment(sleep=sleep)))
        transport, headers = httpx.ASGITransport(app), {"Authorization": "Bearer secret", "Idempotency-Key": "k1"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http:
            first = asyncio.create_task(http.post("/api/public/v1/events", json=event))
            await arrived.wait()
            second = await http.post("/api/public/v1/events", json=event)
            may_go_on.set()
            answers = await first, second, await http.post("/api/public/v1/events", json=event)
        app.state.sandbox.close()
        return answers

    return asyncio.run(scene())


def test_while_the_first_request_is_in_progress_the_second_is_a_conflict(event: Event) -> None:
    first, second, third = answers_to_two_at_once(event, Switches(latency_ms=5))
    assert (first.status_code, second.status_code, third.status_code) == (201, 409, 201)
    assert first.content == third.content


def test_a_key_in_progress_names_a_time_where_that_is_switched_on(event: Event) -> None:
    switches = Switches(latency_ms=5, in_progress="retry_after", retry_after="fraction")
    _, second, _ = answers_to_two_at_once(event, switches)
    assert (second.status_code, second.headers["retry-after"]) == (409, "0.200")
