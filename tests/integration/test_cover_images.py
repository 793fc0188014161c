"""Cover images: uploaded once for each content, and what becomes of an event whose image cannot be used."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest
from integration.desk import FEED, Desk, line
from integration.service import Service
from integration.waiting import until
from lookalikes.threaded import Answer, answering_by
from unit.connectors_api.test_pictures import png

pytestmark = pytest.mark.slow

ALLOWED = {"EVENTSYNC_ALLOW_PRIVATE_IMAGES": "yes"}


@dataclass
class Pictures:
    """A partner's image server: what lies at which path, and how often it was asked for."""

    base_url: str
    at: dict[str, bytes] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)


@pytest.fixture
def pictures() -> Iterator[Pictures]:
    shelf = Pictures("")

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        shelf.asked[request.path] += 1
        return Answer(shelf.at[request.path]) if request.path in shelf.at else Answer(status=404)

    with answering_by(answer) as shelf.base_url:
        yield shelf


def _with_pictures(desk: Desk, pictures: Pictures, *paths: str, on_error: str = "omit", in_flight: int = 16) -> None:
    desk.mapping(more=f"coverImage: {{image: {{from: PICTURE}}, on_error: {on_error}}}", in_flight=in_flight)
    desk.source(line(number, picture=path and pictures.base_url + path) for number, path in enumerate(paths))


def _covers(service: Service) -> dict[str, object]:
    return {event["title"]: event["payload"].get("coverImage") for event in service.events()}


def test_an_image_is_uploaded_once_and_every_event_of_it_carries_its_id(desk: Desk, service: Service, pictures: Pictures) -> None:
    pictures.at = {"/a.png": png(40, 30), "/same-as-a.png": png(40, 30), "/b.png": png(50, 30)}
    _with_pictures(desk, pictures, "/a.png", "/a.png", "/same-as-a.png", "/b.png", "")
    desk.run(**ALLOWED, code=0)
    covers = _covers(service)
    assert covers["Evening 0"] == covers["Evening 1"] == covers["Evening 2"]
    assert len({covers["Evening 0"], covers["Evening 3"], None}) == 3
    assert covers["Evening 4"] is None
    assert service.look()["images"] == 2
    assert pictures.asked == {"/a.png": 1, "/same-as-a.png": 1, "/b.png": 1}

    uploads = len(service.requests("media"))
    _with_pictures(desk, pictures, "/a.png", "/a.png", "/same-as-a.png", "/b.png", "", "/a.png")
    desk.run(**ALLOWED, code=0)
    assert _covers(service)["Evening 5"] == covers["Evening 0"]
    assert len(service.requests("media")) == uploads


def test_an_image_that_the_service_has_no_longer_is_uploaded_once_more_in_the_same_run(
    desk: Desk, service: Service, pictures: Pictures
) -> None:
    pictures.at = {"/a.png": png(40, 30)}
    _with_pictures(desk, pictures, "/a.png")
    desk.run(**ALLOWED, code=0)
    service.stop()  # it keeps nothing
    service.start()
    _with_pictures(desk, pictures, *["/a.png"] * 30)
    said = desk.run(**ALLOWED)
    assert (said.code, said.run["publish"]["delivered"]) == (0, 29), said.words
    covers = _covers(service)
    assert (len(covers), len(set(covers.values()) - {None})) == (29, 1)
    assert len(service.requests("media")) <= 2
    _with_pictures(desk, pictures, *["/a.png"] * 31)
    desk.run(**ALLOWED, code=0)
    assert _covers(service)["Evening 30"] == covers["Evening 29"]


def test_an_event_whose_image_is_missing_is_not_sent(desk: Desk, service: Service, pictures: Pictures) -> None:
    pictures.at = {"/a.png": png(40, 30), "/text.png": b"no picture at all"}
    _with_pictures(desk, pictures, "/missing.png", "/text.png", "/a.png", "", on_error="reject")
    desk.run(**ALLOWED)

    assert service.titles() == ["Evening 2", "Evening 3"]
    assert {row["row_key"]: "image" in row["problem"].lower() for row in desk.rows("refused")} == {"0": True, "1": True}


def test_an_address_in_a_private_network_is_not_asked(desk: Desk, service: Service, pictures: Pictures) -> None:
    pictures.at = {"/a.png": png(40, 30)}
    _with_pictures(desk, pictures, "/a.png")
    said = desk.run(code=0)
    assert _covers(service) == {"Evening 0": None}
    assert "private network" in said.run["message"]
    assert not pictures.asked


def test_a_body_with_its_cover_is_pinned_before_it_is_sent_for_the_first_time(
    desk: Desk, service: Service, pictures: Pictures
) -> None:
    paths = [f"/{number}.png" for number in range(60)]
    pictures.at = {path: png(40, 30 + number) for number, path in enumerate(paths)}
    _with_pictures(desk, pictures, *paths, in_flight=4)
    service.switch(answer_delay_ms=60)
    run = desk.start_run(**ALLOWED)
    until(lambda: len(service.events()) > 15)
    assert run.kill().code == -signal.SIGKILL

    pictures.at.clear()
    service.switch(answer_delay_ms=0)
    desk.run(**ALLOWED, code=0)
    assert {len(bodies) for bodies in service.bodies().values()} == {1}
    assert len(service.events()) == 60
    assert not [request for request in service.requests() if request["status"] == 409]


