"""docs/backfills.md shows a feed, its files and four commands' words: they are what these commands say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from integration.desk import Desk
from integration.service import Service

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "backfills.md").read_text("utf-8")
ROWS = {"20260501": (1, 2), "20260503": (3, 4, 5)}
MOVING = {
    r"\d{8}T\d{6}-[0-9a-f]{8}": "ID",
    r"[\d.,]+ rows/s": "RATE",
    r", about \d+ \w+ left": "",
    r" +$": "",
}
"""What differs each time."""


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def still(text: str) -> list[str]:
    for pattern, word in MOVING.items():
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [line for line in text.splitlines() if line]


def test_the_page_shows_what_the_commands_say(desk: Desk, service: Service) -> None:
    (desk.folder / "feeds" / "town.yaml").write_text(block("yaml"), "utf-8")
    (desk.folder / "feeds" / "in").mkdir()
    for day, numbers in ROWS.items():
        lines = ["ID,TITLE,DAY", *(f"{number},Evening {number},2031-05-0{number}" for number in numbers)]
        (desk.folder / "feeds" / "in" / f"{day}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    for shown in re.split(r"^\$ ", block("console"), flags=re.MULTILINE)[1:]:
        command, _, words = shown.partition("\n")
        said = desk.command(*shlex.split(command)[1:], code=0)
        assert still(said.out) == still(words)
    assert len(service.events()) == 5
