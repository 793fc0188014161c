"""`make reference`: every page and schema that is generated from the code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from architecture.places import ROOT
from reference_pages.assets_page import write_assets
from reference_pages.commands_page import write_commands
from reference_pages.documents_page import write_documents

from mappings.reference import read_vocabulary
from mappings.spec.json_schema import feed_json_schema
from pipelines.cli.schema import DOCUMENTS, document_schema, file_name


def generated_files() -> Iterator[tuple[Path, Callable[[], str]]]:
    """Yield each generated file with the function that returns its text."""
    docs = ROOT / "docs"
    yield docs / "assets.md", write_assets
    yield docs / "commands.md", write_commands
    yield docs / "documents.md", write_documents
    yield docs / "vocabulary.md", lambda: read_vocabulary().text
    yield ROOT / "mappings" / "eventsync.schema.json", lambda: _json(feed_json_schema())
    for verb in DOCUMENTS:
        yield docs / "json" / file_name(verb), partial(_document, verb)


def _document(verb: str) -> str:
    return _json(document_schema(verb))


def _json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write every file whose text has changed, and print its name."""
    for path, text_of in generated_files():
        text = text_of()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"{path.relative_to(ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
