"""docs/report.md and docs/state.md: each command that they show does what they say, on a feed that was run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.cli.conftest import Desk

from pipelines.cli.report import HEADINGS, MOST_LINES, MOST_TEXT
from state.ledger.accounts import READS_COMPARED

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown(page: str, service: str) -> Iterator[list[str]]:
    stands_for = {"https://api.old.example": service}
    for block in _BLOCK.findall((DOCS / page).read_text("utf-8")):
        for line in block.splitlines():
            name, *words = shlex.split(line)
            assert name == "eventsync", line
            yield [stands_for.get(word, word.replace("lisbon-agenda", "town-hall")) for word in words]


@pytest.mark.parametrize("page", ["report.md", "state.md"])
def test_every_command_of_the_page_does_its_work(desk: Desk, page: str) -> None:
    with desk.service() as service:
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        said = {" ".join(words): desk.run(*words) for words in shown(page, service.base_url)}
    assert {words: one.err for words, one in said.items() if one.code} == {}
    assert len(said) >= 3


def test_the_page_of_the_report_tells_its_sections_and_bounds() -> None:
    page = (DOCS / "report.md").read_text("utf-8")
    told = re.findall(r"^\| ([A-Z][^|]*) \|", page, re.MULTILINE)
    assert told == [heading.title for heading in HEADINGS.values()]
    assert f"{MOST_LINES:,} rows at most" in page
    assert f"about {MOST_TEXT // 1_000_000} MB" in page


def test_the_page_of_the_state_db_tells_how_many_reads_stay() -> None:
    assert f"the last {READS_COMPARED} whole reads" in (DOCS / "state.md").read_text("utf-8")
