"""`eventsync schema`: JSON Schemas, of mapping files for editors, of `--json` documents for scripts.

Where they come from is `mappings.json_schema` and `documents.catalogue`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.flags import AsJson


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
        from mappings.errors import ConfigError  # noqa: PLC0415  # keeps `--help` fast

        raise ConfigError("--documents writes all schemas, and takes neither --document nor --out", hint="leave out the others")
    if document is None and documents is None:
        from pipelines.cli.schema_file import give_schema  # noqa: PLC0415  # keeps `--help` fast

        return give_schema(out, as_json=as_json)
    from pipelines.cli.document_files import give_document_schema, write_document_schemas  # noqa: PLC0415  # as above

    if documents is not None:
        return write_document_schemas(documents, as_json=as_json)
    return give_document_schema(document or "", out, as_json=as_json)
