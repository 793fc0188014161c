from __future__ import annotations

from pathlib import Path

from reference_pages.assets_page import write_assets

PAGE = Path(__file__).parents[2] / "docs" / "assets.md"


def test_the_page_about_assets_is_what_the_definitions_say() -> None:
    assert PAGE.read_text("utf-8") == write_assets(), "generate it again: make reference"
