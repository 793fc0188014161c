"""Cover images: uploaded once for each content, and what becomes of an event whose image cannot be used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.desk import FEED, Desk, line
from integration.service import Service
from lookalikes.web_files import Web, web_server
from pictures import png

pytestmark = pytest.mark.slow


@pytest.fixture
def web(desk: Desk) -> Iterator[Web]:
    """A partner's image server, which the desk may ask although it is of a private network."""
    desk.env["EVENTSYNC_ALLOW_PRIVATE_IMAGES"] = "yes"
    with web_server() as served:
        served.put("/a.png", png(40, 30))
        served.put("/text.png", b"no picture at all")
        yield served


def _with_pictures(desk: Desk, web: Web, *paths: str, on_error: str = "omit", in_flight: int = 16) -> None:
    desk.mapping(more=f"coverImage: {{image: {{from: PICTURE}}, on_error: {on_error}}}", in_flight=in_flight)
    desk.source(line(number, picture=path and web.address(path)) for number, path in enumerate(paths))


def _covers(service: Service) -> dict[str, object]:
    return {event["title"]: event["payload"].get("coverImage") for event in service.events()}


def test_an_image_is_uploaded_once_and_every_event_of_it_carries_its_id(desk: Desk, service: Service, web: Web) -> None:
    web.put("/same-as-a.png", png(40, 30))
    web.put("/b.png", png(50, 30))
    _with_pictures(desk, web, "/a.png", "/a.png", "/same-as-a.png", "/b.png", "")
    service.switch(latency_ms=100)
    desk.run(code=0)
    covers = _covers(service)
    assert covers["Evening 0"] == covers["Evening 1"] == covers["Evening 2"]
    assert len({covers["Evening 0"], covers["Evening 3"], None}) == 3
    assert covers["Evening 4"] is None
    assert service.look()["images"] == len(service.requests("media")) == 2
    assert sorted(one.path for one in web.asked) == ["/a.png", "/b.png", "/same-as-a.png"]

    _with_pictures(desk, web, "/a.png", "/a.png", "/same-as-a.png", "/b.png", "", "/a.png")
    desk.run(code=0)
    assert _covers(service)["Evening 5"] == covers["Evening 0"]
    assert len(service.requests("media")) == 2


def test_an_address_in_a_private_network_is_not_asked(desk: Desk, service: Service, web: Web) -> None:
    _with_pictures(desk, web, "/a.png")
    said = desk.run(code=0, EVENTSYNC_ALLOW_PRIVATE_IMAGES="")
    assert _covers(service) == {"Evening 0": None}
    assert "private network" in said.run["message"]
    assert not web.asked


ON_ERROR = {
    "omit": "omit",
    "draft": "draft",
    "a default": 'default, default: "{}/default.png"',
    "a default that is not there": 'default, default: "{}/no-default.png"',
    "reject": "reject",
}


@pytest.mark.parametrize("wanted", ON_ERROR)
def test_a_row_without_its_image_goes_out_as_its_feed_wants_and_is_listed_with_place_address_and_reason(
    desk: Desk, service: Service, web: Web, wanted: str
) -> None:
    web.put("/default.png", png(60, 30))
    on_error = ON_ERROR[wanted].format(web.address(""))
    _with_pictures(desk, web, "/missing.png", "/text.png", "/a.png", "", on_error=on_error)
    said = desk.run(code=0)
    is_sent, has_default, covers = wanted != "reject", wanted == "a default", _covers(service)
    without = [title for title, cover in covers.items() if cover is None]
    assert sorted(without) == (["Evening 0", "Evening 1", "Evening 3"] if is_sent and not has_default else ["Evening 3"])
    if has_default:
        assert covers["Evening 0"] == covers["Evening 1"] != covers["Evening 2"]
        assert [one.path for one in web.asked].count("/default.png") == 1
    drafts = [event["title"] for event in service.events() if event["status"] == "draft"]
    assert sorted(drafts) == (["Evening 0", "Evening 1"] if wanted == "draft" else [])
    refused = {row["row_key"]: "image" in row["problem"].lower() for row in desk.rows("refused")}
    assert refused == ({} if is_sent else {"0": True, "1": True})
    listed = {row["row_key"]: str(row) for row in desk.rows("warning")}
    if is_sent:
        assert listed.keys() == {"0", "1"}
        assert [word for word in ("events.csv:2", "answers 404") if word not in listed["0"]] == []
        assert [word for word in (web.address("/text.png"), "is not a GIF") if word not in listed["1"]] == []
    assert [word for word in ("row 0", "/missing.png") if word not in said.run["message"]] == []


def test_the_same_broken_image_in_many_rows_is_no_sign_of_a_wrong_mapping(desk: Desk, web: Web) -> None:
    _with_pictures(desk, web, *["/missing.png"] * 30, *["/a.png"] * 30, on_error="reject", in_flight=4)
    said = desk.run()
    assert said.run["outcome"] == "needs attention", said.words
    assert (said.run["publish"]["refused"], said.run["publish"]["delivered"]) == (30, 30)


def test_two_processes_that_meet_at_one_image_leave_one_document(desk: Desk, service: Service, web: Web) -> None:
    _with_pictures(desk, web, "/a.png")
    words = {"name": "other.yaml", "feed": "other-hall", "channel": "{channel: krakow-culture}"}
    desk.mapping(more="coverImage: {image: {from: PICTURE}}", **words)
    service.switch(latency_ms=150)
    both = [desk.start("run", feed, "--no-dagster", "--json") for feed in (FEED, "other-hall")]
    assert [run.ended().code for run in both] == [0, 0]
    assert (service.look()["images"], len(set(_covers(service).values()))) == (1, 1)


def test_a_key_that_may_not_upload_holds_rows_with_images_until_it_may(desk: Desk, service: Service, web: Web) -> None:
    _with_pictures(desk, web, "/a.png", "")
    desk.run(EVENT_API_KEY="sandbox-key-starter").assert_told(3, "scope")
    desk.run(code=0)
    assert isinstance(_covers(service)["Evening 0"], int)
