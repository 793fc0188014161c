"""`eventsync schema`: JSON Schemas, of mapping files for editors, of `--json` documents for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import ConfigError
    from mappings.outcome import did_you_mean
    from mappings.spec.json_schema import feed_json_schema
    from pipelines.cli.documents import DOCUMENTS, SchemaFile, document_schema, file_name
    from pipelines.cli.output.console import Output


def schema(
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there instead of printing it.")] = None,
    document: Annotated[
        str | None, typer.Option("--document", metavar="VERB", help="The schema of what this verb prints with --json.")
    ] = None,
    documents: Annotated[
        Path | None, typer.Option("--documents", metavar="FOLDER", help="Write those of all verbs, a file for each.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print the JSON Schema of mapping files: completion and red underlines for your editor; or that of `--json` documents.

    For example:

        # Beside your mapping files
        eventsync schema --out mappings/eventsync.schema.json
        # Then begin each file with
        # yaml-language-server: $schema=../eventsync.schema.json
        # What a script reads of a run
        eventsync schema --document run

    Exit codes: 0, or 2 if FILE or FOLDER cannot be written or there is no such VERB.
    """
    if documents is not None and (document is not None or out is not None):
        raise ConfigError("--documents writes all schemas, and takes neither --document nor --out", hint="leave out the others")
    output = Output(json=as_json)
    if documents is not None:
        for verb in DOCUMENTS:
            _write(document_schema(verb), documents / file_name(verb), "--documents")
        output.document(SchemaFile(schema=documents.resolve()))
        output.note(f"{len(DOCUMENTS)} schemas are written to {documents}")
        return 0
    if document is not None and document not in DOCUMENTS:
        hint = did_you_mean(document, DOCUMENTS) or f"there are {', '.join(DOCUMENTS)}"
        raise ConfigError(f"--document {document}: no verb of this name prints a document", hint=hint)
    found = feed_json_schema() if document is None else document_schema(document)
    if out is None:
        sys.stdout.write(_text(found))
        return 0
    _write(found, out, "--out")
    output.document(SchemaFile(schema=out.resolve()))
    usage = "" if document else f"; begin your mapping files with\n# yaml-language-server: $schema={out.name}"
    output.note(f"{out} is written{usage}")
    return 0


def _write(schema: Mapping[str, Any], out: Path, option: str) -> None:
    try:
        out.write_text(_text(schema), "utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}", hint=f"choose another place for {option}") from error


def _text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
