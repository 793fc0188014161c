"""The mapping file's JSON Schema for editors: completion, descriptions and red underlines while a file is written.

It knows less than the loader (no names, no lookup files, no formats), and accepts all that the loader accepts.
"""

from __future__ import annotations

from typing import Any

from mappings.spec.feed import FeedMapping
from mappings.spec.values import COMPANIONS, MARKERS, Fields, FirstOf, From, JoinedText, ListEntry, Meta
from mappings.steps.catalogue import STEPS

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_USE = {
    "type": "object",
    "description": "The steps of this name, defined under `steps`.",
    "properties": {"use": {"type": "string", "description": "The name under `steps`."}},
    "required": ["use"],
    "additionalProperties": False,
}
_STEP_REF = {"$ref": "#/$defs/Step"}


def feed_json_schema() -> Schema:
    """Return the schema of one mapping file, in draft 2020-12."""
    schema: Schema = _without_nulls(FeedMapping.model_json_schema(by_alias=True))
    definitions = schema["$defs"]
    for step in STEPS.values():
        definition = definitions[step.__name__]
        definition["required"] = sorted({step.name, *definition.get("required", ())})
    definitions[Fields.__name__]["propertyNames"] = {"not": {"enum": [*MARKERS, *COMPANIONS, "when", "require"]}}
    definitions[ListEntry.__name__]["propertyNames"] = {"not": {"enum": [*MARKERS, *COMPANIONS]}}
    definitions[ListEntry.__name__]["anyOf"] = [{"required": ["when"]}, {"required": ["require"]}]
    for model in (From, FirstOf, JoinedText, Meta):
        definitions[model.__name__]["properties"]["do"]["anyOf"] = [_STEP_REF, {"type": "array", "items": _STEP_REF}]
    ways = schema["properties"]["steps"]
    way = {"anyOf": [_STEP_REF, {"type": "array", "items": _STEP_REF}]}
    ways |= {"patternProperties": dict.fromkeys(ways["patternProperties"], way), "additionalProperties": False}
    schema["properties"]["let"]["additionalProperties"] = False
    definitions["Step"] = _any_step()
    return {"$schema": _DIALECT, **schema, "title": "eventsync feed"}


def _any_step() -> Schema:
    bare = [
        {"const": step.name, "description": _promise(step.__doc__)}
        for step in STEPS.values()
        if not any(parameter.is_required() for parameter in step.model_fields.values())
    ]
    blocks = [{"$ref": f"#/$defs/{step.__name__}"} for step in STEPS.values()]
    return {"description": "One step of a value's way.", "oneOf": [*bare, *blocks, _USE]}


def _promise(docstring: str | None) -> str:
    return " ".join((docstring or "").split())


def _without_nulls(node: Any) -> Any:
    """An absent key is left out, never written as null: drop that choice and its default."""
    if isinstance(node, list):
        return [_without_nulls(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _without_nulls(value) for key, value in node.items() if not (key == "default" and value is None)}
    choices = kept.get("anyOf")
    if not isinstance(choices, list) or {"type": "null"} not in choices:
        return kept
    left = [choice for choice in choices if choice != {"type": "null"}]
    rest = {key: value for key, value in kept.items() if key != "anyOf"}
    return {**left[0], **rest} if len(left) == 1 else {**rest, "anyOf": left}
