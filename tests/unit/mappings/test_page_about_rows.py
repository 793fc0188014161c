from __future__ import annotations

import re
from pathlib import Path

import pytest

from mappings.examples import run_examples
from mappings.yaml.loader import parse_feed

PAGE = Path(__file__).parents[3] / "docs" / "rows.md"
FEEDS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", FEEDS, ids=["one row, many days", "many rows, one event"])
def test_the_feeds_on_the_page_about_rows_do_what_they_say(text: str) -> None:
    mapping = parse_feed(text, Path("page.yaml"))
    assert mapping.warnings == ()
    assert len(mapping.examples) > 1
    assert run_examples(mapping) == ()
