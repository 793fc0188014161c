"""The pages that a visitor sees, which no event can break out of; and images: what counts as one and how it may be sent."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from markupsafe import escape
from unit.sandbox.bench import PNG, Bench, Event

HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>&amp;"


class Outline(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_front_page_lists_the_channels_with_their_counts_and_drafts_are_marked(bench: Bench, event: Event) -> None:
    bench.create(event)
    assert "Draft" not in bench.agenda()
    bench.create(event | {"status": "draft"})
    assert bench.agenda().count("Draft: not public yet") == 1
    page = bench.http.get("/").text
    assert [part for part in ("City agenda", "Members only", "1 published · 1 in draft") if part not in page] == []


def test_an_event_is_shown_on_the_clocks_of_its_own_zone(bench: Bench, event: Event) -> None:
    bench.create(event | {"startAt": "2026-05-01T17:30:00Z", "endAt": "2026-05-02T00:15:00+02:00"})
    page = bench.agenda()
    assert "Fri 1 May 2026, 19:30 – Sat 2 May 2026, 00:15 (CEST)" in page
    shown = ("Jazz &amp; blues", "Piec Art, Kraków, PL", "Music", 'href="https://tickets.example/1"')
    assert [part for part in shown if part not in page] == []


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_the_ends_of_the_calendar_can_be_shown(bench: Bench, event: Event, start: str) -> None:
    del event["endAt"]
    assert bench.create(event | {"startAt": start}).status_code in {201, 400}
    assert bench.agenda()


def test_no_event_can_break_out_of_its_page(bench: Bench, event: Event) -> None:
    plain = Outline(bench.agenda())
    city, url = {"placeId": HOSTILE, "name": HOSTILE}, f"https://x.example/{HOSTILE.replace(' ', '')}"
    hostile = {
        "title": HOSTILE,
        "locationName": HOSTILE,
        "approxLocation": {"city": city},
        "offers": [{"name": HOSTILE, "url": url}],
    }
    bench.create(event | hostile)
    page = bench.http.get("/channels/city-agenda")
    outline = Outline(page.text)
    assert escape(HOSTILE) in page.text
    assert "script" not in outline.tags
    assert outline.tags.count("img") == plain.tags.count("img")
    assert not [name for name in outline.attributes if name.startswith("on")]
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_long_programme_is_cut_into_pages(bench: Bench, event: Event) -> None:
    for number in range(61):
        bench.create(event | {"title": f"Event {number:02}"})
    first, second = bench.agenda(), bench.agenda("?page=2")
    assert ("Event 59" in first, "Event 60" in first, "Later" in first) == (True, False, True)
    assert ("Event 60" in second, "Later" in second, "Earlier" in second) == (True, False, True)


def test_a_page_number_that_leads_nowhere_does_no_harm_and_a_channel_that_does_not_exist_is_a_page_too(bench: Bench) -> None:
    for query in ("?page=0", "?page=x", "?page=99999999999999999999", "?page=7"):
        assert bench.agenda(query)
    answer = bench.http.get("/channels/<b>")
    assert (answer.status_code, "No such channel" in answer.text, "<b>" in answer.text) == (404, True, False)


IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"\0" * 20,
    "image/gif": b"GIF89a" + b"\0" * 20,
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 ",
}


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_is_recognised_by_its_content_and_shown_as_such(bench: Bench, kind: str) -> None:
    number = bench.upload(IMAGES[kind], "image/x-whatever").json()["doc"]["id"]
    shown = bench.http.get(f"/media/{number}")
    assert (shown.content, shown.headers["content-type"]) == (IMAGES[kind], kind)
    assert shown.headers["x-content-type-options"] == "nosniff"


def test_an_uploaded_image_can_be_a_cover(bench: Bench, event: Event) -> None:
    number = bench.form(PNG).json()["doc"]["id"]
    assert bench.create(event | {"coverImage": number}).status_code == 201
    assert f'src="/media/{number}"' in bench.agenda()


@pytest.mark.parametrize("declared", ["multipart/form-data", "multipart/form-data; boundary=x"])
def test_a_form_that_cannot_be_read_is_refused(bench: Bench, declared: str) -> None:
    assert bench.upload(b"--y\r\n nothing", declared).status_code == 400


def test_the_same_image_under_the_same_key_is_kept_once_whatever_the_forms_boundary(bench: Bench) -> None:
    first, second = bench.form(PNG, key="k"), bench.form(PNG, key="k")
    assert first.request.headers["content-type"] != second.request.headers["content-type"]
    assert first.content == second.content
    assert bench.upload(IMAGES["image/gif"], key="k").status_code == 409


@pytest.mark.parametrize("path", ["/media/1", f"/media/{2**70}", "/media/x"])
def test_an_image_that_does_not_exist_is_not_found(bench: Bench, path: str) -> None:
    assert bench.http.get(path).status_code == 404
