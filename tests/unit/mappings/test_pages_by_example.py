"""The guide and the cookbook: each mapping they show makes of the file beside it what the table below says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from unit.shown_feeds import ShownFeed, feeds_shown

from mappings.examples import run_examples

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {name: feeds_shown((DOCS / name).read_text("utf-8")) for name in ("mapping.md", "cookbook.md")}
FRAME = next(feed.mapping for feed in PAGES["mapping.md"] if not feed.files)
EXAMPLES = [pytest.param(feed, id=f"{name}: {feed.title}") for name, feeds in PAGES.items() for feed in feeds if feed.files]


@pytest.mark.parametrize("shown", EXAMPLES)
def test_what_a_page_shows_is_what_becomes_of_the_rows(shown: ShownFeed, tmp_path: Path) -> None:
    assert shown.told(shown.outcomes(tmp_path, FRAME)) == shown.table
    assert run_examples(shown.loaded(tmp_path, FRAME)) == ()


@pytest.mark.parametrize("name", PAGES)
def test_every_mapping_of_a_page_is_sound_and_no_file_is_without_an_outcome(name: str, tmp_path: Path) -> None:
    for feed in PAGES[name]:
        assert bool(feed.files) == bool(feed.table), feed.title
        assert feed.loaded(tmp_path, FRAME).feed == "town-agenda"


def test_the_cookbook_has_recipes_for_what_partners_files_hold() -> None:
    assert len({feed.title for feed in PAGES["cookbook.md"]}) >= 20


def test_the_cookbook_begins_with_a_list_of_all_its_recipes() -> None:
    page = (DOCS / "cookbook.md").read_text("utf-8")
    titles = re.findall(r"^### (.+)$", page, re.MULTILINE)
    assert re.findall(r"\[([^\]]+)\]\(#([^)]*)\)", page) == [(title, _anchor(title)) for title in titles]


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-")
