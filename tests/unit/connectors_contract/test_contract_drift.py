"""Each way in which a page may drift from what we send: found, told with its severity, and never invented."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.connectors_contract.pages import ROOT, Change, Tree, create, drifts, event, feed, page, tree_with

from connectors.event_api.contract_check import compare, upload_field
from mappings.outgoing import outgoing_of
from mappings.yaml.loader import load_feed

FEEDS = sorted([*(ROOT / "mappings" / "feeds").glob("*.yaml"), *(ROOT / "tests" / "feeds").glob("[!_]*.yaml")])


@pytest.mark.parametrize("path", FEEDS, ids=lambda path: path.stem)
def test_no_feed_differs_from_the_specified_page(path: Path) -> None:
    assert compare(page(tree_with()), outgoing_of(load_feed(path))) == ()


def _put(*path_and_value: Any) -> Change:
    """Change one place of the page."""
    *path, last, value = path_and_value

    def change(tree: Tree) -> None:
        at = tree
        for name in path:
            at = at[name]
        at[last] = value

    return change


def _set(path: str, value: object) -> Change:
    """Change one place of the create payload's schema."""
    return _put("components", "schemas", "EventCreate", *path.split("/"), value)


def _new_field(tree: Tree) -> None:
    event(tree)["properties"]["organizer"] = {"type": "string"}
    event(tree)["required"].append("organizer")


def _renamed_title(tree: Tree) -> None:
    event(tree)["properties"]["headline"] = event(tree)["properties"].pop("title")
    event(tree)["required"] = [*(set(event(tree)["required"]) - {"title"}), "headline"]


def _closed_without_status(tree: Tree) -> None:
    del event(tree)["properties"]["status"]
    event(tree)["additionalProperties"] = False


def _in_all_of(tree: Tree) -> None:
    more = {"type": "object", "required": ["organizer"], "properties": {"organizer": {"$ref": "#/components/schemas/City"}}}
    tree["components"]["schemas"]["EventCreate"] = {"allOf": [event(tree), more]}


def _in_every_alternative(tree: Tree) -> None:
    tree["components"]["schemas"]["EventCreate"] = {
        "oneOf": [{"allOf": [event(tree), {"required": ["organizer"]}]}, {"type": "string"}]
    }


def _no_media(tree: Tree) -> None:
    del tree["paths"]["/media"]


def _form(**properties: dict[str, str]) -> Change:
    schema = {"type": "object", "required": ["picture"], "properties": properties}
    content = {"multipart/form-data": {"schema": schema}}
    return _put("paths", "/media", "post", "requestBody", "content", content)


_SCHEMAS = ("components", "schemas")
_CREATED = ("components", "responses", "EventCreated", "content", "application/json", "schema")
_media_field = _form(picture={"type": "string"})
_media_file = _form(caption={"type": "string"}, picture={"type": "string", "format": "binary"})
_other_answer = _put(*_CREATED, {"type": "object", "properties": {"event": {"type": "object"}}})
_id_of_text = _put(*_SCHEMAS, "CreatedEvent", "properties", "id", {"type": "string", "format": "uuid"})
_text_ids = _put(*_SCHEMAS, "Channel", "properties", "id", {"type": "string"})
_other_envelope = _put(*_SCHEMAS, "ErrorEnvelope", {"type": "object", "properties": {"errors": {"type": "array"}}})
_key_in_a_header = _put("components", "securitySchemes", "apiKey", {"type": "apiKey", "in": "header", "name": "X-Api-Key"})
_moved = _put("servers", [{"url": "https://events.example.org/api/public/v2"}])
_no_key_header = _put("paths", "/events", "post", "parameters", [])
_forms_only = _put("paths", "/events", "post", "requestBody", "content", {"application/x-www-form-urlencoded": {"schema": {}}})
_small_pages = _put("components", "parameters", "Limit", "schema", "maximum", 50)
_number = _set("properties/channelId", {"type": "number", "minimum": 1})
_words_of_another_language = _set("properties/title", {"type": "text", "format": "markdown"})


def _tenant_header(tree: Tree) -> None:
    create(tree)["parameters"].append({"name": "X-Tenant", "in": "header", "required": True, "schema": {"type": "string"}})


