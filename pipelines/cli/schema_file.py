"""The JSON Schema of mapping files, printed or written to a file. What is in it is `mappings.json_schema`'s."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mappings.errors import ConfigError
from mappings.json_schema import feed_json_schema
from pipelines.cli.output import Output


def give_schema(out: Path | None, *, as_json: bool) -> int:
    """Print the schema, or write it to `out` and say so.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = json.dumps(feed_json_schema(), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        return give_text(text)
    write_text(out, text)
    output = Output(json=as_json)
    output.document({"schema": out.resolve()})
    output.note(f"{out} is written; begin your mapping files with\n# yaml-language-server: $schema={out.name}")
    return 0


def give_text(text: str) -> int:
    """Print a schema, which is a document by itself; return 0."""
    sys.stdout.write(text)
    return 0


def write_text(out: Path, text: str) -> None:
    """Write a schema to a file.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}", hint="choose another file for --out") from error
