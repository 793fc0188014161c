"""docs/tutorial.md, followed to the letter in an empty folder, from the first draft to the feed that runs by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from integration.desk import Books, Desk, WarmStart, shell_environ
from integration.reader import Reader, blocks_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("EVENTSYNC_TEST_LONG" not in os.environ, reason="takes a minute: set EVENTSYNC_TEST_LONG=1"),
]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text("utf-8")
_FOLLOWED = PAGE[PAGE.index("\n## 2.") :]
"""What comes before is how to install it."""


def test_the_tutorial_can_be_followed_to_the_letter(tmp_path: Path, warm: WarmStart) -> None:
    desk = Desk(
        tmp_path, warm, shell_environ({"COLUMNS": "120"}), Books(tmp_path / ".eventsync", "sqlite:///.eventsync/state.db")
    )
    reader = Reader(desk, port="8765")
    blocks = [*blocks_of(_FOLLOWED)]
    assert len(blocks) > 15
    try:
        for block in blocks:
            reader.follow(block)
        reader.leave()
    finally:
        desk.end_all()