def warnings(desk: Desk) -> dict[str, str]:
    """What is listed of rows that went out without their image: the problem, by row key."""
    return {row["row_key"]: str(row) for row in desk.rows("warning")}


def test_the_default_image_stands_in_and_each_row_that_needed_it_is_listed(
    desk: Desk, service: Service, pictures: Pictures
) -> None:
    pictures.at = {"/a.png": png(40, 30), "/default.png": png(60, 30)}
    on_error = f'default, default: "{pictures.base_url}/default.png"'
    _with_pictures(desk, pictures, "/missing.png", "/a.png", "/gone.png", on_error=on_error)
    desk.run(**ALLOWED, code=0)
    covers = _covers(service)
    assert covers["Evening 0"] == covers["Evening 2"] != covers["Evening 1"]
    assert {type(cover) for cover in covers.values()} == {int}
    assert set(warnings(desk)) == {"0", "2"}
    assert pictures.asked["/default.png"] == 1
    assert desk.run(**ALLOWED).run["read"]["unchanged"] == 3


@pytest.mark.parametrize("on_error", ["omit", "draft", 'default, default: "{}/no-default.png"'])
def test_a_row_that_goes_out_without_its_image_is_listed_with_place_address_and_reason(
    desk: Desk, service: Service, pictures: Pictures, on_error: str
) -> None:
    pictures.at = {"/a.png": png(40, 30), "/text.png": b"no picture at all"}
    _with_pictures(desk, pictures, "/missing.png", "/text.png", "/a.png", "", on_error=on_error.format(pictures.base_url))
    said = desk.run(**ALLOWED, code=0)
    assert {title for title, cover in _covers(service).items() if cover is None} == {"Evening 0", "Evening 1", "Evening 3"}
    drafts = [event["title"] for event in service.events() if event["status"] == "draft"]
    assert sorted(drafts) == (["Evening 0", "Evening 1"] if on_error == "draft" else [])
    told = warnings(desk)
    assert told.keys() == {"0", "1"}
    assert "events.csv:2" in told["0"]
    assert "answers 404" in told["0"]
    assert f"{pictures.base_url}/text.png" in told["1"]
    assert "not an image" in told["1"]
    assert "row 0" in said.run["message"]
    assert "/missing.png" in said.run["message"]


def test_an_event_without_its_picture_is_listed_in_every_later_run_until_its_row_changes(desk: Desk, pictures: Pictures) -> None:
    _with_pictures(desk, pictures, "/missing.png", "")
    for _ in range(2):  # the second run finds the source unchanged
        said = desk.run(**ALLOWED)
        assert (said.code, said.run["standing"]) == (0, {"warning": {"count": 1, "first": ["0"]}})
        assert "1 (0) used with a warning" in said.run["message"]
        assert set(warnings(desk)) == {"0"}
    assert desk.run("--full", **ALLOWED).run["standing"]["warning"]["count"] == 1
    pictures.at = {"/there.png": png(40, 30)}
    _with_pictures(desk, pictures, "/there.png", "")
    assert list(desk.run(**ALLOWED).run["standing"]) == ["drift"]


def test_the_same_broken_image_in_many_rows_is_no_sign_of_a_wrong_mapping(desk: Desk, pictures: Pictures) -> None:
    pictures.at = {"/a.png": png(40, 30)}
    _with_pictures(desk, pictures, *["/missing.png"] * 30, *["/a.png"] * 30, on_error="reject", in_flight=4)
    said = desk.run(**ALLOWED)
    assert said.run["outcome"] == "needs attention", said.words
    assert (said.run["publish"]["refused"], said.run["publish"]["delivered"]) == (30, 30)


def test_one_content_at_two_addresses_in_flight_at_once_is_uploaded_once(
    desk: Desk, service: Service, pictures: Pictures
) -> None:
    pictures.at = {f"/{number}.png": png(40, 30) for number in range(12)}
    _with_pictures(desk, pictures, *pictures.at, in_flight=12)
    service.switch(latency_ms=100)
    desk.run(**ALLOWED, code=0)
    assert len(service.requests("media")) == 1
    assert len(set(_covers(service).values())) == 1


def test_two_processes_that_meet_at_one_image_leave_one_document(desk: Desk, service: Service, pictures: Pictures) -> None:
    pictures.at = {"/a.png": png(40, 30)}
    _with_pictures(desk, pictures, "/a.png")
    desk.mapping(
        more="coverImage: {image: {from: PICTURE}}", name="other.yaml", feed="other-hall", channel="{channel: krakow-culture}"
    )
    service.switch(latency_ms=150)
    words = ("--no-dagster", "--json")
    both = [desk.start("run", feed, *words, **ALLOWED) for feed in (FEED, "other-hall")]
    assert [run.ended().code for run in both] == [0, 0]
    assert (service.look()["images"], len(set(_covers(service).values()))) == (1, 1)


def test_a_key_that_may_not_upload_holds_rows_with_images_until_it_may(desk: Desk, service: Service, pictures: Pictures) -> None:
    pictures.at = {"/a.png": png(40, 30)}
    _with_pictures(desk, pictures, "/a.png", "")
    service.switch(media_scope="media:create")
    desk.run(EVENT_API_KEY="sandbox-key-starter", **ALLOWED).assert_told(3, "scope")
    desk.run(**ALLOWED, code=0)
    assert isinstance(_covers(service)["Evening 0"], int)
