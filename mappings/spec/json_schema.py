"""The JSON Schema of mapping files for editors: completion, descriptions, and marking of mistakes.

It accepts everything that the loader accepts, and more: it does not check names, lookup files or formats. Field descriptions
are the docstrings below the fields. They are read only when a schema or page is generated, because pydantic's
`use_attribute_docstrings` reads them at every start, which takes 0.1 s (budget 9).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from mappings.spec.feed import FeedMapping
from mappings.spec.values import COMPANIONS, MARKERS, STEPS, Fields, FirstOf, From, JoinedText, ListEntry, Meta
from mappings.strict import Strict

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


class _WithoutNulls(GenerateJsonSchema):
    """Omits null as a choice and default: in a mapping file an absent key is left out, never written as null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> Schema:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if key != "default" or value is not None}


def feed_json_schema() -> Schema:
    """Return the JSON Schema of a mapping file (draft 2020-12)."""
    schema = FeedMapping.model_json_schema(by_alias=True, schema_generator=_WithoutNulls)
    definitions = schema["$defs"]
    for model in _models(Strict):
        _describe(model, schema if model is FeedMapping else definitions.get(model.__name__, {}))
    for step in STEPS.values():
        definition = definitions[step.__name__]
        definition["required"] = sorted({step.name, *definition.get("required", ())})
    definitions[Fields.__name__]["propertyNames"] = {"not": {"enum": [*MARKERS, *COMPANIONS, "when", "require"]}}
    definitions[ListEntry.__name__]["propertyNames"] = {"not": {"enum": [*MARKERS, *COMPANIONS]}}
    definitions[ListEntry.__name__]["anyOf"] = [{"required": ["when"]}, {"required": ["require"]}]
    steps = {"anyOf": [_STEP_REF, {"type": "array", "items": _STEP_REF}]}
    for model in (From, FirstOf, JoinedText, Meta):
        definitions[model.__name__]["properties"]["do"] |= steps
    named = schema["properties"]["steps"]
    named |= {"patternProperties": dict.fromkeys(named["patternProperties"], steps), "additionalProperties": False}
    schema["properties"]["let"]["additionalProperties"] = False
    bare = [
        {"const": step.name, "description": " ".join((step.__doc__ or "").split())}
        for step in STEPS.values()
        if not any(parameter.is_required() for parameter in step.model_fields.values())
    ]
    blocks = [{"$ref": f"#/$defs/{step.__name__}"} for step in STEPS.values()]
    definitions["Step"] = {"description": "One step that a value passes through.", "oneOf": [*bare, *blocks, _USE]}
    return {"$schema": _DIALECT, **schema, "title": "eventsync feed"}


def _models(base: type[Strict]) -> Iterator[type[Strict]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _describe(model: type[Strict], definition: Schema) -> None:
    described = field_descriptions(model) if definition else {}
    for name, field in model.model_fields.items():
        if name in described:
            definition["properties"][field.alias or name]["description"] = described[name]


@cache
def field_descriptions(model: type[Strict]) -> Mapping[str, str]:
    """Return the docstrings of a model's fields, including inherited ones."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith("mappings.spec."):
            (tree,) = ast.parse(inspect.getsource(base)).body
            for field, below in pairwise(tree.body if isinstance(tree, ast.ClassDef) else ()):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    found[ast.unparse(field.target)] = " ".join(str(below.value.value).split())
    return found
