"""docs/backfills.md shows a feed, its files and four commands' words: they are what these commands say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from integration.desk import Desk
from integration.reader import Block, Reader
from integration.service import Service

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "backfills.md").read_text("utf-8")
ROWS = {"20260501": (1, 2), "20260503": (3, 4, 5)}


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_page_shows_what_the_commands_say(desk: Desk, service: Service) -> None:
    (desk.folder / "feeds" / "town.yaml").write_text(block("yaml"), "utf-8")
    (desk.folder / "feeds" / "in").mkdir()
    for day, numbers in ROWS.items():
        lines = ["ID,TITLE,DAY", *(f"{number},Evening {number},2031-05-0{number}" for number in numbers)]
        (desk.folder / "feeds" / "in" / f"{day}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    reader = Reader(desk, port="none on this page")
    reader.follow(Block("console", block("console"), ""))
    assert len(service.events()) == 5
