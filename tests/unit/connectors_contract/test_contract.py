"""Reading the OpenAPI page, and what it would refuse of the payloads that we send: found, with its severity, never invented."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from connectors.event_api.contract_check import compare, upload_field
from connectors.event_api.openapi import LONGEST_PAGE, Node, NoPage, read_page
from mappings.delivery import Drift
from mappings.examples import example_bodies
from mappings.yaml.loader import load_feed

ROOT = Path(__file__).parents[3]
SPECIFIED = (ROOT / "sandbox" / "public-api-v1.yaml").read_bytes()
TREE: dict[str, Any] = yaml.load(SPECIFIED, Loader=yaml.CSafeLoader)
FEEDS = sorted([*(ROOT / "mappings" / "feeds").glob("*.yaml"), *(ROOT / "tests" / "feeds").glob("[!_]*.yaml")])
PLACES = {
    "create": "paths./events.post",
    "created": "components.responses.EventCreated.content.application/json.schema",
    "event": "components.schemas.EventCreate",
    "images": "paths./media.post.requestBody.content.image/*",
    "field": "components.schemas.EventCreate.properties",
    "schema": "components.schemas",
    "upload": "paths./media.post.requestBody.content.multipart/form-data.schema",
}


def payloads(name: str = "lisbon-agenda") -> list[bytes]:
    return example_bodies(load_feed(ROOT / "mappings" / "feeds" / f"{name}.yaml"))


def at(tree: Any, place: str) -> tuple[Any, Any]:
    """Return what holds a place of the page, and the name or the number of the place in it."""
    first, *rest = place.split(".")
    *outer, last = [int(name) if name.isdigit() else name for name in (*PLACES.get(first, first).split("."), *rest)]
    return reduce(lambda inner, name: inner[name], outer, tree), last


def changed(changes: str) -> Any:
    """Return the page with changes: `place = YAML`, `place += one more`, `place gone`; OF(place) is what stood there."""
    tree = deepcopy(TREE)
    for change in filter(None, changes.split(" & ")):
        place, sign, written = change.partition(" += " if " += " in change else " = ")
        holder, last = at(tree, place.removesuffix(" gone"))
        if not sign:
            del holder[last]
            continue
        found = [(one, at(tree, one)) for one in re.findall(r"OF\(([^)]+)\)", written)]
        for one, (outer, name) in found:
            written = written.replace(f"OF({one})", json.dumps(outer[name]))
        value = yaml.safe_load(written)
        holder[last] = [*holder[last], value] if "+" in sign else value
    return tree


def page(tree: Any) -> Node:
    read = read_page(json.dumps(tree).encode())
    assert not isinstance(read, NoPage)
    return read


def drifts(changes: str, bodies: list[bytes] | None = None) -> tuple[Drift, ...]:
    """Return what the page with these changes would refuse of a feed's payloads."""
    found = compare(page(changed(changes)), bodies or payloads())
    assert not isinstance(found, NoPage), found
    return found


@pytest.mark.parametrize("path", FEEDS, ids=lambda path: path.stem)
def test_the_specified_page_accepts_every_feed(path: Path) -> None:
    assert compare(page(TREE), example_bodies(load_feed(path, folders=(ROOT,)))) == ()


ERRORS = """
organizer: field.organizer = {type: string} & event.required += organizer => `organizer` is required; we do not send it
organizer: event = {allOf: [OF(event), {required: [organizer], properties: {organizer: {}}}]} => `organizer` is required
organizer: event = {oneOf: [{allOf: [OF(event), {required: [organizer]}]}, {type: string}]} => `organizer` is required
organizer: openapi = 3.1.0 & schema.More = {required: [organizer]} & event.$ref = '#/components/schemas/More' => is required
titleLine: field.titleLine = OF(field.title) & field.title gone & event.required.1 = titleLine => perhaps `title` was renamed
status: field.status gone & event.additionalProperties = false => no field `status`, and others are not allowed
channelId: field.channelId = {type: string, format: uuid} => of the type string
channelId: field.channelId = {type: [string, "null"]} => of the type string or null
classifications[]: field.classifications.items = {type: integer} => of the type integer
startAt: field.startAt = {type: string, pattern: "^[0-9-]{10}$"} => pattern is `^[0-9-]{10}$`
startAt: field.startAt = {type: string, maxLength: 10} => at most 10 characters; we send 25: 2 of 2 payloads would be refused
status: field.status = {enum: [review, live]} => one of `review`, `live`
status: field.status = {const: live} => one of `live`
""".strip().split("\n")


@pytest.mark.parametrize("case", ERRORS)
def test_what_would_refuse_every_payload_is_an_error_of_its_field(case: str) -> None:
    field, _, change = case.partition(": ")
    found = drifts(change.partition(" => ")[0])
    assert found[0].severity == "error"
    assert found[0].fields == (field,)
    assert change.partition(" => ")[2] in str(found[0])


def test_what_would_refuse_some_payloads_is_a_warning() -> None:
    long, short = (json.dumps({**json.loads(payloads()[0]), "title": title}).encode() for title in ("x" * 99, "x"))
    (found,) = drifts("field.title.maxLength = 60", [long, short])
    assert (found.severity, found.fields) == ("warning", ("title",))
    assert "we send 99: 1 of 2 payloads would be refused; shorten it with the step `{truncate: 60}`" in str(found)


AS_TEXT = "upload = {type: object, required: [picture], properties: {picture: {type: string}}} & images gone"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        *(("", "file"), (AS_TEXT, ""), ("paths./media gone", "")),
        ("images gone & upload.properties = {caption: {type: string}, picture: OF(upload.properties.file)}", "picture"),
    ],
)
def test_the_field_for_images_is_read_from_the_page(changes: str, field: str) -> None:
    assert upload_field(page(changed(changes))) == field


