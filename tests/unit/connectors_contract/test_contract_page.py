"""Reading the OpenAPI page: whatever lies there, the reading ends soon and says what it found."""

from __future__ import annotations

import json
from time import process_time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from unit.connectors_contract.pages import SPECIFIED

from connectors.event_api.openapi import LONGEST_PAGE, NoPage, read_page

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
