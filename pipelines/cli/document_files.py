"""The JSON Schemas of `--json` documents, printed or written to files. What is in them is `documents.catalogue`'s."""

from __future__ import annotations

from pathlib import Path

from mappings.errors import ConfigError
from mappings.refusals import did_you_mean
from pipelines.cli.documents.catalogue import DOCUMENTS, document_schema, file_name
from pipelines.cli.output import Output
from pipelines.cli.schema_file import give, write


def give_document_schema(verb: str, out: Path | None, *, as_json: bool) -> int:
    """Print the schema of what a verb prints with --json, or write it to `out` and say so; return 0.

    Raises:
        ConfigError: there is no such verb, or the file cannot be written.
    """
    if verb not in DOCUMENTS:
        hint = did_you_mean(verb, DOCUMENTS) or f"there are {', '.join(DOCUMENTS)}"
        raise ConfigError(f"--document {verb}: no verb of this name prints a document", hint=hint)
    return give(document_schema(verb), out, as_json=as_json)


def write_document_schemas(folder: Path, *, as_json: bool) -> int:
    """Write a file for each verb, and say so; return 0.

    Raises:
        ConfigError: they cannot be written there.
    """
    for verb in DOCUMENTS:
        write(document_schema(verb), folder / file_name(verb), "--documents")
    output = Output(json=as_json)
    output.document({"schema": folder.resolve()})
    output.note(f"{len(DOCUMENTS)} schemas are written to {folder}")
    return 0