def _short_keys(tree: Tree) -> None:
    create(tree)["parameters"][0]["schema"]["maxLength"] = 32


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        (_new_field, "organizer", "`organizer` is required"),
        (_in_all_of, "organizer", "`organizer` is required"),
        (_in_every_alternative, "organizer", "`organizer` is required"),
        (_renamed_title, "headline", "perhaps `title` was renamed to it"),
        (_closed_without_status, "status", "no field `status`, and others are not allowed"),
        (_set("properties/channelId", {"type": "string", "format": "uuid"}), "channelId", "of the type string"),
        (_set("properties/channelId", {"type": ["string", "null"]}), "channelId", "of the type string"),
        (_set("properties/classifications/items", {"type": "integer"}), "classifications[]", "of the type integer"),
        (_set("properties/startAt", {"type": "string", "format": "date"}), "startAt", "the format date"),
        (_set("properties/startAt", {"type": "string", "pattern": "^[0-9-]{10}$"}), "startAt", "looks like"),
        (_set("properties/startAt", {"type": "string", "maxLength": 10}), "startAt", "at most 10 characters"),
        (_set("properties/status", {"enum": ["review", "live"]}), "status", "one of `review`, `live`"),
        (_set("properties/status", {"const": "live"}), "status", "one of `live`"),
        (_set("properties/timezone", {"type": "string", "enum": ["UTC"]}), "timezone", "one of `UTC`"),
    ],
)
def test_what_would_refuse_every_row_is_an_error_that_names_its_field(change: Change, field: str, says: str) -> None:
    found = drifts(change)
    assert (found[0].severity, field in found[0].fields) == ("error", True)
    assert any(says in str(one) for one in found)
    assert "every row would be refused" in str(found[0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_moved, "POST /api/public/v2/events"),
        (_other_answer, "it has no `doc`"),
        (_id_of_text, "`doc.id` is of the type `string`"),
        (_key_in_a_header, "no bearer key"),
        (_tenant_header, "`X-Tenant` is required"),
        (_forms_only, "we send application/json"),
        (_short_keys, "at most 32 characters"),
        (_text_ids, "`docs[].id` is of the type `string`"),
    ],
)
def test_what_the_worker_cannot_do_without_is_an_error_of_the_whole_request(change: Change, says: str) -> None:
    found = drifts(change)
    assert (found[0].severity, found[0].fields) == ("error", ())
    assert any(says in str(one) for one in found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set("properties/title/maxLength", 60), "{truncate: 60}"),
        (_set("properties/title/deprecated", True), "deprecated"),
        (_set("properties/title/pattern", "^[A-Z]"), "we send what the rows hold"),
        (_set("properties/endAt", {"type": "string", "format": "date"}), "rows that have it would be refused"),
        (_set("properties/locationName", {"type": "string", "enum": ["Town hall"]}), "one of `Town hall`"),
        (_set("properties/classifications/maxItems", 2), "at most 2 items"),
        (_set("properties/classifications/items", {"enum": ["music", "dance"]}), "we may send"),
        (lambda tree: event(tree)["required"].append("locationName"), "rows without it would be refused"),
        (lambda tree: event(tree)["properties"].pop("locationName"), "may be ignored"),
        (lambda tree: create(tree).update(deprecated=True), "it is deprecated"),
        (_no_key_header, "no header `Idempotency-Key`"),
        (_small_pages, "at most 50"),
        (_other_envelope, "we read `error.code`"),
    ],
)
def test_what_concerns_some_rows_or_none_yet_is_a_warning(change: Change, says: str) -> None:
    found = drifts(change)
    assert {one.severity for one in found} == {"warning"}
    assert any(says in str(one) for one in found)


def test_the_media_route_matters_to_feeds_with_covers_only(tmp_path: Path) -> None:
    text = (ROOT / "tests" / "feeds" / "acmw-events.yaml").read_text("utf-8")
    path = tmp_path / "acmw-events.yaml"
    path.write_text(text.replace("\nevent:\n", "\nevent:\n  coverImage: {image: {from: url}}\n", 1), "utf-8")
    with_cover = outgoing_of(load_feed(path))
    for change, says in ((_no_media, "images could not be uploaded"), (_media_field, "`picture`")):
        assert drifts(change) == ()
        (found,) = drifts(change, sent=with_cover)
        assert (found.severity, says in str(found)) == ("warning", True)


def test_the_field_for_images_is_read_from_the_page() -> None:
    assert upload_field(page(tree_with())) == "file"
    assert upload_field(page(tree_with(_media_file))) == "picture"
    assert upload_field(page(tree_with(_media_field))) == ""
    assert upload_field(page(tree_with(_no_media))) == ""


