"""Cover images on their way: what the service's answers mean for the image, for its row, and for the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import httpx
import pytest
from pictures import png
from sqlalchemy import Engine
from unit.connectors_api.wired import api_over, created, intent, told
from unit.pipelines.publishing import covers_from, published
from unit.state.world import World, row
from virtual_time import at_once

from mappings.delivery import Answer, Blocked, Cover, Postponed, Receipt, Refusal, Superseded, Verdict
from pipelines.run.images import EventBody, names_cover
from state.notes import MediaMemory

ROW = replace(intent(), body=b'{"title":"x"}')
Answers = Callable[[httpx.Request], httpx.Response]
Fates = list[EventBody | Refusal | Postponed]


@pytest.fixture
def memory(engine: Engine) -> MediaMemory:
    return MediaMemory(engine, "https://events.example.org#tests")


def dressed(memory: MediaMemory, service: Answers, *covers: Cover) -> tuple[Fates, list[httpx.Request]]:
    """Prepare one row for each cover, in turn."""
    requests: list[httpx.Request] = []

    async def wire(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return service(request)

    async def main() -> Fates:
        api, http = api_over(wire)
        images = covers_from(memory)
        async with http:
            fates = [await images.prepare(api, ROW, cover) for cover in covers]
            await images.close()
        return fates

    return at_once(main), requests


def at(number: int) -> Cover:
    return Cover(f"https://img.example/{number}", "omit")


def test_an_upload_whose_answer_is_lost_for_good_is_done_again_under_a_next_key(memory: MediaMemory) -> None:
    used: set[str] = set()

    def refuses_reuse(request: httpx.Request) -> httpx.Response:
        key = request.headers["idempotency-key"]
        if key in used:
            return told(409, "conflict")
        used.add(key)
        if len(used) == 1:
            raise httpx.ReadTimeout("lost")
        return httpx.Response(201, json={"doc": {"id": 9}})

    fates, requests = dressed(memory, refuses_reuse, at(1))
    assert fates == [EventBody(b'{"coverImage":9,"title":"x"}')]
    assert (len(used), len({request.content for request in requests})) == (2, 1)


def test_a_key_that_is_always_used_ends_in_the_rows_choice_and_names_the_image(memory: MediaMemory) -> None:
    (fate,), requests = dressed(memory, lambda _: told(409, "conflict"), at(1))
    assert isinstance(fate, EventBody)
    assert fate.missing is not None
    assert (fate.body, fate.missing.found) == (b'{"title":"x"}', "https://img.example/1")
    assert "uploaded before" in fate.missing.hint
    assert len({request.headers["idempotency-key"] for request in requests}) == 3


def lists_or(answer: httpx.Response) -> Answers:
    """A service that answers so to uploads, and has a list of classifications."""
    listed = httpx.Response(200, json={"version": "2026-01-01", "docs": []})
    return lambda request: listed if request.url.path.endswith("/classifications") else answer


def stumbles(request: httpx.Request) -> httpx.Response:
    """Fail for one image only."""
    is_third = png(40, 3) in request.content
    return told(500, "internal_error") if is_third else lists_or(httpx.Response(201, json={"doc": {"id": 9}}))(request)


@pytest.mark.parametrize(
    ("service", "kinds"),
    [
        (stumbles, "EEE"),
        (lambda _: httpx.Response(503), "P"),
        (lists_or(httpx.Response(500)), "EEPP"),
        (lambda _: told(401, "invalid_api_key"), "P"),
        (lambda _: httpx.Response(302, headers={"location": "https://x.example/"}), "P"),
    ],
    ids=["one that it cannot digest", "it is down", "all are refused: an outage of their route", "the key", "the address"],
)
def test_a_row_waits_for_its_image_where_the_service_is_to_blame_and_goes_without_it_where_the_image_is(
    memory: MediaMemory, service: Answers, kinds: str
) -> None:
    fates, _ = dressed(memory, service, *(at(number) for number in range(1, len(kinds) + 1)))
    assert "".join(type(fate).__name__[0] for fate in fates) == kinds
    assert [isinstance(fate, EventBody) and fate.missing is not None for fate in fates[1:2]] in ([], [True])
    postponed = [fate for fate in fates if isinstance(fate, Postponed)]
    assert all((one.attempts, one.copies) == (0, 0) for one in postponed)


@pytest.mark.parametrize(
    ("verdict", "is_named"),
    [
        (Refusal(Answer(400, field="coverImage", issue="no media doc has the id 7")), True),
        (Refusal(Answer(422, field="body/coverImage", issue="unknown")), True),
        (Refusal(Answer(400, message="the cover image does not exist")), True),
        (Superseded(Answer(400, field="coverImage", issue="does not exist")), True),
        (Superseded(Answer(409, code="conflict")), False),
        (Blocked(Answer(404, code="not_found", field="coverImage")), True),
        (Refusal(Answer(400, field="title", issue="the coverImage is fine, the title is not")), False),
        (Refusal(Answer(400, issue="too long")), False),
        (Blocked(Answer(404, code="not_found", message="no such channel")), False),
        (Refusal(Answer(0, field="coverImage"), attempts=0), False),
        (Receipt(1, Answer(201)), False),
    ],
)
def test_only_a_refusal_that_names_the_cover_image_is_about_it(verdict: Verdict, is_named: bool) -> None:
    assert names_cover(verdict) is is_named


@dataclass
class Forgetful:
    """A service that has lost the images below `first`, and takes others while `is_open`; it remembers the keys of uploads.

    `stores`: it remembers refusals as well.
    """

    stores: bool
    first: int = 1
    uploaded: dict[str, int] = field(default_factory=dict)
    is_open: bool = True
    stored: dict[str, httpx.Response] = field(default_factory=dict)
    events: list[int] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        route, key = request.url.path.rpartition("/")[2], request.headers.get("idempotency-key", "")
        if route == "media" and self.is_open:
            return httpx.Response(201, json={"doc": {"id": self.uploaded.setdefault(key, 1 + len(self.uploaded))}})
        if route != "events":
            return told(503, "internal_error")
        cover = json.loads(request.content)["coverImage"]
        if key not in self.stored and cover >= self.first:
            self.events.append(cover)
            return created(len(self.events))
        refusal = told(400, "invalid_request", request_id=f"req-{key}", field="coverImage", issue="does not exist")
        return self.stored.setdefault(key, refusal) if self.stores else refusal


def test_an_image_that_is_always_called_gone_is_uploaded_once_more_and_no_more_often(world: World) -> None:
    service = Forgetful(stores=False, first=1_000)
    world.stage([row(key, cover=at(1)) for key in "abc"])
    for _ in range(3):
        published(world, service, in_flight=1)
    assert (len(service.uploaded), set(world.states().values())) == (2, {"refused"})


@pytest.mark.parametrize("stores", [False, True])
def test_a_row_whose_image_is_gone_waits_for_it_while_no_image_can_be_uploaded_and_goes_out_as_its_source_says_then(
    world: World, stores: bool
) -> None:
    service = Forgetful(stores)
    world.stage([row("a", cover=at(1))])
    published(world, service, in_flight=2)
    service.first, service.is_open = 2, False
    world.stage([row("a", cover=at(1)), row("b", cover=at(1))])
    for _ in range(2):
        published(world, service, in_flight=2)
        entry = world.known("b")
        assert (entry.state, entry.attempts, entry.unanswered_at) == ("pending", 0, None)
    world.stage([row("a", cover=at(1)), row("b", "corrected", cover=at(1))])
    service.is_open = True
    published(world, service, in_flight=2)
    assert service.events == [1, 2]
    assert world.states() == {"a": "delivered", "b": "delivered"}
    entry = world.known("b")
    assert (entry.revision, b"corrected" in entry.body, entry.drift_kind) == (int(stores), True, None)
