"""The service's OpenAPI page as schemas and operations: references followed, alternatives read, in bounded time only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

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
            for name, node in _mapping(part.get("properties")).items():
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


def _mapping(told: object) -> Node:
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
        answers = _mapping(operation.node.get("responses"))
        told = next((answers[status] for status in sorted(answers) if status.startswith(first_digit)), answers.get("default"))
        content = self._content(self._reader.resolved(told))
        return next((schema for kind, schema in content.items() if "json" in kind), None)

    def scheme(self, name: str) -> Node:
        """Return a security scheme by its name."""
        schemes = _mapping(_mapping(self._tree.get("components")).get("securitySchemes"))
        return self._reader.resolved(schemes.get(name))

    @property
    def _is_placeless(self) -> bool:
        return not self._tree.get("servers")

    def _every(self) -> Iterator[Operation]:
        for path, told in _mapping(self._tree.get("paths")).items():
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
        content = _mapping(node.get("content"))
        return {kind.partition(";")[0].strip().lower(): _mapping(_mapping(part).get("schema")) for kind, part in content.items()}


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
