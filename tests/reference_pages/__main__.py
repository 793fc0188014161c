"""`make reference`: the pages of docs/ that are written from the code, written anew. What stands on each is its own module's."""

from __future__ import annotations

import sys

from architecture.places import ROOT
from reference_pages.assets_page import write_assets
from reference_pages.commands_page import write_commands
from reference_pages.documents_page import write_documents

from mappings.reference import write_reference

PAGES = {
    "assets.md": write_assets,
    "commands.md": write_commands,
    "documents.md": write_documents,
    "vocabulary.md": write_reference,
}


def main() -> int:
    """Write every page whose text has changed, and say which."""
    for name, write in PAGES.items():
        page, text = ROOT / "docs" / name, write()
        if not page.exists() or page.read_text("utf-8") != text:
            page.write_text(text, "utf-8")
            print(f"docs/{name} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
