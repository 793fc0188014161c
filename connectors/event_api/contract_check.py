"""Contract check: the service's OpenAPI page compared with what a feed can send and with what the worker relies upon.

jsonschema validates single documents. Here the question is what all rows of a feed may send (of any value, or of a few; always,
or in some rows), and the page is a stranger's: references, alternatives and patterns are followed in bounded time only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import yaml
from rapidfuzz import fuzz, process

from connectors.event_api.answers import API_PREFIX
from connectors.event_api.lists import PAGE_SIZE
from connectors.event_api.media import LONGEST_KEY_END
from connectors.event_api.transport import Exchange, HttpAnswer
from mappings.outgoing import Outgoing
from mappings.patterns import PatternError, compile_pattern
from mappings.row_key import FeedName, RowKey, idempotency_key

LONGEST_PAGE = 1 << 20
"""Bytes of the longest page that is read."""
MOST_NODES = 100_000
"""The most values of a page, each alias counted with all that it stands for."""
DEEPEST = 64
"""The deepest nesting of a page; a description that people write stays below 25."""
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]{1,18}(\.[0-9]*)?)([eE][-+]?[0-9]{1,2})?")
_WORDS: Mapping[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_VERSION = re.compile(r"3\.[0-9]+(\.[0-9]+)?.*")


@dataclass(frozen=True, slots=True)
class ContractPage:
    """A page that describes an API in OpenAPI 3: `tree` is its root, every mapping with texts for keys."""

    tree: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NoPage:
    """Why what lies there could not be compared, in words for people."""

    why: str


class _TooMuchError(Exception):
    """The page is larger inside than any description of an API."""


def read_page(body: bytes) -> ContractPage | NoPage:
    """Read the bytes of a page. Never raises, and takes time and memory in proportion to the page's length at most."""
    if len(body) >= LONGEST_PAGE:
        return NoPage(f"the page is larger than {LONGEST_PAGE >> 20} MB")
    try:
        tree = _Builder().build(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return NoPage("the page is not UTF-8 text")
    except _TooMuchError as problem:
        return NoPage(str(problem))
    except yaml.YAMLError as problem:
        return NoPage(f"the page is not YAML ({_first_line(problem)}){_looks_like(body)}")
    if not isinstance(tree, dict):
        return NoPage(f"the page is not a description of an API{_looks_like(body)}")
    return _described(tree)


def _described(tree: dict[str, Any]) -> ContractPage | NoPage:
    version = str(tree.get("openapi", tree.get("swagger", "")))
    if not _VERSION.fullmatch(version):
        said = f"is of OpenAPI {version[:20]}, and 3.0 or 3.1 can be read" if version else "does not say that it is OpenAPI"
        return NoPage(f"the page {said}")
    paths = tree.get("paths")
    return ContractPage(tree) if isinstance(paths, dict) and paths else NoPage("the page describes no path")


@dataclass(slots=True)
class _Open:
    """A collection on its way: `children` in order, keys and values in turn for a mapping; `size` of all within."""

    is_mapping: bool
    anchor: str | None
    children: list[Any] = field(default_factory=list)
    size: int = 1


class _Builder:
    """Builds the tree from the parser's events, counting as it goes; aliases share what they stand for."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._known: dict[str, tuple[Any, int]] = {}
        self._root: Any = None

    def build(self, text: str) -> Any:
        for event in _events(text):
            match event:
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._begin(_Open(isinstance(event, yaml.MappingStartEvent), event.anchor))
                case yaml.CollectionEndEvent():
                    self._end()
                case yaml.ScalarEvent():
                    self._put(_scalar(event), 1, event.anchor)
                case yaml.AliasEvent():
                    self._put(*self._of_alias(event.anchor or ""), None)
                case _:
                    pass
        return self._root

    def _begin(self, opened: _Open) -> None:
        if len(self._open) >= DEEPEST:
            raise _TooMuchError(f"the page is nested deeper than {DEEPEST} levels")
        self._open.append(opened)

    def _end(self) -> None:
        ended = self._open.pop()
        value = _mapping(ended.children) if ended.is_mapping else ended.children
        self._put(value, ended.size, ended.anchor)

    def _put(self, value: Any, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._known[anchor] = value, size
        if not self._open:
            self._root = value
            return
        outer = self._open[-1]
        outer.children.append(value)
        outer.size += size
        if outer.size > MOST_NODES:
            raise _TooMuchError(f"the page holds more than {MOST_NODES} values")

    def _of_alias(self, anchor: str) -> tuple[Any, int]:
        if anchor not in self._known:
            raise _TooMuchError("the page refers to itself by an alias")
        return self._known[anchor]


def _events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of the first document."""
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.DocumentEndEvent):
            return
        yield event


