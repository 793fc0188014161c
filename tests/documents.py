"""What commands print with `--json`, held against the JSON Schemas that are published for scripts, key by key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from pipelines.cli.schema import DOCUMENTS, document_schema


def verb_of(words: Sequence[str]) -> str:
    """Return the verb of a command line; of a group with its own verb."""
    return " ".join(words[:2]) if words[0] == "state" else words[0]


def surprises(words: Sequence[str], document: object) -> list[str]:
    """Return what a command's document has, lacks or calls otherwise than its schema says."""
    verb = verb_of(words)
    if verb == "schema":  # prints a schema itself, which may be anything
        return []
    return [_told(error) for error in _validator(verb).iter_errors(document)]


@cache
def _validator(verb: str) -> Draft202012Validator:
    assert verb in DOCUMENTS, f"`{verb}` prints a document that pipelines/cli/schema.py does not know"
    return Draft202012Validator(closed(document_schema(verb)))


def closed(schema: Any) -> Any:
    """Return a schema that takes no property which it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: {key: closed(one) for key, one in value.items()} if name in {"properties", "$defs"} else closed(value)
        for name, value in schema.items()
    }
    return {**made, "additionalProperties": False} if "properties" in made else made


def _told(error: Any) -> str:
    """Tell the deepest thing that is wrong with the alternative that came closest."""
    while error.context:
        error = min(error.context, key=lambda one: -len(one.absolute_path))
    return f"{error.json_path}: {error.message[:300]}"
