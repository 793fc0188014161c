"""The JSON Schema of mapping files, printed or written to a file. What is in it is `mappings.json_schema`'s."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mappings.errors import ConfigError
from mappings.spec.json_schema import feed_json_schema
from pipelines.cli.output import Output


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
    output.document({"schema": out.resolve()})
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
