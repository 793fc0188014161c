"""The page about `--json` documents, written from their types: which verb prints which, and what each key means.

The types stand in `pipelines.cli.schema`; as JSON Schema they are published in docs/json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reference_pages.tables import page, table

from pipelines.cli.schema import DOCUMENTS, document_schema, file_name

_OPENING = """\
# JSON documents

With `--json` a verb prints one document on stdout, and nothing else there. This page is written from the code (`make
reference`); a test keeps the two alike. As JSON Schema (draft 2020-12) each document is a file in [json/](json); `eventsync
schema --document run` prints the one of your version.

Keys are added from one version to the next and keep their meaning: a script should not mind those that it does not know.
Moments are ISO 8601 with their zone, durations seconds (`_s`), and a number without end is null. A verb that fails prints an
[ErrorDocument](#errordocument) in place of its own; the [exit code](commands.md#exit-codes) says the same in short."""

_ERROR = "#/$defs/ErrorDocument"


def write_documents() -> str:
    """The whole page, as Markdown."""
    schemas = {verb: document_schema(verb) for verb in DOCUMENTS}
    verbs = table(("verb", "document", "schema"), (_verb(verb, schema) for verb, schema in schemas.items()))
    types = _types(schemas)
    return page(_OPENING, verbs, "## Types", *(_type(name, types[name]) for name in sorted(types, key=str.casefold)))


def _verb(verb: str, schema: Mapping[str, Any]) -> tuple[str, str, str]:
    own = [one for one in schema["anyOf"] if one.get("$ref") != _ERROR]
    return f"`eventsync {verb}`", " or ".join(map(_kind, own)), f"[{file_name(verb)}](json/{file_name(verb)})"


def _types(schemas: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Every type by its name, which means the same in all documents."""
    types: dict[str, Mapping[str, Any]] = {}
    for verb, schema in schemas.items():
        for name, one in schema["$defs"].items():
            assert types.setdefault(name, one) == one, f"{name} of {verb} is called as another type is"
    return types


def _type(name: str, schema: Mapping[str, Any]) -> str:
    told = " ".join(schema.get("description", "").split())
    if "properties" not in schema:
        return page(f"### {name}", told, f"It is {_kind(schema)}.")
    needed = set(schema.get("required", ()))
    rows = (
        (f"`{key}`", _kind(one) + ("" if key in needed else ", if any"), one.get("description", ""))
        for key, one in schema["properties"].items()
    )
    return page(f"### {name}", told, table(("key", "value", "meaning"), rows))


def _kind(schema: Mapping[str, Any]) -> str:  # noqa: PLR0911  # a table, one line a kind
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": choices}:
            return " or ".join(map(_kind, choices))
        case {"enum": words}:
            return f"one of {', '.join(f'`{word}`' for word in words)}"
        case {"const": word}:
            return f"`{word}`"
        case {"type": "array"}:
            return f"list of {_kind(schema['items'])}" if "items" in schema else "list"
        case {"type": "object", "propertyNames": names, "additionalProperties": values}:
            return f"object of {_kind(values)} by {_kind(names)}"
        case {"type": "object", "additionalProperties": {} as values}:
            return f"object of {_kind(values)}"
        case {"type": kind, "format": form}:
            return f"{kind} ({form})"
        case {"type": kind}:
            return str(kind)
        case _:
            return "anything"
