"""The service's OpenAPI page: fetches it, parses it to a tree, and reads its operations and schemas.

The page is untrusted, so its bytes, depth and number of values are limited, and references and alternatives are followed in
limited time. It is parsed by the rules of YAML 1.2: PyYAML's safe loader converts dates, octal numbers and `no`, which a page
means as text, and follows merge keys without limit.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

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


_METHODS = ("get", "post", "put", "patch", "delete")
_VARIABLE = re.compile(r"\{[^}]*\}")
_DEEPEST_SCHEMA = 24
"""The most nested references and `allOf`; deeper schemas count as without requirements."""
_MOST_READS = 4_000
"""The most schemas read of one page; further schemas count as without requirements."""
_MOST_CHOICES = 16
_LONGEST_NAME = 100
"""The longest field name; longer ones are not compared, to keep them out of messages."""
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def get(node: object, name: str, kind: type[T]) -> T:
    """Return a node's value under `name`, an empty `kind` if it has another type."""
    value = node.get(name) if isinstance(node, dict) else None
    return value if isinstance(value, kind) else kind()


def _nodes(node: object, name: str) -> list[Node]:
    return [one for one in get(node, name, list) if isinstance(one, dict)]


@dataclass(frozen=True, slots=True)
class Schema:
    """The requirements on one value: it must fit all `parts`, schemas with references and `allOf` resolved."""

    parts: tuple[Node, ...]

    def all(self, word: str, kind: type[T]) -> list[T]:
        """Return the values of a keyword such as `maxLength` in all parts, if they have the right type."""
        return [part[word] for part in self.parts if isinstance(part.get(word), kind)]

    @property
    def types(self) -> frozenset[str] | None:
        """The allowed types, None for any; without `null`, which we never send. Unknown types are ignored."""
        found: frozenset[str] | None = None
        for part in self.parts:
            names = _TYPES.intersection(one for one in (get(part, "type", list) or [part.get("type")]) if isinstance(one, str))
            if names:
                names |= {"integer"} if "number" in names else set()
                found = names if found is None else found & names
        return None if found is None else found - {"null"}

    @property
    def properties(self) -> dict[str, Node]:
        """The described fields, each with the requirements of all parts."""
        found: dict[str, list[Node]] = {}
        for properties in self.all("properties", dict):
            for name, node in properties.items():
                if isinstance(node, dict) and len(name) <= _LONGEST_NAME:
                    found.setdefault(name, []).append(node)
        return {name: nodes[0] if len(nodes) == 1 else {"allOf": nodes} for name, nodes in found.items()}

    @property
    def required(self) -> list[str]:
        """The required fields, sorted by name."""
        names = {name for part in self.all("required", list) for name in part if isinstance(name, str)}
        return sorted(name for name in names if len(name) <= _LONGEST_NAME)

    @property
    def allowed(self) -> list[str] | None:
        """The allowed values, None for any."""
        lists = [[part["const"]] if "const" in part else part.get("enum") for part in self.parts]
        texts = [[str(one) for one in values if one is not None] for values in lists if isinstance(values, list)]
        return [one for one in texts[0] if all(one in others for others in texts)] if texts else None


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `path`: the full path including the server's; `parameters`: by place and lower-case name."""

    method: str
    path: str
    node: Node
    parameters: dict[tuple[str, str], Node]
    security: list[Node]


