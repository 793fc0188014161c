"""A paginated API at the command line: `init` recognises it, `check --live` and `preview` read it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from lookalikes.rest_api import Api, Request, dropping, rest_api, saying
from unit.cli.conftest import MAPPING, Desk

EVENTS = [
    {
        "id": number,
        "title": f"Evening {number}",
        "start": f"2030-05-{number:02}T19:30:00Z",
        "url": f"https://example.org/{number}",
    }
    for number in range(1, 6)
]
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tribe": ({"next_rest_url": "/events?page=2", "total": 5}, {"next_url": "next_rest_url", "total": "total"}),
    "eventbrite": (
        {"pagination": {"continuation": "c2", "has_more_items": True, "object_count": 5}},
        {
            "cursor": "pagination.continuation",
            "param": "continuation",
            "total": "pagination.object_count",
            "more": "pagination.has_more_items",
        },
    ),
    "hubspot": ({"paging": {"next": {"after": "c2"}}}, {"cursor": "paging.next.after", "param": "after"}),
    "openagenda": ({"after": [17, 4], "total": 5}, {"cursor": "after", "param": "after[]", "total": "total"}),
    "pages": ({"meta": {"total_pages": 2}}, {"page": "page", "last": "meta.total_pages"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_init_recognises_a_page_and_drafts_a_feed_that_reads_all_of_them(desk: Desk, shape: str) -> None:
    extra, pages = SHAPES[shape]
    ended: dict[str, Any] = {"pagination": {"has_more_items": False, "object_count": 5}} if shape == "eventbrite" else {}
    ended |= {"total": 5, "meta": {"total_pages": 2}}

    def answer(request: Request) -> tuple[int, Any]:
        is_last = bool(request.params) and request.params.get("page") != ["1"]
        return 200, {"events": EVENTS[3:], **ended} if is_last else {"events": EVENTS[:3], **extra}

    with rest_api(answer=answer) as api:
        said = desk.run("init", api.url, "--feed", "drafted", "--json", "--force", code=0)
        source = yaml.safe_load((desk.folder / "feeds" / "drafted.yaml").read_text("utf-8"))["source"]
        assert (source["kind"], source["url"], source["records"], source["pages"]) == ("rest", api.url, "events", pages)
        assert said.document["rows"] == 5
        assert "the answer holds" in next(guess["why"] for guess in said.document["guesses"] if guess["about"] == "source.pages")
        assert len(desk.told("preview", "drafted")["rows"]) == 5


def test_init_follows_the_next_page_in_a_header_and_asks_about_records_that_the_answer_lacks(desk: Desk) -> None:
    def drafted(api: Api) -> tuple[Any, Any]:
        said = desk.run("init", api.url, "--feed", "drafted", "--json", "--force", code=0).document
        source = yaml.safe_load((desk.folder / "feeds" / "drafted.yaml").read_text("utf-8"))["source"]
        return source, {guess["about"]: (guess["surety"], guess["why"]) for guess in said["guesses"]}

    with rest_api("link", records=EVENTS, edit=lambda _, document: document.pop("paging")) as api:
        api.faults[0] = [saying(200, {"data": {"events": EVENTS[:2]}}), dropping]
        source, _ = drafted(api)
        assert (source["kind"], source["pages"]) == ("rest", {"link": "next"})
        assert len(desk.told("preview", "drafted")["rows"]) == 5
    with rest_api(answer=lambda _: (200, {"count": 12, "results": EVENTS})) as api:
        source, guesses = drafted(api)
        assert source["kind"] == "json"
        assert guesses["source.pages"][0] == "unsure"
        assert 'says "count": 12 and holds 5' in guesses["source.pages"][1]


def test_an_answer_that_names_no_other_page_stays_a_document(desk: Desk) -> None:
    with rest_api(answer=lambda _: (200, {"events": EVENTS, "total": 5, "next": None})) as api:
        desk.run("init", api.url, "--feed", "drafted", "--json", "--force", code=0)
        assert yaml.safe_load((desk.folder / "feeds" / "drafted.yaml").read_text("utf-8"))["source"]["kind"] == "json"


@pytest.mark.parametrize("status", [401, 403])
def test_init_of_an_api_with_a_login_says_what_to_write(desk: Desk, status: int) -> None:
    with rest_api(answer=lambda _: (status, {"message": "no"})) as api:
        said = desk.run("init", f"{api.url}?key=k3y-of-ours", "--feed", "town-hall-2")
        auth = f"source: {{kind: rest, url: {api.url}, auth: {{bearer: TOWN_HALL_2}}, records: ..., pages: ...}}"
        said.assert_told(2, f"answered {status}", auth, "REST_TOWN_HALL_2")
        assert "k3y-of-ours" not in said.out + said.err


RECORDS = [
    {
        "ID": f"{number}",
        "TITLE": f"Jazz {number}",
        "DAY": "2030-05-01",
        "HOUR": "19:30",
        "KIND": "",
        "GENRE": "concert",
        "at": f"{day}T10:00:00Z",
    }
    for number, day in enumerate(["2026-05-01", "2026-05-02", "2026-05-03", "2026-05-04", "2026-05-05"], start=1)
]


def mapped(url: str, pages: str, **words: str) -> str:
    source = {"url": url, "params": "{limit: 5}", "records": "events", "pages": pages, **words}
    block = "".join(f"  {name}: {text}\n" for name, text in source.items())
    return MAPPING.replace("  kind: csv\n  path: ../events.csv\n", f"  kind: rest\n{block}")


def test_check_live_asks_the_api_and_says_what_is_uncertain(desk: Desk) -> None:
    def findings(pages: str) -> str:
        desk.mapping(mapped(api.url, pages))
        return str(desk.run("check", "town-hall", "--live", "--json").document)

    with rest_api(answer=lambda _: (200, {"events": RECORDS, "total": 5})) as api, desk.service():
        found = findings("{cursor: nxt, param: after}")
        assert "names no next one" in found
        assert "name `pages.total`" in found
        found = findings("{cursor: nxt, param: after, total: total}")
        assert "names no next one" not in found
        assert "7 columns" in found


def test_a_run_reads_what_changed_and_a_backfill_the_changes_of_its_days(desk: Desk) -> None:
    def answer(request: Request) -> tuple[int, Any]:
        if request.headers.get("authorization") != "Bearer a-token-of-ours":
            return 401, {"message": f"{request.headers.get('authorization')} is unknown"}
        since = request.params.get("since", [""])[0]
        found = [record for record in RECORDS if str(record["at"]) >= since]
        return 200, {"events": found, "total": len(found)}

    words = {"params": '{since: "{since}"}', "auth": "{bearer: TOWN}", "incremental": "{by: at, overlap: 0s}"}
    with rest_api(answer=answer) as api, desk.service():
        desk.mapping(mapped(api.url, "{link: next, total: total}", **words))
        desk.monkeypatch.setenv("REST_TOWN", "another-token")
        refused = desk.run("run", "town-hall", "--no-dagster", "--json")
        assert refused.code
        assert "another-token" not in f"{refused.document}"
        desk.monkeypatch.setenv("REST_TOWN", "a-token-of-ours")
        first = desk.run("run", "town-hall", "--no-dagster", "--json", code=0).run
        assert first["read"]["new"] == 5
        second = desk.run("run", "town-hall", "--no-dagster", "--json", code=0).run
        assert second["read"]["unchanged"] == 1
        assert api.asked[-1].params["since"] == ["2026-05-05T10:00:00Z"]
        desk.run(
            "backfill", "town-hall", "--from", "2026-05-02", "--to", "2026-05-03", "--by", "cursor", "--json", "--no-dagster"
        )
        assert ["2026-05-02T00:00:00Z"] in [request.params.get("since") for request in api.asked]
