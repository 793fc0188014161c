"""Reading the OpenAPI page, and each way in which it may drift from what we send: found, with its severity, never invented."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from connectors.event_api.contract_check import compare, upload_field
from connectors.event_api.openapi import LONGEST_PAGE, Node, NoPage, read_page
from mappings.outgoing import Drift, Outgoing, outgoing_of
from mappings.yaml.loader import load_feed

ROOT = Path(__file__).parents[3]
SPECIFIED = (ROOT / "sandbox" / "public-api-v1.yaml").read_bytes()
Tree = dict[str, Any]
Change = Callable[[Tree], object]

_TREE: Tree = yaml.load(SPECIFIED, Loader=yaml.CSafeLoader)


def feed(name: str = "lisbon-agenda") -> Outgoing:
    return outgoing_of(load_feed(ROOT / "mappings" / "feeds" / f"{name}.yaml"))


def tree_with(*changes: Change) -> Tree:
    tree = deepcopy(_TREE)
    for change in changes:
        change(tree)
    return tree


def page(tree: Tree) -> Node:
    read = read_page(json.dumps(tree).encode())
    assert not isinstance(read, NoPage)
    return read


def drifts(*changes: Change, sent: Outgoing | None = None) -> tuple[Drift, ...]:
    """The differences between a feed and the page with these changes."""
    return compare(page(tree_with(*changes)), sent or feed())


def event(tree: Tree) -> Tree:
    """The schema of the create payload."""
    schema: Tree = tree["components"]["schemas"]["EventCreate"]
    return schema


def create(tree: Tree) -> Tree:
    operation: Tree = tree["paths"]["/events"]["post"]
    return operation


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


def _add(**properties: object) -> Change:
    """Add or replace properties of the create payload."""
    return lambda tree: event(tree)["properties"].update(properties)


def _both(*changes: Change) -> Change:
    return lambda tree: [change(tree) for change in changes]


def _require(*names: str) -> Change:
    return lambda tree: event(tree)["required"].extend(names)


def _composed(compose: Callable[[Tree], Tree]) -> Change:
    """Let the payload be composed of the one that it was and of others."""
    return lambda tree: _put(*_SCHEMAS, "EventCreate", compose(event(tree)))(tree)


def _renamed_title(tree: Tree) -> None:
    event(tree)["properties"]["headline"] = event(tree)["properties"].pop("title")
    event(tree)["required"] = [*(set(event(tree)["required"]) - {"title"}), "headline"]


def _closed_without(name: str) -> Change:
    return _both(lambda tree: event(tree)["properties"].pop(name), _set("additionalProperties", False))


def _no_media(tree: Tree) -> None:
    del tree["paths"]["/media"]


def _form(**properties: dict[str, str]) -> Change:
    schema = {"type": "object", "required": ["picture"], "properties": properties}
    content = {"multipart/form-data": {"schema": schema}}
    return _put("paths", "/media", "post", "requestBody", "content", content)


_SCHEMAS = ("components", "schemas")
_CREATED = ("components", "responses", "EventCreated", "content", "application/json", "schema")
_BODY = ("paths", "/events", "post", "requestBody", "content")
_CITY = {"$ref": "#/components/schemas/City"}
_OFFER = {"$ref": "#/components/schemas/Offer"}
_ORGANIZER = {"type": "object", "required": ["organizer"], "properties": {"organizer": _CITY}}
_NEEDED = ("organizer", "`organizer` is required")
_UUID = {"type": "string", "format": "uuid"}
_OTHER_ERRORS = {"type": "object", "properties": {"errors": {"type": "array"}}}
_TENANT = {"name": "X-Tenant", "in": "header", "required": True, "schema": {"type": "string"}}
_IN_A_HEADER = {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
_media_field = _form(picture={"type": "string"})
_loops = _both(_put(*_SCHEMAS, "Offer", _OFFER), _put(*_SCHEMAS, "City", {"allOf": [_CITY] * 4}))
_hostile_pattern = _both(
    _set("properties/timezone/pattern", "^(a+)+$(?<name>x)"),
    _set("properties/status/pattern", "^(([a-z])+.)+[A-Z]([a-z])+$|" + "x*" * 200),
)


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        (_both(_add(organizer={"type": "string"}), _require("organizer")), *_NEEDED),
        (_composed(lambda own: {"allOf": [own, _ORGANIZER]}), *_NEEDED),
        (_composed(lambda own: {"oneOf": [{"allOf": [own, {"required": ["organizer"]}]}, {"type": "string"}]}), *_NEEDED),
        (_renamed_title, "headline", "perhaps `title` was renamed to it"),
        (_closed_without("status"), "status", "no field `status`, and others are not allowed"),
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
        (_put("servers", [{"url": "https://events.example.org/api/public/v2"}]), "POST /api/public/v2/events"),
        (_put(*_CREATED, {"type": "object", "properties": {"event": {"type": "object"}}}), "it has no `doc`"),
        (_put(*_SCHEMAS, "CreatedEvent", "properties", "id", _UUID), "`doc.id` is of the type `string`"),
        (_put("components", "securitySchemes", "apiKey", _IN_A_HEADER), "no bearer key"),
        (lambda tree: create(tree)["parameters"].append(_TENANT), "`X-Tenant` is required"),
        (_put(*_BODY, {"application/x-www-form-urlencoded": {"schema": {}}}), "we send application/json"),
        (lambda tree: create(tree)["parameters"][0]["schema"].update(maxLength=32), "at most 32 characters"),
        (_put(*_SCHEMAS, "Channel", "properties", "id", {"type": "string"}), "`docs[].id` is of the type `string`"),
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
        (_require("locationName"), "rows without it would be refused"),
        (lambda tree: event(tree)["properties"].pop("locationName"), "may be ignored"),
        (lambda tree: create(tree).update(deprecated=True), "it is deprecated"),
        (_put("paths", "/events", "post", "parameters", []), "no header `Idempotency-Key`"),
        (_put(*_SCHEMAS, "ErrorEnvelope", _OTHER_ERRORS), "we read `error.code`"),
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


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *((lambda _: None, "file"), (_media_field, ""), (_no_media, "")),
        (_form(caption={"type": "string"}, picture={"type": "string", "format": "binary"}), "picture"),
    ],
)
def test_the_field_for_images_is_read_from_the_page(change: Change, field: str) -> None:
    assert upload_field(page(tree_with(change))) == field


def _optional_growth(tree: Tree) -> None:
    _add(audience={"type": "string"}, id={"type": "integer", "readOnly": True})(tree)
    _require("id")(tree)
    tree["paths"]["/venues"] = {"get": {"responses": {}}}


def _whole_paths(tree: Tree) -> None:
    tree["paths"] = {f"/api/public/v1{path}": item for path, item in tree["paths"].items()}
    tree["servers"] = [{"url": "https://{region}.example.org/"}]


_TEXT: Tree = {"type": "string"}
_nullable_30 = _add(endAt={**_TEXT, "format": "date-time", "nullable": True}, locationName={"allOf": [_TEXT], "nullable": True})
_nullable_31 = _both(
    _put("openapi", "3.1.0"),
    _add(endAt={"oneOf": [{**_TEXT, "format": "date-time"}, {"type": "null"}]}, title={"type": ["string", "null"]}),
    _set("properties/approxLocation", {"$ref": "#/components/schemas/ApproxLocation", "description": "Where."}),
)
_broken_references = _add(
    title={"$ref": "https://elsewhere.example/title.yaml"}, offers={"$ref": "#/components/schemas/Nowhere~1"}
)


@pytest.mark.parametrize(
    "change",
    [
        _both(_closed_without("locationName"), _set("additionalProperties", _TEXT)),
        _set("properties/title", {"type": "text", "format": "markdown"}),
        _nullable_30,
        _nullable_31,
        _optional_growth,
        _composed(lambda own: {"anyOf": [{"type": "object", "required": ["ics"], "properties": {"ics": _TEXT}}, own]}),
        _set("properties/channelId", {"type": "number", "minimum": 1}),
        _whole_paths,
        lambda tree: tree.pop("servers"),
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


_ATOMS = st.sampled_from([None, False, True, -5, 0, 5, "string", "object", "array", "integer", "#/components", "x"])
_NAMES = ["type", "properties", "required", "allOf", "oneOf", "items", "enum", "$ref", "title", "maxLength", "pattern"]
_JSON = st.recursive(
    _ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=12,
)
_PLACES: dict[str, tuple[str, ...]] = {
    "schema": (*_SCHEMAS, "EventCreate"),
    "operation": ("paths", "/events", "post"),
    "item": ("paths", "/events"),
    "parameters": ("paths", "/events", "post", "parameters"),
    "responses": ("paths", "/events", "post", "responses"),
    **{place: (place,) for place in ("components", "servers", "security")},
}


@given(st.sampled_from(list(_PLACES.values())), _JSON)
def test_a_page_of_any_shape_is_compared_without_a_fault(place: tuple[str, ...], strange: Any) -> None:
    compare(tree_with(_put(*place, strange)), feed())


_BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (level, level, b", ".join([b"*a%d" % (level - 1)] * 10)) for level in range(1, 30)
)


def test_the_specified_page_is_read_as_the_safe_loader_reads_it_in_yaml_and_in_json() -> None:
    as_json = json.dumps(yaml.load(SPECIFIED, Loader=yaml.CSafeLoader))
    assert read_page(SPECIFIED) == read_page(as_json.encode()) == json.loads(as_json)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("[no, on, 2026-10-01, 1_000, 0x1f, 1:30, '5']", ["no", "on", "2026-10-01", "1_000", "0x1f", "1:30", "5"]),
        ("[010, 5, 1.5, true, ~]", [10, 5, 1.5, True, None]),
        ("&x {type: string, 200: ok}\ny: *x", {"type": "string", "200": "ok"}),
    ],
    ids=["words that look like something else", "numbers and values", "anchors"],
)
def test_values_are_read_as_json_has_them(text: str, read: object) -> None:
    found = read_page(f"openapi: 3.1.0\npaths: {{/a: {{}}}}\nx: {text}".encode())
    assert isinstance(found, dict)
    assert found["x"] == found.get("y", read) == read


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not a description of an API"),
        (b"<!doctype html><title>Sign in</title>", "looks like an HTML page"),
        (b'{"error": {"code": "not_found"}}', "does not say that it is OpenAPI"),
        (b"swagger: '2.0'\npaths: {/a: {}}", "OpenAPI 2.0"),
        (b"openapi: 3.0.3\npaths: {}", "describes no path"),
        (b"openapi: 3.0.3\npaths: [1", "not YAML"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"\x00\x01", "not YAML"),
        (b"openapi: &a [*a]", "refers to itself"),
        (b"*unknown", "refers to itself"),
        (b"[" * 100_000, "nested deeper"),
        (b"{a: " * 100_000, "nested deeper"),
        (_BOMB, "more than"),
        (b"openapi: 3.0.3\nx: |\n" + b"  text\n" * 200_000, "larger than 1 MB"),
        (b"openapi: 3.0.3\nx:\n" + b" - a\n" * 150_000, "more than"),
        (b"a: !!python/object/apply:os.system [true]", "not YAML"),
    ],
)
def test_what_is_no_description_is_told_and_costs_little(body: bytes, says: str) -> None:
    began = process_time()
    read = read_page(body)
    assert isinstance(read, NoPage)
    assert says in read.why
    assert process_time() - began < 3


@given(st.binary(max_size=300) | st.text(alphabet="openapi:3.0{}[]&*a-!|> \n'\"%,?<", max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused_and_nothing_is_raised(body: bytes) -> None:
    assert len(body) < LONGEST_PAGE
    assert isinstance(read_page(body), dict | NoPage)
