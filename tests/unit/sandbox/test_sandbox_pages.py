"""The pages: what a visitor would see, and that no event can break out of them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markupsafe import escape
from unit.sandbox.bench import Bench, Event

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


def test_the_front_page_lists_the_channels_with_their_counts(bench: Bench, event: Event) -> None:
    bench.create(event)
    bench.create(event | {"status": "draft"})
    page = bench.http.get("/").text
    assert "City agenda" in page
    assert "Members only" in page
    assert "1 published · 1 in draft" in page


def test_an_event_is_shown_on_the_clocks_of_its_own_zone(bench: Bench, event: Event) -> None:
    bench.create(event | {"startAt": "2026-05-01T17:30:00Z", "endAt": "2026-05-02T00:15:00+02:00"})
    page = bench.http.get("/channels/city-agenda").text
    assert "Fri 1 May 2026, 19:30 – Sat 2 May 2026, 00:15 (CEST)" in page
    for part in ("Jazz &amp; blues", "Piec Art, Kraków, PL", "Music", 'href="https://tickets.example/1"'):
        assert part in page


def test_a_draft_is_marked_and_a_published_event_is_not(bench: Bench, event: Event) -> None:
    bench.create(event)
    assert "Draft" not in bench.http.get("/channels/city-agenda").text
    bench.create(event | {"status": "draft"})
    assert bench.http.get("/channels/city-agenda").text.count("Draft: not public yet") == 1


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_the_ends_of_the_calendar_can_be_shown(bench: Bench, event: Event, start: str) -> None:
    del event["endAt"]
    assert bench.create(event | {"startAt": start}).status_code in {201, 400}
    assert bench.http.get("/channels/city-agenda").status_code == 200


def test_no_event_can_break_out_of_its_page(bench: Bench, event: Event) -> None:
    plain = Outline(bench.http.get("/channels/city-agenda").text)
    bench.create(
        event
        | {
            "title": HOSTILE,
            "locationName": HOSTILE,
            "approxLocation": {"city": {"placeId": HOSTILE, "name": HOSTILE}},
            "offers": [{"name": HOSTILE, "url": f"https://x.example/{HOSTILE.replace(' ', '')}"}],
        }
    )
    page = bench.http.get("/channels/city-agenda")
    outline = Outline(page.text)
    assert escape(HOSTILE) in page.text
    assert "script" not in outline.tags
    assert outline.tags.count("img") == plain.tags.count("img")
    assert not [name for name in outline.attributes if name.startswith("on")]
    assert "default-src 'none'" in page.headers["content-security-policy"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(title=st.text(min_size=1, max_size=30).filter(str.strip))
def test_any_title_is_shown_as_text(bench: Bench, event: Event, title: str) -> None:
    bench.admin("reset", {})
    bench.create(event | {"title": title})
    assert f"<h2>{escape(title)}</h2>".encode() in bench.http.get("/channels/city-agenda").content


def test_a_long_programme_is_cut_into_pages(bench: Bench, event: Event) -> None:
    for number in range(61):
        bench.create(event | {"title": f"Event {number:02}"})
    first, second = bench.http.get("/channels/city-agenda").text, bench.http.get("/channels/city-agenda?page=2").text
    assert ("Event 59" in first, "Event 60" in first, "Later" in first) == (True, False, True)
    assert ("Event 60" in second, "Later" in second, "Earlier" in second) == (True, False, True)


@pytest.mark.parametrize("query", ["?page=0", "?page=x", "?page=99999999999999999999", "?page=7"])
def test_a_page_number_that_leads_nowhere_does_no_harm(bench: Bench, query: str) -> None:
    assert bench.http.get(f"/channels/city-agenda{query}").status_code == 200


def test_a_channel_that_does_not_exist_is_a_page_too(bench: Bench) -> None:
    answer = bench.http.get("/channels/<b>")
    assert (answer.status_code, "No such channel" in answer.text, "<b>" in answer.text) == (404, True, False)