class Description:
    """The operations and schemas of one page. An unresolvable or external reference counts as without requirements."""

    def __init__(self, tree: Node) -> None:
        self._tree = tree
        self._reads = 0
        self._operations: list[Operation] = []
        for path, described in get(tree, "paths", dict).items():
            item = self.resolve(described)
            self._operations += [self._operation(one, path, item) for one in _METHODS if isinstance(item.get(one), dict)]

    def _operation(self, method: str, path: str, item: Node) -> Operation:
        node: Node = item[method]
        servers = _nodes(node, "servers") or _nodes(item, "servers") or _nodes(self._tree, "servers") or [{}]
        resolved = [self.resolve(one) for one in (*_nodes(item, "parameters"), *_nodes(node, "parameters"))]
        parameters = {(str(one.get("in")), str(one.get("name")).lower()): one for one in resolved}
        security = _nodes(node if "security" in node else self._tree, "security")
        return Operation(method.upper(), f"{_path_of(servers[0].get('url'))}/{path.strip('/')}", node, parameters, security)

    def find(self, method: str, path: str) -> Operation | None:
        """Return the operation at one of our paths, None if there is none; a page without a server may omit our prefix."""
        same = [one for one in self._operations if one.method == method]
        fitting = [one for one in same if one.path.endswith(path)]
        if not self._tree.get("servers"):
            fitting += [one for one in same if path.endswith(one.path)]
        return next(iter(fitting), None)

    def resolve(self, node: object) -> Node:
        """Return the mapping that `$ref` refers to, merged with its siblings; empty if there is none."""
        beside: Node = {}
        for _ in range(_DEEPEST_SCHEMA):
            reference = get(node, "$ref", str)
            if not isinstance(node, dict) or not reference:
                return {**node, **beside} if isinstance(node, dict) else beside
            beside = {**{name: part for name, part in node.items() if name != "$ref"}, **beside}
            node = self._tree if reference.startswith("#/") else None
            for step in unquote(reference[2:]).split("/"):
                node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        return beside

    def read(self, node: object, depth: int = 0) -> list[Schema]:
        """Return the schemas of which a value must fit one: several for `oneOf` and `anyOf`. Never raises."""
        self._reads += 1
        if depth > _DEEPEST_SCHEMA or self._reads > _MOST_READS:
            return [Schema(())]
        plain = self.resolve(node)
        choices = [Schema((plain,))]
        alternatives = [self.read(part, depth + 1) for part in get(plain, "allOf", list)]
        for word in ("oneOf", "anyOf"):
            others = [one for part in get(plain, word, list)[:_MOST_CHOICES] for one in self.read(part, depth + 1)]
            alternatives.append([one for one in others if one.types != frozenset()])  # `null` alone is no choice
        for others in filter(None, alternatives):
            choices = [Schema((*one.parts, *other.parts)) for one, other in product(choices, others)][:_MOST_CHOICES]
        return choices

    def request_types(self, operation: Operation | None) -> dict[str, Node]:
        """Return the schemas of the request's body by media type, in lower case and without parameters."""
        return self._content(operation.node.get("requestBody")) if operation else {}

    def answer_schema(self, operation: Operation, first_digit: str) -> Node | None:
        """Return the JSON schema of the first answer whose status begins with the digit, None if the page has none."""
        answers = get(operation.node, "responses", dict)
        status = next((one for one in sorted(answers) if one.startswith(first_digit)), "default")
        return next((schema for kind, schema in self._content(answers.get(status)).items() if "json" in kind), None)

    def _content(self, node: object) -> dict[str, Node]:
        content = get(self.resolve(node), "content", dict)
        return {kind.partition(";")[0].strip().lower(): get(part, "schema", dict) for kind, part in content.items()}

    def takes_bearer(self, requirement: Node) -> bool:
        """Return whether `Authorization: Bearer` satisfies a security requirement; undefined schemes count as satisfied."""
        schemes = get(get(self._tree, "components", dict), "securitySchemes", dict)
        return all(_is_bearer(self.resolve(schemes.get(name))) for name in requirement)


def _path_of(server: object) -> str:
    """Return the path of a server's address without the last slash, "" if it cannot be parsed."""
    try:
        path = urlsplit(_VARIABLE.sub("x", server)).path if isinstance(server, str) else ""
    except ValueError:
        return ""
    return f"/{path.strip('/')}" if path.strip("/.") else ""


def _is_bearer(scheme: Node) -> bool:
    if scheme.get("type") == "apiKey":
        return (scheme.get("in"), str(scheme.get("name")).lower()) == ("header", "authorization")
    return scheme.get("type") != "mutualTLS" and str(scheme.get("scheme", "bearer")).lower() == "bearer"
