"""`eventsync schema`: prints JSON Schemas of mapping files, for editors, and of `--json` documents, for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from operator import or_
from pathlib import Path
from typing import Annotated, Any

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import core_schema

    from mappings.errors import ConfigError
    from mappings.reasons import did_you_mean
    from mappings.reference import feed_json_schema
    from pipelines.cli.output.console import ErrorDocument, Output
    from pipelines.safe_output import undisturbed


def schema(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the schema to FILE instead of printing it.")
    ] = None,
    document: Annotated[
        str | None,
        typer.Option("--document", metavar="VERB", help="The schema of the document that this command prints with --json."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print the JSON Schema of mapping files, for completion and checks in your editor; or that of `--json` documents.

    For example:

        # For your editor, beside the mapping files
        eventsync schema --out mappings/eventsync.schema.json
        # Then start each mapping file with
        # yaml-language-server: $schema=../eventsync.schema.json
        # The document of `eventsync run --json`
        eventsync schema --document run

    Exit codes: 0 done, 2 FILE cannot be written, or there is no such VERB.
    """
    if document is not None and document not in DOCUMENTS:
        hint = did_you_mean(document, DOCUMENTS) or f"use one of {', '.join(DOCUMENTS)}"
        raise ConfigError(f"--document {document}: there is no document of this name", hint=hint)
    found = feed_json_schema() if document is None else document_schema(document)
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    if out is None:
        undisturbed(sys.stdout).write(text)
        return 0
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}", hint="choose another place for --out") from error
    output = Output(is_json=as_json)
    output.document(SchemaFile(schema=out.resolve()))
    usage = "" if document else f"; start your mapping files with\n# yaml-language-server: $schema={out.name}"
    output.note(f"{out} is written{usage}")
    return 0


class SchemaFile(TypedDict):
    """The file that the schema was written to; without --out, the schema itself is the document."""

    schema: Path


AnySchema = dict[str, Any]
"""A JSON Schema (draft 2020-12)."""
DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    "backfill": ("BackfillAtWork", "BackfillRehearsal", "BackfillList", "CancelledBackfill"),
    "check": ("Check",),
    "demo": ("Demo",),
    "diff": ("Differences", "OneDifference"),
    "explain": ("Explained",),
    "feeds": ("Feeds",),
    "init": ("Drafted",),
    "metrics": ("Metrics", "Serving"),
    "preview": ("Preview",),
    "prune": ("Pruning",),
    "reconcile": ("Reconciliation",),
    "reload": ("Reloaded",),
    "report": ("Report",),
    "resolve": ("Resolution",),
    "retry": ("Retry",),
    "rows": ("Rows", "UnmappedValues"),
    "run": ("Runs", "Rehearsals"),
    "runs": ("PastRuns", "OneRun"),
    "sandbox": ("SandboxAnnouncement",),
    "schema": ("SchemaFile", "AnySchema"),
    "state export": ("Exported",),
    "state import": ("Imported",),
    "state migrate": ("Migrated",),
    "state rename": ("RenamedService",),
    "state verify": ("Verified",),
    "status": ("Status",),
    "vocabulary": ("VocabularyPage",),
}
"""The types of each verb's documents in its module; the options given decide which of several is printed. A document never has
keys that its type does not name; a new version may add keys.
"""


def document_schema(verb: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a verb's `--json` document, or of the error document instead."""
    module = import_module(f"pipelines.cli.{verb.partition(' ')[0]}")
    kinds = reduce(or_, [*(getattr(module, name) for name in DOCUMENTS[verb]), ErrorDocument])
    schema = TypeAdapter(kinds).json_schema(mode="serialization", schema_generator=_AsPrinted)
    return {"$schema": GenerateJsonSchema.schema_dialect, "title": f"eventsync {verb} --json", **schema}


if IS_WORKING:

    class _AsPrinted(GenerateJsonSchema):
        """Describes documents as printed: every field of a dataclass is required; titles and defaults are left out."""

        def field_is_required(self, field: Any, total: bool) -> bool:  # as pydantic calls it
            """Return False only for keys that a TypedDict marks as not required."""
            return field["type"] in {"dataclass-field", "model-field"} or super().field_is_required(field, total)

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # pydantic's method
            """Return False: titles are left out."""
            return False

        def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
            """Leave out the default: every key is printed."""
            return self.generate_inner(schema["schema"])
