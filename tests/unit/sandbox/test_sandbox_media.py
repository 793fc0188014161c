"""POST /media: what counts as an image, how it may be sent, and where it is shown."""

from __future__ import annotations

import httpx
import pytest
from unit.sandbox.bench import Bench, Event, Open

MEDIA = "/api/public/v1/media"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"\0" * 20,
    "image/gif": b"GIF89a" + b"\0" * 20,
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 ",
}


def raw(bench: Bench, image: bytes, declared: str = "image/png", **headers: str) -> httpx.Response:
    return bench.http.post(MEDIA, content=image, headers={"Content-Type": declared, **headers})


def form(bench: Bench, image: bytes, field: str = "file", **headers: str) -> httpx.Response:
    return bench.http.post(MEDIA, files={field: ("cover.bin", image)}, headers=headers)


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_is_recognised_by_its_content_and_shown_as_such(bench: Bench, kind: str) -> None:
    number = raw(bench, IMAGES[kind], "image/x-whatever").json()["doc"]["id"]
    shown = bench.http.get(f"/media/{number}")
    assert (shown.content, shown.headers["content-type"]) == (IMAGES[kind], kind)
    assert shown.headers["x-content-type-options"] == "nosniff"


def test_an_uploaded_image_can_be_a_cover(bench: Bench, event: Event) -> None:
    number = form(bench, PNG).json()["doc"]["id"]
    assert bench.create(event | {"coverImage": number}).status_code == 201
    assert f'src="/media/{number}"' in bench.http.get("/channels/city-agenda").text


@pytest.mark.parametrize("content", [b"", b"<svg/>", b"RIFF....WAVE", b"%PDF-1.7"])
def test_what_is_no_image_is_refused(bench: Bench, content: bytes) -> None:
    answers = [raw(bench, content), form(bench, content)]
    assert [answer.status_code for answer in answers] == [400, 400]


@pytest.mark.parametrize(
    ("word", "raw_status", "form_status"),
    [("any", 201, 201), ("raw", 201, 415), ("multipart", 415, 201)],
)
def test_the_accepted_encodings_are_a_switch(open_bench: Open, word: str, raw_status: int, form_status: int) -> None:
    bench = open_bench(f"media_encoding={word}")
    assert (raw(bench, PNG).status_code, form(bench, PNG).status_code) == (raw_status, form_status)


def test_the_name_of_the_field_is_a_switch(open_bench: Open) -> None:
    bench = open_bench("media_field=image")
    assert form(bench, PNG, "image").status_code == 201
    assert form(bench, PNG, "file").json()["error"]["details"]["field"] == "image"


def test_a_form_that_cannot_be_read_is_refused(bench: Bench) -> None:
    for declared in ("multipart/form-data", "multipart/form-data; boundary=x"):
        assert raw(bench, b"--y\r\n nothing", declared).status_code == 400


@pytest.mark.parametrize(("word", "status"), [("media:create", 403), ("events:create", 201), ("none", 201)])
def test_the_scope_is_a_switch(open_bench: Open, word: str, status: int) -> None:
    bench = open_bench(f"media_scope={word}")
    assert raw(bench, PNG, **bench.as_key("sandbox-key-starter")).status_code == status


def test_an_image_that_is_too_large_is_refused(open_bench: Open) -> None:
    assert raw(open_bench("max_image_bytes=10"), PNG).status_code == 413


def test_the_same_image_under_the_same_key_is_kept_once_whatever_the_forms_boundary(bench: Bench) -> None:
    first, second = form(bench, PNG, **{"Idempotency-Key": "k"}), form(bench, PNG, **{"Idempotency-Key": "k"})
    assert first.request.headers["content-type"] != second.request.headers["content-type"]
    assert first.content == second.content
    assert raw(bench, IMAGES["image/gif"], **{"Idempotency-Key": "k"}).status_code == 409


@pytest.mark.parametrize("path", ["/media/1", f"/media/{2**70}", "/media/x"])
def test_an_image_that_does_not_exist_is_not_found(bench: Bench, path: str) -> None:
    assert bench.http.get(path).status_code == 404
