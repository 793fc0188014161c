"""What docs/mapping.md shows of the command line is what its first feed makes the command line say."""

from __future__ import annotations

import re
import shlex
from contextlib import nullcontext
from pathlib import Path

import pytest
from unit.cli.conftest import Desk
from unit.shown_feeds import feeds_shown

PAGE = (Path(__file__).parents[3] / "docs" / "mapping.md").read_text("utf-8")
FIRST = feeds_shown(PAGE)[0]
SHOWN = re.findall(r"^```text\n(feeds/| field |agenda\.csv:)(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line)[1:]
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def first(desk: Desk) -> Desk:
    """A desk with the first feed of the page beside its file."""
    desk.mapping(FIRST.mapping, "town-agenda.yaml")
    (desk.folder / "feeds" / "agenda.csv").write_bytes(FIRST.files["agenda.csv"])
    return desk


def _lines(text: str) -> list[str]:
    """Lines as words: a table is as wide as its screen."""
    return [" ".join(line.split()) for line in text.splitlines()]


def _shown(beginning: str) -> list[str]:
    return next(_lines(start + rest) for start, rest in SHOWN if start == beginning)


def test_a_mistake_is_told_as_the_page_shows(first: Desk) -> None:
    first.mapping(FIRST.mapping.replace("datetime", "datetme"), "town-agenda.yaml")
    said = _lines(first.run("check", "town-agenda").out)
    assert _shown("feeds/") == [line.removeprefix("error: ") for line in said if line][1:4]


def test_a_row_is_explained_as_the_page_shows(first: Desk) -> None:
    said = _lines(first.run("explain", "town-agenda", "T1").out)
    assert [line for line in _shown(" field ") if line not in said] == []


def test_a_rejected_row_is_shown_as_the_page_shows(first: Desk) -> None:
    said = _lines(first.run("preview", "town-agenda").out)
    assert [line for line in _shown("agenda.csv:") if line not in said] == []


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] not in {"run", "sandbox"}], ids=" ".join)
def test_every_command_of_the_page_answers(first: Desk, words: list[str]) -> None:
    with first.service() if "--live" in words else nullcontext():
        said = first.run(*words)
    assert said.code == 0, said.out + said.err