def _nullable_30(tree: Tree) -> None:
    event(tree)["properties"]["endAt"]["nullable"] = True
    event(tree)["properties"]["locationName"] = {"allOf": [{"type": "string"}], "nullable": True}


def _nullable_31(tree: Tree) -> None:
    tree["openapi"] = "3.1.0"
    event(tree)["properties"]["endAt"] = {"oneOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
    event(tree)["properties"]["title"] = {"type": ["string", "null"]}
    event(tree)["properties"]["approxLocation"] = {"$ref": "#/components/schemas/ApproxLocation", "description": "Where."}


def _optional_growth(tree: Tree) -> None:
    event(tree)["properties"]["audience"] = {"type": "string"}
    event(tree)["properties"]["id"] = {"type": "integer", "readOnly": True}
    event(tree)["required"].append("id")
    tree["paths"]["/venues"] = {"get": {"responses": {}}}


def _alternatives(tree: Tree) -> None:
    other = {"type": "object", "required": ["ics"], "properties": {"ics": {"type": "string"}}}
    tree["components"]["schemas"]["EventCreate"] = {"anyOf": [other, event(tree)]}


def _whole_paths(tree: Tree) -> None:
    tree["paths"] = {f"/api/public/v1{path}": item for path, item in tree["paths"].items()}
    tree["servers"] = [{"url": "https://{region}.example.org/"}]


def _no_servers(tree: Tree) -> None:
    del tree["servers"]


def _loops(tree: Tree) -> None:
    tree["components"]["schemas"]["Offer"] = {"$ref": "#/components/schemas/Offer"}
    tree["components"]["schemas"]["City"] = {"allOf": [{"$ref": "#/components/schemas/City"}] * 4}


def _broken_references(tree: Tree) -> None:
    event(tree)["properties"]["title"] = {"$ref": "https://elsewhere.example/title.yaml"}
    event(tree)["properties"]["offers"] = {"$ref": "#/components/schemas/Nowhere~1"}


def _hostile_pattern(tree: Tree) -> None:
    event(tree)["properties"]["timezone"]["pattern"] = "^(a+)+$(?<name>x)"
    event(tree)["properties"]["status"]["pattern"] = "^(([a-z])+.)+[A-Z]([a-z])+$|" + "x*" * 200


def _described_others(tree: Tree) -> None:
    event(tree)["properties"].pop("locationName")
    event(tree)["additionalProperties"] = {"type": "string"}


@pytest.mark.parametrize(
    "change",
    [
        _described_others,
        _words_of_another_language,
        _nullable_30,
        _nullable_31,
        _optional_growth,
        _alternatives,
        _number,
        _whole_paths,
        _no_servers,
        _loops,
        _broken_references,
        _hostile_pattern,
    ],
)
def test_what_refuses_nothing_is_no_difference(change: Change) -> None:
    assert [one for one in drifts(change, sent=feed("krakow-culture")) if one.severity == "error"] == []
    if change is not _hostile_pattern:
        assert drifts(change) == ()


def _slow_patterns(tree: Tree) -> None:
    for name in ("timezone", "status"):
        event(tree)["properties"][name]["pattern"] = "^" + ".*" * 90 + "$#"
    event(tree)["properties"]["startAt"]["pattern"] = "^(.+)(.+)(.+)#$"


def _endless_names(tree: Tree) -> None:
    event(tree)["required"] += ["x" * 100_000, *(f"field{number}" for number in range(20_000))]


@pytest.mark.parametrize("change", [_slow_patterns, _endless_names, _loops, _hostile_pattern])
def test_a_page_made_to_be_slow_is_compared_soon_and_told_briefly(change: Change) -> None:
    began = process_time()
    found = drifts(change, sent=feed("krakow-culture"))
    assert process_time() - began < 5
    assert len("".join(map(str, found))) < 50_000


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["string", "object", "array", "integer", "#/components", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "required", "allOf", "oneOf", "items", "enum", "$ref", "title", "maxLength", "pattern"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(["schema", "operation", "item", "components", "parameters", "responses", "servers", "security"]), _JSON)
def test_a_page_of_any_shape_is_compared_without_a_fault(place: str, strange: Any) -> None:
    def change(tree: Tree) -> None:
        match place:
            case "schema":
                tree["components"]["schemas"]["EventCreate"] = strange
            case "operation":
                tree["paths"]["/events"]["post"] = strange
            case "item":
                tree["paths"]["/events"] = strange
            case "parameters" | "responses":
                create(tree)[place] = strange
            case _:
                tree[place] = strange

    compare(tree_with(change), feed())