def _mapping(children: list[Any]) -> dict[str, Any]:
    """Return keys and values as a mapping; a merge key (`<<`) brings what its mapping says otherwise."""
    pairs = [(_key(key), value) for key, value in zip(children[::2], children[1::2], strict=True)]
    own = dict(pairs)
    merged = own.pop("<<", None)
    for base in merged if isinstance(merged, list) else [merged]:
        if isinstance(base, dict):
            own = {**base, **own}
    return own


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key).lower()


def _scalar(event: yaml.ScalarEvent) -> Any:
    """Read a scalar as YAML 1.2's JSON schema does: everything that is quoted, or looks like nothing else, is text."""
    text: str = event.value
    if not event.implicit[0] or event.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _first_line(problem: yaml.YAMLError) -> str:
    return str(problem).partition("\n")[0][:120]


def _looks_like(body: bytes) -> str:
    head = body[:200].lstrip().lower()
    return ": it looks like an HTML page" if head.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")) else ""


PATH = "/api/developer/openapi/public-api-v1"
"""Where the page is: public, YAML (spec, Versioning)."""
PATIENCE_S = 3.0
"""The longest that a run waits for it."""
_LONGEST_ETAG = 200


@dataclass(frozen=True, slots=True)
class PageBody:
    """The page's bytes as they came, and the `ETag` to ask with next time, "" if there was none."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class PageUnchanged:
    """It is still the page of the `etag` handed in."""


PageAnswer = PageBody | PageUnchanged | NoPage


async def ask_page(exchange: Exchange, etag: str = "", *, patience_s: float = PATIENCE_S) -> PageAnswer:
    """Ask once for the page; with `etag`, only if it is another one by now. Never raises for what comes back."""
    headers = {"accept": "application/yaml, text/yaml, */*;q=0.1"} | ({"if-none-match": etag} if etag else {})
    request = exchange.request("GET", exchange.url(PATH, prefix=""), headers=headers, has_key=False)
    try:
        async with asyncio.timeout(patience_s):
            told = await exchange(request)
    except TimeoutError:
        return NoPage(f"the page did not come within {patience_s:.0f} seconds")
    if not isinstance(told, HttpAnswer):
        return NoPage(f"the page could not be fetched: {told.answer.message if told else 'not sent'}")
    return _meaning(told, etag)


def _meaning(told: HttpAnswer, etag: str) -> PageAnswer:
    if told.status == 304 and etag:
        return PageUnchanged()
    if told.status != 200:
        return NoPage(f"{PATH} answers {told.status}")
    tag = told.headers.get("etag", "")
    return PageBody(told.body, tag if tag.isascii() and tag.isprintable() and len(tag) <= _LONGEST_ETAG else "")


Node = Mapping[str, Any]
_DEEPEST = 24
"""References and `allOf` inside one another; what lies deeper is taken to demand nothing."""
_MOST_READS = 4_000
"""Schemas read of one page; beyond it, a page made to be slow, the rest is taken to demand nothing."""
_MOST_CHOICES = 16
_LONGEST_NAME = 100
"""Longer names of fields are no names: they are left out of messages, and so out of the comparison."""
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


@dataclass(frozen=True, slots=True)
class Schema:
    """The demands on one value: it must fit all of `parts`, which are schemas without references and `allOf`."""

    parts: tuple[Node, ...]

    @property
    def types(self) -> frozenset[str] | None:
        """The types allowed, None for any; `null` is left out, as we never send it. A word that is no type says nothing."""
        found: frozenset[str] | None = None
        for part in self.parts:
            told = part.get("type")
            names = {one for one in (told if isinstance(told, list) else [told]) if isinstance(one, str) and one in _TYPES}
            if names:
                names |= {"integer"} if "number" in names else set()
                found = frozenset(names if found is None else found & names)
        return None if found is None else found - {"null"}

    @property
    def properties(self) -> dict[str, Node]:
        """The fields described, each with all that the parts say of it."""
        told: dict[str, list[Node]] = {}
        for part in self.parts:
            for name, node in _mapping_of_contract_schema(part.get("properties")).items():
                if isinstance(node, Mapping) and len(name) <= _LONGEST_NAME:
                    told.setdefault(name, []).append(node)
        return {name: nodes[0] if len(nodes) == 1 else {"allOf": nodes} for name, nodes in told.items()}

    @property
    def required(self) -> frozenset[str]:
        """The fields that no value may lack."""
        names = (name for part in self.parts for name in _list(part.get("required")))
        return frozenset(name for name in names if isinstance(name, str) and len(name) <= _LONGEST_NAME)

    @property
    def is_open(self) -> bool:
        """Whether other fields are described without being named."""
        return any(isinstance(part.get("additionalProperties"), Mapping) or part.get("patternProperties") for part in self.parts)

    @property
    def is_closed(self) -> bool:
        """Whether no other fields are allowed."""
        closing = [one for one in self.parts if False in (one.get("additionalProperties"), one.get("unevaluatedProperties"))]
        return any(not part.get("patternProperties") for part in closing)

    @property
    def items(self) -> Node:
        """The schema of a list's items."""
        return {"allOf": [part["items"] for part in self.parts if "items" in part]}

    @property
    def allowed(self) -> tuple[Any, ...] | None:
        """The values allowed, None for any."""
        found: tuple[Any, ...] | None = None
        for part in self.parts:
            told = [part["const"]] if "const" in part else part.get("enum")
            if isinstance(told, list):
                found = tuple(one for one in told if one is not None and (found is None or one in found))
        return found

    @property
    def patterns(self) -> list[str]:
        """The regular expressions that a text must fit."""
        return [part["pattern"] for part in self.parts if isinstance(part.get("pattern"), str)]

    @property
    def form(self) -> str:
        """The `format` of a text, "" where none is named."""
        return next((str(part["format"])[:_LONGEST_NAME].casefold() for part in self.parts if part.get("format")), "")

    def least(self, word: str) -> int:
        """Return the greatest of the counts under `word`, as `minLength`; 0 where there is none."""
        return max(self._counts(word), default=0)

    def most(self, word: str) -> int | None:
        """Return the smallest of the counts under `word`, as `maxLength`; None where there is none."""
        return min(self._counts(word), default=None)

    def says(self, word: str) -> bool:
        """Whether one of the parts says so, as with `deprecated`."""
        return any(part.get(word) is True for part in self.parts)

    def _counts(self, word: str) -> list[int]:
        return [one for part in self.parts if isinstance(one := part.get(word), int) and not isinstance(one, bool) and one >= 0]


