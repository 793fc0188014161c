"""Which document each verb prints with `--json`, and its JSON Schema (draft 2020-12), made from the types that the verbs build.

A document never has keys that its type does not name; new ones may come with a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import TypedDict

from pipelines.cli import (
    backfill,
    check,
    demo,
    diff,
    dry_run,
    explain,
    feeds,
    init,
    metrics,
    preview,
    prune,
    reconcile,
    reload,
    report,
    resolve,
    retry,
    rows,
    run_report,
    runs,
    sandbox,
    state,
    status,
    vocabulary,
)
from pipelines.cli.output.console import ErrorDocument


class SchemaFile(TypedDict):
    """The file that a JSON Schema was written to; printed, the schema itself is the document."""

    schema: Path


AnySchema = dict[str, Any]
"""A JSON Schema (draft 2020-12)."""
DOCUMENTS: Mapping[str, Any] = {
    "backfill": backfill.BackfillAtWork | dry_run.BackfillRehearsal | backfill.BackfillList | backfill.CancelledBackfill,
    "check": check.Check,
    "demo": demo.Demo,
    "diff": diff.Differences | diff.OneDifference,
    "explain": explain.Explained,
    "feeds": feeds.Feeds,
    "init": init.Drafted,
    "metrics": metrics.Metrics | metrics.Serving,
    "preview": preview.Preview,
    "prune": prune.Pruning,
    "reconcile": reconcile.Reconciliation,
    "reload": reload.Reloaded,
    "report": report.Report,
    "resolve": resolve.Resolution,
    "retry": retry.Retry,
    "rows": rows.Rows | rows.UnmappedValues,
    "run": run_report.Runs | dry_run.Rehearsals,
    "runs": runs.PastRuns | runs.OneRun,
    "sandbox": sandbox.SandboxAnnouncement,
    "schema": SchemaFile | AnySchema,
    "state export": state.Exported,
    "state import": state.Imported,
    "state migrate": state.Migrated,
    "state rename": state.Renamed,
    "state verify": state.Verified,
    "status": status.Status,
    "vocabulary": vocabulary.VocabularyPage,
}
"""The types of each verb's documents: which of several it is depends on what was asked for."""


def document_schema(verb: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what a verb prints with --json: its own document, or that of an error."""
    kinds = DOCUMENTS[verb] | ErrorDocument
    schema = TypeAdapter(kinds).json_schema(mode="serialization", schema_generator=_AsPrinted)
    named = {"$schema": GenerateJsonSchema.schema_dialect, "title": f"eventsync {verb} --json"}
    return named | schema


def file_name(verb: str) -> str:
    """Return how the file with a verb's schema is called."""
    return f"{verb.replace(' ', '-')}.schema.json"


class _AsPrinted(GenerateJsonSchema):
    """Describes documents as they are printed: every field of a dataclass is required; titles and defaults are left out."""

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
