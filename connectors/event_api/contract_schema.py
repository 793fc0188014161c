"""What a schema of the OpenAPI page demands of a value: references followed, `allOf` merged, 3.0 and 3.1 told alike.

Where the page comes from is `contract_page`'s; what is held against it is `contract_payload`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

Node = Mapping[str, Any]

_DEEPEST = 24
"""References and `allOf` inside one another; what lies deeper is taken to demand nothing."""
_MOST_READS = 4_000
"""Schemas read of one page; beyond it, a page made to be slow, the rest is taken to demand nothing."""
_MOST_ALTERNATIVES = 16
_LONGEST_NAME = 100
"""Longer names of fields are no names: they are left out of messages, and so out of the comparison."""
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


@dataclass(frozen=True, slots=True)
class Schema:
    """The demands on one value. What is None or empty is not demanded; `properties` and `items` are still to be read.

    `alternatives`: the value must also fit one of these (`oneOf`, `anyOf`). `is_closed`: no other properties are allowed;
    `is_open`: the page describes others without naming them.
    """

    types: frozenset[str] | None = None
    properties: Mapping[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    is_closed: bool = False
    is_open: bool = False
    items: Node = field(default_factory=dict)
    allowed: tuple[Any, ...] | None = None
    least_chars: int = 0
    most_chars: int | None = None
    least_items: int = 0
    most_items: int | None = None
    patterns: tuple[str, ...] = ()
    form: str = ""
    is_deprecated: bool = False
    is_read_only: bool = False
    alternatives: tuple[Schema, ...] = ()

    @property
    def choices(self) -> tuple[Schema, ...]:
        """The schemas of which a value must fit one: this one, joined with each alternative."""
        if not self.alternatives:
            return (self,)
        base = replace(self, alternatives=())
        return tuple(both(base, one) for one in self.alternatives)


ANYTHING = Schema()


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

    def read(self, node: object, depth: int = 0) -> Schema:
        """Return the demands of a schema. Never raises."""
        self._reads += 1
        if depth > _DEEPEST or self._reads > _MOST_READS:
            return ANYTHING
        plain = self.resolved(node)
        schema = _own(plain)
        for part in _list(plain.get("allOf")):
            schema = both(schema, self.read(part, depth + 1))
        for word in ("oneOf", "anyOf"):
            schema = _with_choices(schema, [self.read(part, depth + 1) for part in _list(plain.get(word))[:_MOST_ALTERNATIVES]])
        return schema

    def _at(self, reference: str) -> object:
        if not reference.startswith("#/"):
            return None
        found: object = self._tree
        for step in unquote(reference[2:]).split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found


def both(one: Schema, other: Schema) -> Schema:
    """Return the demands of two schemas together."""
    return Schema(
        types=_common_types(one.types, other.types),
        properties=_all_properties(one.properties, other.properties),
        required=one.required | other.required,
        is_closed=one.is_closed or other.is_closed,
        is_open=one.is_open or other.is_open,
        items={"allOf": [one.items, other.items]} if one.items and other.items else one.items or other.items,
        allowed=_common_values(one.allowed, other.allowed),
        least_chars=max(one.least_chars, other.least_chars),
        most_chars=_least(one.most_chars, other.most_chars),
        least_items=max(one.least_items, other.least_items),
        most_items=_least(one.most_items, other.most_items),
        patterns=(*one.patterns, *other.patterns),
        form=one.form or other.form,
        is_deprecated=one.is_deprecated or other.is_deprecated,
        is_read_only=one.is_read_only or other.is_read_only,
        alternatives=_all_alternatives(one.alternatives, other.alternatives),
    )


def _own(node: Node) -> Schema:
    return Schema(
        types=_types(node.get("type")),
        properties={
            name: part for name, part in _mapping(node.get("properties")).items() if isinstance(part, Mapping) and _is_name(name)
        },
        required=frozenset(name for name in _list(node.get("required")) if isinstance(name, str) and _is_name(name)),
        is_closed=_is_closed(node),
        is_open=isinstance(node.get("additionalProperties"), Mapping) or bool(node.get("patternProperties")),
        items=_mapping(node.get("items")),
        allowed=_allowed(node),
        least_chars=_count(node.get("minLength")) or 0,
        most_chars=_count(node.get("maxLength")),
        least_items=_count(node.get("minItems")) or 0,
        most_items=_count(node.get("maxItems")),
        patterns=tuple(one for one in (node.get("pattern"),) if isinstance(one, str)),
        form=str(node.get("format", ""))[:_LONGEST_NAME].casefold(),
        is_deprecated=node.get("deprecated") is True,
        is_read_only=node.get("readOnly") is True,
    )


def _types(told: object) -> frozenset[str] | None:
    """Read `type`, one or several (3.1); `null` is left out, as we never send it. A word that is no type says nothing."""
    names = [one for one in (told if isinstance(told, list) else [told]) if isinstance(one, str) and one in _TYPES]
    return frozenset(name for name in names if name != "null") if names else None


def _is_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME


def _allowed(node: Node) -> tuple[Any, ...] | None:
    if "const" in node:
        return (node["const"],)
    told = node.get("enum")
    return tuple(one for one in told if one is not None) if isinstance(told, list) else None


def _is_closed(node: Node) -> bool:
    is_closed = node.get("additionalProperties") is False or node.get("unevaluatedProperties") is False
    return is_closed and not node.get("patternProperties")


def _with_choices(schema: Schema, choices: Sequence[Schema]) -> Schema:
    """Join the alternatives to a schema; one that is `null` alone is no choice, and a single one no alternative."""
    real = [one for one in choices if one.types != frozenset()]
    if not real:
        return schema
    if len(real) == 1:
        return both(schema, real[0])
    flat = tuple(inner for one in real for inner in one.choices)[:_MOST_ALTERNATIVES]
    return replace(schema, alternatives=_all_alternatives(schema.alternatives, flat))


def _all_alternatives(one: tuple[Schema, ...], other: tuple[Schema, ...]) -> tuple[Schema, ...]:
    if not one or not other:
        return one or other
    return tuple(both(first, second) for first in one for second in other)[:_MOST_ALTERNATIVES]


def _all_properties(one: Mapping[str, Node], other: Mapping[str, Node]) -> Mapping[str, Node]:
    twice = {name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys()}
    return {**one, **other, **twice}


def _common_types(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    common = one & other
    return common | {"integer"} if {"integer", "number"} <= one | other and "integer" in one ^ other else common


def _common_values(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(value for value in one if value in other)


def _least(one: int | None, other: int | None) -> int | None:
    told: Iterable[int] = [count for count in (one, other) if count is not None]
    return min(told, default=None)


def _count(told: object) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


def _mapping(told: object) -> Node:
    return told if isinstance(told, Mapping) else {}


def _list(told: object) -> list[Any]:
    return told if isinstance(told, list) else []
