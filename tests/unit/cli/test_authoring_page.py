"""What docs/authoring.md shows is what happens: its file is drafted by its command into its lines, and its commands work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from unit.cli.conftest import Desk

PAGE = (Path(__file__).parents[3] / "docs" / "authoring.md").read_text("utf-8")
BLOCKS = {
    language: re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for language in ("csv", "sh", "yaml")
}
COMMANDS = [shlex.split(line)[1:] for block in BLOCKS["sh"] for line in block.splitlines()]


@pytest.fixture
def drafted(desk: Desk) -> Desk:
    """A desk at which the first command of the page was called."""
    (desk.folder / "agenda.csv").write_text(BLOCKS["csv"][0], "utf-8")
    said = desk.run(*COMMANDS[0])
    assert said.code == 0, said.err
    return desk


def test_the_draft_holds_the_lines_that_the_page_shows(drafted: Desk) -> None:
    text = (drafted.folder / "feeds" / "lisbon-agenda.yaml").read_text("utf-8")
    assert BLOCKS["yaml"][0] in text


@pytest.mark.parametrize("words", [words for words in COMMANDS[1:] if "--live" not in words and words[0] != "run"], ids=" ".join)
def test_every_further_command_answers(drafted: Desk, words: list[str]) -> None:
    said = drafted.run(*words)
    assert said.code == 0, said.err