class SchemaReader:
    """Reads the schemas of one page, in bounded time. A reference that leads nowhere, or elsewhere, demands nothing."""

    def __init__(self, tree: Node) -> None:
        self._tree = tree
        self._reads = 0

    def resolved(self, node: object) -> Node:
        """Follow `$ref` to the mapping meant, beside what stands next to it; an empty one if there is none."""
        found = node
        kept: dict[str, Any] = {}
        for _ in range(_DEEPEST):
            if not isinstance(found, Mapping):
                return kept
            reference = found.get("$ref")
            if not isinstance(reference, str):
                return {**found, **kept} if kept else found
            kept = {**{name: part for name, part in found.items() if name != "$ref"}, **kept}
            found = self._at(reference)
        return kept

    def read(self, node: object, depth: int = 0) -> tuple[Schema, ...]:
        """Return the schemas of which a value must fit one: one, or several with `oneOf` and `anyOf`. Never raises."""
        self._reads += 1
        if depth > _DEEPEST or self._reads > _MOST_READS:
            return (Schema(()),)
        plain = self.resolved(node)
        choices: tuple[Schema, ...] = (Schema((plain,)),)
        for part in _list(plain.get("allOf")):
            choices = _joined(choices, self.read(part, depth + 1))
        for word in ("oneOf", "anyOf"):
            others = [one for part in _list(plain.get(word))[:_MOST_CHOICES] for one in self.read(part, depth + 1)]
            choices = _joined(choices, [one for one in others if one.types != frozenset()])  # `null` alone is no choice
        return choices

    def _at(self, reference: str) -> object:
        if not reference.startswith("#/"):
            return None
        found: object = self._tree
        for step in unquote(reference[2:]).split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found


def _joined(ones: Sequence[Schema], others: Sequence[Schema]) -> tuple[Schema, ...]:
    if not others:
        return tuple(ones)
    return tuple(Schema((*one.parts, *other.parts)) for one in ones for other in others)[:_MOST_CHOICES]


def _mapping_of_contract_schema(told: object) -> Node:
    return told if isinstance(told, Mapping) else {}


def _mappings(told: object) -> list[Node]:
    return [one for one in _list(told) if isinstance(one, Mapping)]


def _list(told: object) -> list[Any]:
    return told if isinstance(told, list) else []


