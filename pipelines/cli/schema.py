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
    from mappings.refusals import did_you_mean
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
        from mappings.errors import ConfigError  # keeps `--help` fast

        raise ConfigError("--documents writes all schemas, and takes neither --document nor --out", hint="leave out the others")
    if document is None and documents is None:
        # keeps `--help` fast

        return give_schema(out, as_json=as_json)

    if documents is not None:
        return write_document_schemas(documents, as_json=as_json)
    verb = document or ""
    if verb not in DOCUMENTS:
        hint = did_you_mean(verb, DOCUMENTS) or f"there are {', '.join(DOCUMENTS)}"
        raise ConfigError(f"--document {verb}: no verb of this name prints a document", hint=hint)
    return give(document_schema(verb), out, as_json=as_json)


def give_schema(out: Path | None, *, as_json: bool) -> int:
    """Print the schema, or write it to `out` and say so.

    Raises:
        ConfigError: the file cannot be written.
    """
    note = "" if out is None else f"; begin your mapping files with\n# yaml-language-server: $schema={out.name}"
    return give(feed_json_schema(), out, note, as_json=as_json)


def give(schema: Mapping[str, Any], out: Path | None, note: str = "", *, as_json: bool) -> int:
    """Print a schema, which is a document by itself; or write it to `out` and say so, with a `note`. Return 0.

    Raises:
        ConfigError: the file cannot be written.
    """
    if out is None:
        sys.stdout.write(_text(schema))
        return 0
    write(schema, out)
    output = Output(json=as_json)
    output.document(SchemaFile(schema=out.resolve()))
    output.note(f"{out} is written{note}")
    return 0


def write(schema: Mapping[str, Any], out: Path, option: str = "--out") -> None:
    """Write a schema to a file, where `option` has named it.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        out.write_text(_text(schema), "utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}", hint=f"choose another place for {option}") from error


def _text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


"""The types of each verb's documents: which of several it is depends on what was asked for."""


def write_document_schemas(folder: Path, *, as_json: bool) -> int:
    """Write a file for each verb, and say so; return 0.

    Raises:
        ConfigError: they cannot be written there.
    """
    for verb in DOCUMENTS:
        write(document_schema(verb), folder / file_name(verb), "--documents")
    output = Output(json=as_json)
    output.document(SchemaFile(schema=folder.resolve()))
    output.note(f"{len(DOCUMENTS)} schemas are written to {folder}")
    return 0
