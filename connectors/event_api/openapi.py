"""The service's OpenAPI page: fetches it, parses it to a tree, and finds the schemas of what we send.

The page is untrusted, so its bytes, depth and number of values are limited, also with its references replaced. It is parsed by
the rules of YAML 1.2: PyYAML's safe loader converts dates, octal numbers and `no`, which a page means as text, and follows merge
keys without limit.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

import yaml

from connectors.event_api.answers import HttpAnswer
from connectors.event_api.transport import ServiceHttp

Node = dict[str, Any]
T = TypeVar("T")
PAGE_PATH = "/api/developer/openapi/public-api-v1"
"""The path of the page: public, YAML (spec, Versioning)."""
PATIENCE_S = 3.0
"""The longest that a run waits for the page, in seconds."""
LONGEST_PAGE = 1 << 20
"""The largest page, in bytes."""
MOST_NODES, DEEPEST = 100_000, 64
"""The most values of a page and its deepest nesting; real descriptions stay below 25 levels."""
_LONGEST_ETAG = 200
_OPENAPI_3 = re.compile(r"3\.[0-9]+(\.[0-9]+)?.*")


@dataclass(frozen=True, slots=True)
class PageBody:
    """The page's bytes, and its `ETag` for the next request, "" if none."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class NoPage:
    """Why there is no page to compare with, for people."""

    why: str


async def fetch_page(http: ServiceHttp, etag: str = "") -> PageBody | NoPage | None:
    """Request the page once, without the key; return None if it is unchanged since `etag`. Never raises because of an answer."""
    headers = {"accept": "application/yaml, text/yaml, */*;q=0.1"} | ({"if-none-match": etag} if etag else {})
    request = http.request("GET", http.url(PAGE_PATH, prefix=""), headers=headers, has_key=False)
    try:
        async with asyncio.timeout(PATIENCE_S):
            answer = await http.exchange(request)
    except TimeoutError:
        return NoPage(f"the page did not come within {PATIENCE_S:.0f} seconds")
    if not isinstance(answer, HttpAnswer):
        return NoPage(f"the page could not be fetched: {answer.answer.message if answer else 'not sent'}")
    if answer.status == 304 and etag:
        return None
    if answer.status != 200:
        return NoPage(f"{PAGE_PATH} answers {answer.status}")
    tag = answer.headers.get("etag", "")
    return PageBody(answer.body, tag if tag.isascii() and tag.isprintable() and len(tag) <= _LONGEST_ETAG else "")


class _PageLoader(yaml.CSafeLoader):
    """Parses unquoted scalars as YAML 1.2, and all names as text; `<<` is an ordinary name."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  # PyYAML's own registry, filled below

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        return {str(name): value for name, value in super().construct_mapping(node, deep).items()}


for _type, _pattern, _first in (
    ("null", "~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", "[-+]?(0|[1-9][0-9]*)", [*"-+0123456789"]),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
):
    _PageLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_type}", re.compile(f"({_pattern})$"), _first)


def read_page(body: bytes) -> Node | NoPage:
    """Parse a page to a tree with text keys. Never raises; its length limits time and memory."""
    try:
        return _openapi(body)
    except UnicodeDecodeError:
        return NoPage("the page is not UTF-8 text")
    except (ValueError, yaml.YAMLError) as problem:
        is_html = body[:200].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<head"))
        why = f"is not YAML ({str(problem).splitlines()[0][:120]})" if isinstance(problem, yaml.YAMLError) else str(problem)
        return NoPage(f"the page {why}{': it looks like an HTML page' if is_html else ''}")


def _openapi(body: bytes) -> Node:
    if len(body) >= LONGEST_PAGE:
        raise ValueError(f"is larger than {LONGEST_PAGE >> 20} MB")
    text = body.decode("utf-8-sig")
    nodes, begun, sizes = 0, list[tuple[str | None, int]](), dict[str | None, int]()
    for event in yaml.parse(text, Loader=_PageLoader):  # an alias counts with all that it stands for
        if isinstance(event, yaml.AliasEvent):
            nodes += sizes.get(event.anchor, MOST_NODES)
        elif isinstance(event, yaml.CollectionStartEvent):
            begun.append((event.anchor, nodes))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = begun.pop()
            nodes += 1
            sizes[anchor] = nodes - before
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            sizes[event.anchor] = 1
        if len(begun) > DEEPEST or nodes >= MOST_NODES:
            raise ValueError(f"is nested deeper than {DEEPEST} levels, refers to itself or holds more than {MOST_NODES} values")
    tree = yaml.load(text, Loader=_PageLoader)  # noqa: S506  # a safe loader
    version = str(tree.get("openapi", tree.get("swagger", ""))) if isinstance(tree, dict) else ""
    if not version:
        raise ValueError("is not a description of an API: it does not say that it is OpenAPI")
    if not _OPENAPI_3.fullmatch(version):
        raise ValueError(f"is OpenAPI {version[:20]}; only 3.0 and 3.1 can be read")
    if not get(tree, "paths", dict):
        raise ValueError("describes no path")
    described: Node = tree
    return described


_MOST_INLINED = 1_000
"""The most objects of a schema whose references are replaced; further parts ask for nothing."""


def get(node: object, name: str, kind: type[T]) -> T:
    """Return a node's value under `name`, an empty `kind` if it has another type."""
    value = node.get(name) if isinstance(node, dict) else None
    return value if isinstance(value, kind) else kind()


def body_schemas(page: Node, path: str) -> dict[str, Node]:
    """Return the schemas of the body of POST `path` by media type, in lower case; {} if the page does not describe it.

    References are replaced by what they refer to, in bounds of depth and size. The address of the server is not compared.
    """
    found = {place: node for place, node in get(page, "paths", dict).items() if f"/{place.strip('/')}".endswith(path)}
    operation = get(_resolved(page, found[min(found, key=len)]), "post", dict) if found else {}
    content = get(_resolved(page, operation.get("requestBody")), "content", dict)
    schemas = {kind.partition(";")[0].strip().lower(): get(part, "schema", dict) for kind, part in content.items()}
    return {kind: _Inliner(page).inlined(schema) for kind, schema in schemas.items()}


def _resolved(page: Node, node: object) -> object:
    """Return what a local reference refers to, {} if it leads nowhere; a node without one as it is."""
    for _ in range(DEEPEST):
        reference = get(node, "$ref", str)
        if not reference:
            return node
        node = page if reference.startswith("#/") else None
        for step in unquote(reference[2:]).split("/"):
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        node = {} if node is None else node
    return {}


class _Inliner:
    """Replaces the references of schemas by what they refer to, so that a page cannot make a validator follow them for ever."""

    def __init__(self, page: Node) -> None:
        self._page = page
        self._left = _MOST_INLINED

    def inlined(self, node: Node, depth: int = 0) -> Node:
        """Return a schema without references. What only answers have (`readOnly`) is not required."""
        if self._left < 0 or depth >= DEEPEST:
            return {}
        self._left -= 1
        plain = {name: self._value(value, depth) for name, value in node.items() if not name.startswith("$")}
        if "$ref" in node:
            there = self._value(_resolved(self._page, node), depth)
            plain["allOf"] = [*get(plain, "allOf", list), there]
        given = {name for name, part in get(plain, "properties", dict).items() if get(part, "readOnly", bool)}
        if isinstance(plain.get("required"), list) and given:
            plain["required"] = [name for name in plain["required"] if name not in given]
        return plain

    def _value(self, value: object, depth: int) -> Any:
        if isinstance(value, list):
            return [self._value(one, depth) for one in value]
        return self.inlined(value, depth + 1) if isinstance(value, dict) else value