_METHODS = ("get", "post", "put", "patch", "delete")
_VARIABLE = re.compile(r"\{[^}]*\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `path` is its whole path, the server's included."""

    method: str
    path: str
    node: Node
    parameters: tuple[Node, ...]
    security: tuple[Node, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Operations:
    """The operations of one page."""

    def __init__(self, tree: Node, reader: SchemaReader) -> None:
        self._tree = tree
        self._reader = reader
        self.all = tuple(self._every())

    def find(self, method: str, path: str) -> Operation | None:
        """Return the operation at a path of ours; a page that names no server may leave our prefix out."""
        ours = [one for one in self.all if one.method == method]
        fitting = [one for one in ours if one.path == path or one.path.endswith(path)]
        fitting += [one for one in ours if path.endswith(one.path)] if self._is_placeless else []
        return next(iter(fitting), None)

    def elsewhere(self, method: str, path: str) -> Operation | None:
        """Return an operation whose path ends like ours: where it may have moved to."""
        last = path.rpartition("/")[2]
        return next((one for one in self.all if one.method == method and one.path.endswith(f"/{last}")), None)

    def request_types(self, operation: Operation) -> Mapping[str, Node]:
        """Return the schemas of the request's body by media type, in lower case and without parameters."""
        return self._content(self._reader.resolved(operation.node.get("requestBody")))

    def answer_schema(self, operation: Operation, first_digit: str) -> Node | None:
        """Return the JSON schema of the first answer whose status begins so, None where the page describes none."""
        answers = _mapping_of_contract_schema(operation.node.get("responses"))
        told = next((answers[status] for status in sorted(answers) if status.startswith(first_digit)), answers.get("default"))
        content = self._content(self._reader.resolved(told))
        return next((schema for kind, schema in content.items() if "json" in kind), None)

    def scheme(self, name: str) -> Node:
        """Return a security scheme by its name."""
        schemes = _mapping_of_contract_schema(_mapping_of_contract_schema(self._tree.get("components")).get("securitySchemes"))
        return self._reader.resolved(schemes.get(name))

    @property
    def _is_placeless(self) -> bool:
        return not self._tree.get("servers")

    def _every(self) -> Iterator[Operation]:
        for path, told in _mapping_of_contract_schema(self._tree.get("paths")).items():
            item = self._reader.resolved(told)
            for method in _METHODS:
                node = item.get(method)
                if isinstance(node, Mapping):
                    yield self._operation(method, path, item, node)

    def _operation(self, method: str, path: str, item: Node, node: Node) -> Operation:
        servers = node.get("servers") or item.get("servers") or self._tree.get("servers")
        first = next((one.get("url") for one in _mappings(servers)), "")
        whole = f"{_path_of(first)}/{path.strip('/')}"
        parameters = [
            self._reader.resolved(one) for one in (*_mappings(item.get("parameters")), *_mappings(node.get("parameters")))
        ]
        security = node.get("security", self._tree.get("security"))
        return Operation(method.upper(), whole, node, tuple(parameters), tuple(_mappings(security)))

    def _content(self, node: Node) -> Mapping[str, Node]:
        content = _mapping_of_contract_schema(node.get("content"))
        return {
            kind.partition(";")[0].strip().lower(): _mapping_of_contract_schema(_mapping_of_contract_schema(part).get("schema"))
            for kind, part in content.items()
        }


def _path_of(server: object) -> str:
    """Return the path of a server's address, without its last slash; what cannot be read is none."""
    try:
        path = urlsplit(_VARIABLE.sub("x", server)).path if isinstance(server, str) else ""
    except ValueError:
        return ""
    return f"/{path.strip('/')}" if path.strip("/.") else ""


Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference: where it is, what the page says, what we do, what breaks of it, and what would help.

    `fields`: the paths in the payload that a refusal may name for it (`offers[].url`); none where the request as a
    whole is meant.
    """

    severity: Severity
    where: str
    page: str
    ours: str
    breaks: str
    helps: str
    fields: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The page's word against ours, in one sentence."""
        return f"{self.where}: the service's page says: {self.page}; {self.ours}"

    def __str__(self) -> str:
        return f"{self.told}: {self.breaks}; {self.helps}"


"""error: every row would be refused, or no answer understood. warning: some rows, or none yet."""
SAMPLE_KEY = idempotency_key("default", FeedName("feed"), RowKey("row"))
"""An idempotency key as we send it: all of them have its length and alphabet."""
_SENT_HEADERS = frozenset({"authorization", "content-type", "accept", "user-agent", "idempotency-key", "accept-encoding"})
_STEPS = re.compile(r"[^.\[\]]+|\[\]")


@dataclass(frozen=True, slots=True)
class Use:
    """One operation that we call: what we read of its answer (`docs[].id`, and of which type), and what we send."""

    method: str
    path: str
    reads: tuple[tuple[str, str], ...] = ()
    queries: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The operation as people call it."""
        return f"{self.method} {self.path}"


CREATE = Use("POST", "/events", (("doc.id", "integer"),))
CHANNELS = Use("GET", "/channels", (("docs[].id", "integer"), ("docs[].slug", "string")), frozenset({"page", "limit"}))
CLASSIFICATIONS = Use("GET", "/classifications", (("version", "string"), ("docs[].slug", "string")))
UPLOAD = Use("POST", "/media")
_REFUSAL = (("error.code", "string"), ("error.details.field", "string"))


class WorkerComparison:
    """Holds the operations of one page against our use of them."""

    def __init__(self, operations: Operations, reader: SchemaReader) -> None:
        self._operations = operations
        self._reader = reader

    def found(self, use: Use) -> Operation | None:
        """Return the operation that we call, None where the page has none there."""
        return self._operations.find(use.method, API_PREFIX + use.path)

    def differences(self, use: Use) -> Iterator[Drift]:
        """Yield what the page says otherwise of one operation."""
        operation = self.found(use)
        if operation is None:
            yield self._gone(use)
            return
        if operation.node.get("deprecated") is True:
            yield _line("warning", use, "it is deprecated", "we call it", "it may end one day", "ask what follows it")
        yield from self._key(use, operation)
        yield from self._parameters(use, operation)
        yield from self._answers(use, operation)

    def creation(self) -> Iterator[Drift]:
        """Yield what the page says otherwise of the creation of events beside its payload."""
        operation = self.found(CREATE)
        if operation is None:
            return
        kinds = self._operations.request_types(operation)
        if kinds and not any(_takes(kind, "application/json") for kind in kinds):
            page = f"the request is {_some(kinds)}"
            yield _line("error", CREATE, page, "we send application/json", "every row would be refused", _UPDATE)
        schema = self._operations.answer_schema(operation, "4")
        for path, kind in _REFUSAL if schema else ():
            wrong = self._wrong_answer(schema or {}, path, kind)
            if wrong:
                yield _line("warning", CREATE, f"a refusal: {wrong}", f"we read `{path}`", "reasons would be lost", _UPDATE)

    def upload_field(self) -> str:
        """Return the field of the form in which the page wants an image, "" where it shows none."""
        operation = self.found(UPLOAD)
        kinds = self._operations.request_types(operation) if operation else {}
        form = self._reader.read(kinds.get("multipart/form-data", {}))[0].properties
        return next((name for name, node in form.items() if _is_file(self._reader.resolved(node))), "")

    def upload(self) -> Iterator[Drift]:
        """Yield what the page says otherwise of the encodings in which an image is uploaded."""
        operation = self.found(UPLOAD)
        kinds = self._operations.request_types(operation) if operation else {}
        form = self._reader.read(kinds.get("multipart/form-data", {}))[0].properties
        is_form = "multipart/form-data" in kinds and (not form or {"file", "image"} & form.keys() or self.upload_field())
        if kinds and not is_form and not any(kind.startswith("image/") or kind == "*/*" for kind in kinds):
            fields = f" with the fields {_some(form)}" if form else ""
            page, ours = f"the request is {_some(kinds)}{fields}", "we send a form with `file` or `image`, or the image itself"
            yield _line("warning", UPLOAD, page, ours, "cover images could not be uploaded", _UPDATE)

    def _gone(self, use: Use) -> Drift:
        moved = self._operations.elsewhere(use.method, use.path)
        page = f"there is none at {API_PREFIX}{use.path}" + (f", but {str(moved)[:120]}" if moved else "")
        breaks = "images could not be uploaded" if use is UPLOAD else "the request would be refused (404)"
        return _line("warning" if use is UPLOAD else "error", use, page, f"we call {API_PREFIX}{use.path}", breaks, _UPDATE)

    def _key(self, use: Use, operation: Operation) -> Iterator[Drift]:
        if operation.security and not any(self._is_bearer(one) for one in operation.security):
            names = [name for one in operation.security for name in one]
            page = f"it asks for {_some(names)}, which is no bearer key"
            yield _line("error", use, page, "we send `Authorization: Bearer`", "every request would be refused (401)", _UPDATE)

    def _is_bearer(self, requirement: Node) -> bool:
        return all(_is_bearer(self._operations.scheme(name)) for name in requirement)

    def _parameters(self, use: Use, operation: Operation) -> Iterator[Drift]:
        sent = {("header", name) for name in _SENT_HEADERS} | {("query", name) for name in use.queries}
        told = {(str(one.get("in")), str(one.get("name")).lower()): one for one in operation.parameters}
        for (place, name), one in told.items():
            if one.get("required") is True and place in {"header", "query", "cookie"} and (place, name) not in sent:
                page = f"the {place} parameter `{str(one.get('name'))[:60]}` is required"
                yield _line("error", use, page, "we do not send it", "every request would be refused", _UPDATE)
        if use.method == "POST":
            yield from self._idempotency(use, told.get(("header", "idempotency-key")))
        limit = self._reader.resolved(told.get(("query", "limit"), {}).get("schema")).get("maximum")
        if "limit" in use.queries and isinstance(limit, int) and limit < PAGE_SIZE:
            page, ours = f"`limit` is at most {limit}", f"we ask for pages of {PAGE_SIZE}"
            yield _line("warning", use, page, ours, "the list may be refused", _UPDATE)

    def _idempotency(self, use: Use, parameter: Node | None) -> Iterator[Drift]:
        length = len(SAMPLE_KEY) + (LONGEST_KEY_END if use is UPLOAD else 0)
        ours = f"we send one of {length} characters with each"
        if parameter is None:
            breaks = "a repeated request might create an event twice, if the header has no effect any more"
            yield _line("warning", use, "it has no header `Idempotency-Key`", ours, breaks, "ask the service's support")
            return
        most = self._reader.read(parameter.get("schema"))[0].most("maxLength")
        if most is not None and most < length:
            page = f"an `Idempotency-Key` has at most {most} characters"
            breaks = "images could not be uploaded" if use is UPLOAD else "every row would be refused"
            yield _line("warning" if use is UPLOAD else "error", use, page, ours, breaks, _UPDATE)

    def _answers(self, use: Use, operation: Operation) -> Iterator[Drift]:
        schema = self._operations.answer_schema(operation, "2")
        for path, kind in use.reads if schema else ():
            wrong = self._wrong_answer(schema or {}, path, kind)
            if wrong:
                breaks = "rows would become uncertain" if use is CREATE else "runs could not begin"
                yield _line("error", use, f"its answer: {wrong}", f"we read `{path}` ({kind})", breaks, _UPDATE)

    def _wrong_answer(self, node: Node, path: str, kind: str) -> str:
        """Say how an answer's schema differs at a path; "" where it fits, or does not say."""
        at, choices = "", self._reader.read(node)
        for step in _STEPS.findall(path):
            at = f"{at}[]" if step == "[]" else f"{at}.{step}".strip(".")
            properties = {name: part for choice in choices for name, part in choice.properties.items()}
            if step == "[]":
                choices = self._reader.read(choices[0].items)
            elif not properties:
                return ""
            elif step not in properties:
                return f"it has no `{at}`"
            else:
                choices = self._reader.read(properties[step])
        kinds = [choice.types for choice in choices]
        if any(types is None or kind in types for types in kinds):
            return ""
        return f"`{at}` is of the type {_some(sorted({name for types in kinds for name in types or ()}))}"


_UPDATE = "look for a newer eventsync, and ask the service's support"


def _line(severity: Severity, use: Use, page: str, ours: str, breaks: str, helps: str) -> Drift:
    return Drift(severity, use.name, page, ours, breaks, helps)


def _is_bearer(scheme: Node) -> bool:
    """Whether a scheme is met by `Authorization: Bearer`; one that the page does not define is taken to be."""
    match scheme.get("type"), str(scheme.get("scheme", "")).lower(), str(scheme.get("name", "")).lower():
        case ((None | "oauth2" | "openIdConnect"), _, _):
            return True
        case "http", scheme_name, _:
            return scheme_name == "bearer"
        case "apiKey", _, name:
            return scheme.get("in") == "header" and name == "authorization"
        case _:
            return False


def _is_file(node: Node) -> bool:
    """Whether a field holds a file, as OpenAPI 3.0 (`format: binary`) or 3.1 (`contentMediaType`) says it."""
    return node.get("format") == "binary" or "contentMediaType" in node


def _takes(kind: str, ours: str) -> bool:
    return kind in {ours, "*/*", f"{ours.partition('/')[0]}/*"}


_SHOWN = 3
_ALL_ROWS = "every row would be refused"
_LONGEST_PATTERN = 200
_MOST_TEXTS = 200
_FORMS_OF: dict[str, frozenset[str]] = {
    "startAt": frozenset({"date-time", "datetime", "iso8601", "iso-8601"}),
    "endAt": frozenset({"date-time", "datetime", "iso8601", "iso-8601"}),
    "offers[].url": frozenset({"uri", "url", "iri", "uri-reference", "iri-reference"}),
}
"""The formats that the page may name for a field, as we write it."""
_NO_TEXTS = frozenset({"date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "byte", "duration", "int64", "unix-time"})
"""Formats that free text does not have."""


class PayloadComparison:
    """Holds payloads against schemas that `reader` reads; `where` begins every line."""

    def __init__(self, reader: SchemaReader, where: str) -> None:
        self._reader = reader
        self._where = where

    def differences(self, sent: Outgoing, node: Node) -> list[Drift]:
        """Return what the page would refuse of a payload, the gravest of each field first."""
        return self._value(sent, self._reader.read(node), "")

    def _value(self, sent: Outgoing, choices: Sequence[Schema], path: str) -> list[Drift]:
        """Hold one value against its schema; of alternatives, the one that fits best counts."""
        found = [list(self._against(sent, choice, path)) for choice in choices]
        best = min(found, key=lambda drifts: (sum(one.severity == "error" for one in drifts), len(drifts)))
        return best if sent.is_always else [_of_some_rows(one) for one in best]

    def _against(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if schema.says("deprecated"):
            yield self._drift(
                "warning", path, "it is deprecated", "we send it", "it may be refused one day", "ask what follows it"
            )
        if not _may_be(sent.kind, schema.types):
            types = " or ".join(sorted(schema.types or ()))
            yield self._wrong(path, f"it is of the type {types}", f"we send a value of the type {sent.kind}")
            return
        yield from self._limits(sent, schema, path)
        if sent.kind == "object":
            yield from self._fields(sent, schema, path)
        if sent.kind == "array" and sent.item is not None:
            yield from self._value(sent.item, self._reader.read(schema.items), f"{path}[]")

    def _fields(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        prefix = f"{path}." if path else ""
        known = {name: self._reader.read(node) for name, node in schema.properties.items()}
        unsent = [name for name in known if name not in sent.fields]
        unsent = [name for name in unsent if name in schema.required] or unsent
        for name in sorted(schema.required):
            if not any(one.says("readOnly") for one in known.get(name, ())):
                yield from self._needed(sent, name, prefix, _near(name, [one for one in sent.fields if one not in known]))
        for name, one in sent.fields.items():
            if name in known:
                yield from self._value(one, known[name], f"{prefix}{name}")
            elif known and not schema.is_open:
                drift = self._unknown(schema, f"{prefix}{name}", _near(name, unsent))
                yield drift if one.is_always else _of_some_rows(drift)

    def _needed(self, sent: Outgoing, name: str, prefix: str, near: str) -> Iterator[Drift]:
        path, one = f"{prefix}{name}", sent.fields.get(name)
        said = f"`{path}` is required"
        if one is None:
            hint = f"perhaps `{prefix}{near}` was renamed to it: send that as `{path}`" if near else f"map `{path}` under `event`"
            fields = (path, *([f"{prefix}{near}"] if near else []))
            yield Drift("error", self._where, said, "this mapping never sends it", _ALL_ROWS, hint, fields)
        elif not one.is_always:
            hint = f"give `{path}` a value for such rows (`on_empty: {{use: ...}}`), or let them be rejected (`on_empty: reject`)"
            ours = "this mapping leaves it out where a row has none"
            yield Drift("warning", self._where, said, ours, "rows without it would be refused", hint, (path,))

    def _unknown(self, schema: Schema, path: str, near: str) -> Drift:
        help_ = f"perhaps it is called `{near}` now: map that instead" if near else "take it out of the mapping if it is gone"
        if schema.is_closed:
            page = f"there is no field `{path}`, and others are not allowed"
            return Drift("error", self._where, page, "this mapping sends it", _ALL_ROWS, help_, (path,))
        page = f"there is no field `{path}`"
        return Drift("warning", self._where, page, "this mapping sends it", "it may be ignored", help_, (path,))

    def _limits(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        yield from self._values(sent, schema, path)
        yield from self._length(sent, schema, path)
        yield from self._form(sent, schema, path)
        yield from self._patterns(sent, schema, path)
        yield from self._items(sent, schema, path)
        if schema.says("readOnly"):
            yield self._drift("warning", path, "it is read only", "we send it", "it may be ignored or refused", "take it out")

    def _values(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if schema.allowed is None:
            return
        said = f"it is one of {_some(schema.allowed)}"
        if sent.values is None:
            yield self._some_rows(path, said, "we send what the rows hold", "check the values with a `map` that knows these")
            return
        wrong = sorted(str(one) for one in sent.values if one not in schema.allowed)
        if wrong and len(wrong) == len(sent.values):
            yield self._wrong(path, said, f"we send {_some(wrong)}")
        elif wrong:
            yield self._some_rows(path, said, f"we may send {_some(wrong)}", "map these to values that are allowed")

    def _length(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        most = schema.most("maxLength")
        if most is not None and sent.kind == "string" and (sent.longest is None or sent.longest > most):
            shortest = min((len(str(one)) for one in sent.values or ()), default=len(sent.sample))
            said = f"it has at most {most} characters"
            if shortest > most:
                yield self._wrong(path, said, f"ours has {shortest}")
            else:
                ours = "this mapping does not bound it" if sent.longest is None else f"ours may have {sent.longest}"
                yield self._some_rows(path, said, ours, f"shorten it with the step `{{truncate: {most}}}`")
        texts = [str(one) for one in sent.values or ()]
        if schema.least("minLength") > 1 and any(len(text) < schema.least("minLength") for text in texts):
            short = _some(sorted(text for text in texts if len(text) < schema.least("minLength")))
            said = f"it has at least {schema.least('minLength')} characters"
            yield self._some_rows(path, said, f"we may send {short}", "use longer values")

    def _form(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if sent.kind != "string" or not schema.form:
            return
        said, ours = f"it has the format {schema.form}", f"we write it like {sent.sample}"
        if path in _FORMS_OF and schema.form not in _FORMS_OF[path] and schema.form in _NO_TEXTS | {"uri", "url"}:
            yield self._wrong(path, said, ours)
        elif path not in _FORMS_OF and schema.form in _NO_TEXTS:
            yield self._some_rows(path, said, "we send a text", "check that the mapping writes it so")

    def _patterns(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        texts = sorted(map(str, sent.values))[:_MOST_TEXTS] if sent.values else [sent.sample] if sent.sample else []
        for pattern in schema.patterns if sent.kind == "string" else ():
            wrong = sorted(text for text in texts if not _fits(pattern, text))
            said = f"it looks like {pattern[:80]}"
            if wrong and len(wrong) == len(texts):
                yield self._wrong(path, said, f"we write it like {_some(wrong)}")
            elif wrong:
                yield self._some_rows(path, said, f"we may send {_some(wrong)}", "map these to texts that fit")
            elif not texts:
                yield self._some_rows(path, said, "we send what the rows hold", "check the values with a step")

    def _items(self, sent: Outgoing, schema: Schema, path: str) -> Iterator[Drift]:
        if sent.kind != "array":
            return
        if schema.least("minItems") > 1:
            said = f"it has at least {schema.least('minItems')} items"
            yield self._some_rows(path, said, "we send one or more", "give every row so many")
        if schema.most("maxItems") is not None:
            said = f"it has at most {schema.most('maxItems')} items"
            yield self._some_rows(path, said, "we send as many as a row has", "leave some out")

    def _wrong(self, path: str, page: str, ours: str) -> Drift:
        """Every row that has the field is refused: all rows, where it is always sent."""
        helps = f"send `{path}` as the page describes it" if path else "see the page"
        return self._drift("error", path, page, ours, _ALL_ROWS, helps)

    def _some_rows(self, path: str, page: str, ours: str, helps: str) -> Drift:
        return self._drift("warning", path, page, ours, "rows that do not fit would be refused", helps)

    def _drift(self, severity: Severity, path: str, page: str, ours: str, breaks: str, helps: str) -> Drift:
        fields = (path,) if path else ()
        return Drift(severity, f"{self._where}: {path}" if path else self._where, page, ours, breaks, helps, fields)


def _of_some_rows(drift: Drift) -> Drift:
    """Return the same difference of a field that not every row has."""
    is_grave = drift.severity == "error"
    return replace(drift, severity="warning", breaks="rows that have it would be refused") if is_grave else drift


def _may_be(kind: str | None, types: frozenset[str] | None) -> bool:
    return kind is None or types is None or kind in types or (kind == "integer" and "number" in types)


def _fits(pattern: str, text: str) -> bool:
    """Whether a text fits the page's pattern; one that cannot be tried is taken to fit."""
    try:
        return len(pattern) > _LONGEST_PATTERN or compile_pattern(pattern).finds(text)
    except PatternError:  # patterns of another dialect are common here
        return True


def _near(name: str, others: Sequence[str]) -> str:
    """Return the one of the others that may be the same field under another name, "" if none is likely to be."""
    found = process.extractOne(name, others, scorer=fuzz.WRatio, score_cutoff=60, processor=str.casefold)
    if found is not None:
        return found[0]
    return others[0] if len(others) == 1 else ""


def _some(names: Iterable[object]) -> str:
    values = list(names)
    shown = ", ".join(f"`{str(value)[:60]}`" for value in values[:_SHOWN])
    return f"{shown} and {len(values) - _SHOWN} more" if len(values) > _SHOWN else shown


MOST = 100
"""So many differences are reported; a page with more is another service's."""


def compare(page: ContractPage, sent: Outgoing) -> tuple[Drift, ...]:
    """Return the differences between the page and what we do, errors first. Pure; never raises for what a page says."""
    reader = SchemaReader(page.tree)
    operations = Operations(page.tree, reader)
    found = [*_of_payload(operations, reader, sent), *_of_worker(WorkerComparison(operations, reader), sent)]
    return tuple(sorted(dict.fromkeys(found), key=lambda drift: drift.severity != "error")[:MOST])


def upload_field(page: ContractPage) -> str:
    """Return the field of the form in which the page wants an image, "" where it shows none."""
    reader = SchemaReader(page.tree)
    return WorkerComparison(Operations(page.tree, reader), reader).upload_field()


def _of_worker(worker: WorkerComparison, sent: Outgoing) -> Iterator[Drift]:
    for use in (CREATE, CHANNELS, CLASSIFICATIONS):
        yield from worker.differences(use)
    yield from worker.creation()
    if "coverImage" in sent.fields:
        yield from worker.differences(UPLOAD)
        yield from worker.upload()


def _of_payload(operations: Operations, reader: SchemaReader, sent: Outgoing) -> Iterator[Drift]:
    operation = WorkerComparison(operations, reader).found(CREATE)
    kinds = operations.request_types(operation) if operation else {}
    schema = next((part for kind, part in kinds.items() if "json" in kind or kind in {"*/*", "application/*"}), None)
    if schema is not None:
        yield from PayloadComparison(reader, CREATE.name).differences(sent, schema)
