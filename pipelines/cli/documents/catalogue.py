"""Which document each verb prints, and its JSON Schema.

A document never has keys that its type does not name; new ones may come with a new version, so that scripts should not
mind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from pipelines.cli.documents import feeds, others, rows, runs

DOCUMENTS: Mapping[str, Any] = {
    "backfill": runs.BackfillAtWork | runs.BackfillRehearsal | runs.BackfillList | runs.CancelledBackfill,
    "check": feeds.Check,
    "demo": runs.Demo,
    "diff": rows.Differences | rows.OneDifference,
    "explain": feeds.Explained,
    "feeds": feeds.Feeds,
    "init": feeds.Drafted,
    "metrics": others.Metrics | others.Serving,
    "preview": feeds.Preview,
    "prune": others.Pruned,
    "reconcile": rows.Reconciliation,
    "reload": feeds.Reloaded,
    "report": rows.Report,
    "resolve": rows.Resolved,
    "retry": rows.Retried,
    "rows": rows.Rows | rows.UnmappedValues,
    "run": runs.Runs | runs.Rehearsals,
    "runs": runs.PastRuns | runs.OneRun,
    "sandbox": others.SandboxAnnouncement,
    "schema": others.SchemaFile | others.AnySchema,
    "state export": others.Exported,
    "state import": others.Imported,
    "state migrate": others.Migrated,
    "state rename": others.Renamed,
    "state verify": others.Verified,
    "status": feeds.Status,
    "vocabulary": others.Vocabulary,
}


def document_schema(verb: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what a verb prints with --json: its own document, or that of an error."""
    kinds = DOCUMENTS[verb] | others.ErrorDocument
    schema = TypeAdapter(kinds).json_schema(mode="serialization", schema_generator=_AsPrinted)
    named = {"$schema": GenerateJsonSchema.schema_dialect, "title": f"eventsync {verb} --json"}
    return named | schema


def file_name(verb: str) -> str:
    """Return how the file with a verb's schema is called."""
    return f"{verb.replace(' ', '-')}.schema.json"


class _AsPrinted(GenerateJsonSchema):
    """Tells of documents as they are printed: every field of a dataclass is there, and titles say nothing that names do not."""

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,  # as pydantic calls it
    ) -> bool:
        """Return False only for what a TypedDict marks as not required."""
        return field["type"] == "dataclass-field" or field["type"] == "model-field" or super().field_is_required(field, total)

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False."""
        del schema
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Leave out defaults: they are how we make documents, not what stands in one."""
        return self.generate_inner(schema["schema"])
