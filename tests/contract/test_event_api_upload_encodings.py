"""The encoding of an upload is not shown by the spec: the one that a service takes is found, also by uploads side by side."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

import httpx
import pytest
from unit.connectors_api.wired import api_over, told
from virtual_time import at_once

from connectors.event_api.media import Image, ImageProblem

Takes = Callable[[httpx.Request], bool]


def _image(number: int) -> Image:
    content = b"\x89PNG %d" % number
    return Image(content, "image/png", "png", hashlib.blake2b(content, digest_size=16).digest())


def _uploads(takes: Takes, images: int, told_field: str = "") -> tuple[list[int | ImageProblem], list[httpx.Request]]:
    """Upload so many images at once to a service that takes one encoding, and answers the first image long before the rest.

    `told_field`: where the service's page wants an image.
    """
    requests: list[httpx.Request] = []

    async def service(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        await asyncio.sleep(0.1 if request.headers["idempotency-key"].startswith("key-0") else 3.0)
        if takes(request):
            return httpx.Response(201, json={"doc": {"id": 9}})
        return told(400, "invalid_request", field="file", issue="missing")

    async def main() -> list[int | ImageProblem]:
        api, http = api_over(service)
        api.expect_upload_in(told_field)
        async with http:
            return await asyncio.gather(*(api.upload(_image(number), f"key-{number}") for number in range(images)))

    return at_once(main), requests


TAKES: dict[str, Takes] = {
    "a form with a file": lambda request: b'name="file"' in request.content,
    "the image itself": lambda request: request.headers["content-type"] == "image/png",
    "a form with an image": lambda request: b'name="image"' in request.content,
}


@pytest.mark.parametrize("takes", TAKES.values(), ids=TAKES.keys())
def test_uploads_side_by_side_all_find_the_encoding_that_the_service_takes(takes: Takes) -> None:
    ids, _ = _uploads(takes, images=5)
    assert ids == [9] * 5


@pytest.mark.parametrize("takes", TAKES.values(), ids=TAKES.keys())
def test_one_key_never_carries_two_bodies(takes: Takes) -> None:
    _, requests = _uploads(takes, images=5)
    sent = {(request.headers["idempotency-key"], request.content) for request in requests}
    assert len(sent) == len({key for key, _ in sent})


def test_an_image_that_no_encoding_carries_is_told_in_the_first_words_of_the_service() -> None:
    (problem,), requests = _uploads(lambda _: False, images=1)
    assert isinstance(problem, ImageProblem)
    assert "file: missing" in problem.reason
    assert len(requests) == 3


@pytest.mark.parametrize(
    ("field", "key"), [("media", "key-0-field"), ("files.image", "key-0-field"), ("file", "key-0"), ("image", "key-0-image")]
)
def test_the_field_that_the_page_shows_is_tried_first(field: str, key: str) -> None:
    ids, requests = _uploads(lambda request: f'name="{field}"'.encode() in request.content, 1, field)
    assert (ids, [request.headers["idempotency-key"] for request in requests]) == ([9], [key])


@pytest.mark.parametrize("takes", TAKES.values(), ids=TAKES.keys())
def test_a_page_that_shows_a_wrong_field_hinders_nothing(takes: Takes) -> None:
    ids, _ = _uploads(takes, 3, "picture")
    assert ids == [9] * 3


@pytest.mark.parametrize("field", ['a"; filename="b', "a\r\nx: y", "", "x" * 65])
def test_what_is_no_name_of_a_field_is_not_put_into_a_form(field: str) -> None:
    ids, requests = _uploads(TAKES["a form with a file"], 1, field)
    assert (ids, len(requests)) == ([9], 1)