LOOPS = """schema.Offer = {$ref: '#/components/schemas/Offer'} & schema.City = {allOf: [{$ref: '#/components/schemas/City'},
{$ref: '#/components/schemas/City'}, {$ref: '#/components/schemas/City'}, {$ref: '#/components/schemas/City'}]}"""
HARMLESS = r"""
field.locationName gone & event.additionalProperties = {type: string}
field.title.format = date
openapi = 3.1.0 & field.endAt = {oneOf: [OF(field.endAt), {type: "null"}]} & field.title = {type: [string, "null"]}
field.id = {type: integer, readOnly: true} & event.required += id & paths./venues = {get: {}}
event = {anyOf: [{type: object, required: [ics], properties: {ics: {type: string}}}, OF(event)]}
field.channelId = {type: number, minimum: 1}
servers gone
field.timezone.pattern = ^(a+)+$(?=x)
field.title = {$ref: https://elsewhere.example/title.yaml} & field.offers = {$ref: '#/components/schemas/Nowhere~1'}
""".strip().split("\n")
MOVED = ", ".join(f"/api/public/v1{path}: OF(paths.{path})" for path in TREE["paths"])
WHOLE_PATHS = f"servers = [{{url: 'https://{{region}}.example.org/'}}] & paths = {{{MOVED}}}"


@pytest.mark.parametrize("changes", [*HARMLESS, LOOPS, WHOLE_PATHS])
def test_what_refuses_nothing_is_no_difference(changes: str) -> None:
    assert drifts(changes) == drifts(changes, payloads("krakow-culture")) == ()


@pytest.mark.parametrize("changes", ["paths./events gone", "create.requestBody gone", "field.title.maxLength = many"])
def test_a_page_whose_event_cannot_be_read_says_why(changes: str) -> None:
    assert isinstance(compare(page(changed(changes)), payloads()), NoPage)


SLOW = " & ".join(f"field.{name}.pattern = ^{'.*' * 90}$#" for name in ("timezone", "status"))
SLOW += " & field.startAt.pattern = ^(.+)(.+)(.+)#$"
ENDLESS = f"event.required = [{'x' * 100_000}, {', '.join(f'field{number}' for number in range(20_000))}]"
DOUBLING = " & ".join(
    f"schema.D{n} = {{allOf: [{{$ref: '#/components/schemas/D{n + 1}'}}, {{$ref: '#/components/schemas/D{n + 1}'}}]}}"
    for n in range(40)
)


@pytest.mark.parametrize("changes", [SLOW, ENDLESS, LOOPS, f"{DOUBLING} & field.title = {{$ref: '#/components/schemas/D0'}}"])
def test_a_page_made_to_be_slow_is_compared_in_the_end_and_told_briefly(changes: str) -> None:
    """Without bounds, each of these pages takes longer than people live."""
    assert len(str(compare(page(changed(changes)), payloads()))) < 50_000


ATOMS = st.sampled_from([None, False, True, -5, 0, 5, "string", "object", "array", "integer", "#/components", "x"])
NAMES = ["type", "properties", "required", "allOf", "oneOf", "items", "enum", "$ref", "title", "maxLength", "pattern"]
JSON = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
ANYWHERE = ["event", "create", "paths./events", "create.parameters", "create.responses", "components", "servers", "security"]


@given(st.sampled_from(ANYWHERE), JSON)
def test_a_page_of_any_shape_is_compared_without_a_fault(place: str, strange: Any) -> None:
    tree = deepcopy(TREE)
    holder, last = at(tree, place)
    holder[last] = strange
    compare(tree, payloads())


BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (level, level, b", ".join([b"*a%d" % (level - 1)] * 10)) for level in range(1, 30)
)


def test_the_specified_page_is_read_as_the_safe_loader_reads_it_in_yaml_and_in_json() -> None:
    assert read_page(SPECIFIED) == page(TREE) == TREE


def test_values_are_read_as_json_has_them() -> None:
    words = "[no, on, 2026-10-01, 1_000, 0x1f, 1:30, '5']"
    text = f"openapi: 3.1.0\npaths: {{/a: {{}}}}\nwords: {words}\nvalues: [010, 5, 1.5, true, ~]\nx: &x {{200: ok}}\ny: *x"
    found = read_page(text.encode())
    assert isinstance(found, dict)
    assert found["words"] == ["no", "on", "2026-10-01", "1_000", "0x1f", "1:30", "5"]
    assert (found["values"], found["x"], found["y"]) == ([10, 5, 1.5, True, None], {"200": "ok"}, {"200": "ok"})


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
        (BOMB, "more than"),
        (b"openapi: 3.0.3\nx: |\n" + b"  text\n" * 200_000, "larger than 1 MB"),
        (b"openapi: 3.0.3\nx:\n" + b" - a\n" * 150_000, "more than"),
        (b"a: !!python/object/apply:os.system [true]", "not YAML"),
    ],
)
def test_what_is_no_description_is_told(body: bytes, says: str) -> None:
    read = read_page(body)
    assert isinstance(read, NoPage)
    assert says in read.why


@given(st.binary(max_size=300) | st.text(alphabet="openapi:3.0{}[]&*a-!|> \n'\"%,?<", max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused_and_nothing_is_raised(body: bytes) -> None:
    assert len(body) < LONGEST_PAGE
    assert isinstance(read_page(body), dict | NoPage)
