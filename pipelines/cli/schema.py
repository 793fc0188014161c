"""`eventsync schema`: the JSON Schema of mapping files, for editors. Where it comes from is `mappings.json_schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.flags import AsJson


def schema(
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there instead of printing it.")] = None,
    as_json: AsJson = False,
) -> int:
    """Print the JSON Schema of mapping files: completion and red underlines for your editor.

    For example:

        # Beside your mapping files
        eventsync schema --out mappings/eventsync.schema.json
        # Then begin each file with
        # yaml-language-server: $schema=../eventsync.schema.json

    Exit codes: 0, or 2 if FILE cannot be written.
    """
    from pipelines.cli.schema_file import give_schema  # noqa: PLC0415  # keeps `--help` fast

    return give_schema(out, as_json=as_json)
