"""A contract that drifts: the page says so, events are held to it, and a list of classifications is replaced by another."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from unit.sandbox.bench import Bench, Event

PAGE = "/api/developer/openapi/public-api-v1"


def _schema(bench: Bench) -> dict[str, Any]:
    answer = bench.http.get(PAGE)
    assert answer.headers["content-type"].startswith("application/yaml")
    schema: dict[str, Any] = yaml.safe_load(answer.text)["components"]["schemas"]["EventCreate"]
    return schema


@pytest.mark.parametrize(
    ("contract", "field", "issue"),
    [
        ("new_required_field", "organizer", "is required"),
        ("renamed_field", "headline", "is required"),
        ("shorter_titles", "title", "must not be longer than 40 characters"),
    ],
)
def test_a_drifted_contract_is_on_the_page_and_in_force(
    bench: Bench, event: Event, contract: str, field: str, issue: str
) -> None:
    long = event | {"title": "A title of more than forty characters, all told"}
    assert bench.create(long).status_code == 201
    bench.switch(contract=contract)
    refused = bench.create(long)
    assert refused.status_code == 400
    assert refused.json()["error"]["details"] == {"field": field, "issue": issue}
    schema = _schema(bench)
    assert schema["properties"][field]["type"] == "string"
    assert (field in schema["required"]) or schema["properties"]["title"]["maxLength"] == 40
    fitting = {"organizer": "The town", "headline": "Jazz"}
    assert bench.create(event | fitting).status_code == 201


def test_the_page_alone_may_drift(bench: Bench, event: Event) -> None:
    bench.switch(contract="new_required_field", contract_rules="as_specified")
    assert "organizer" in _schema(bench)["required"]
    assert bench.create(event).status_code == 201


def test_a_moved_contract_is_on_the_page_only(bench: Bench, event: Event) -> None:
    bench.switch(contract="moved")
    assert "url: /api/public/v2" in bench.http.get(PAGE).text
    assert bench.create(event).status_code == 201


def test_an_unchanged_page_is_not_sent_again(bench: Bench) -> None:
    tag = bench.http.get(PAGE).headers["etag"]
    again = bench.http.get(PAGE, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    bench.switch(contract="renamed_field")
    assert bench.http.get(PAGE, headers={"If-None-Match": tag}).status_code == 200


def test_there_may_be_a_web_page_or_nothing_in_its_place(bench: Bench) -> None:
    bench.switch(contract_page="html")
    assert "Sign in" in bench.http.get(PAGE).text
    bench.switch(contract_page="absent")
    assert bench.http.get(PAGE).json()["error"]["code"] == "not_found"


def test_a_revised_list_of_classifications_is_in_force_at_once(bench: Bench, event: Event) -> None:
    first = bench.http.get("/api/public/v1/classifications").json()
    bench.switch(classification_list="revised")
    revised = bench.http.get("/api/public/v1/classifications").json()
    before, after = ({one["slug"] for one in told["docs"]} for told in (first, revised))
    assert (before - after, after - before) == ({"workshop", "nightlife"}, {"workshops", "podcast"})
    assert first["version"] < revised["version"]
    assert bench.create(event | {"classifications": ["workshop"]}).status_code == 400
    assert bench.create(event | {"classifications": ["workshops"]}).status_code == 201
