"""The page about sources: each of its mapping words is understood, and each of its files gives the rows it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from unit.connectors_sources.reading import SPEC

from connectors.sources.catalogue import open_source
from mappings.positions import Block, read_yaml

PAGE = (Path(__file__).parents[3] / "docs" / "sources.md").read_text("utf-8")
_EXAMPLE = re.compile(
    r"```yaml\n(?P<source>.*?)```\n(?P<rest>(?:\n`[\w.]+`:\n\n```text\n.*?```\n)*)(?P<table>\n\|.*?\n\n)?", re.DOTALL
)
_FILE = re.compile(r"`([\w.]+)`:\n\n```text\n(.*?)```", re.DOTALL)
EXAMPLES = list(_EXAMPLE.finditer(PAGE))


def _source(text: str) -> Any:
    document, slips = read_yaml(text)
    assert isinstance(document, Block)
    assert not slips
    return document["source"]


def _table(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda match: re.split("path: |kind: ", match["source"])[-1].split()[0].strip(',}"\n')
)
def test_what_the_page_shows_is_what_is_read(example: re.Match[str], tmp_path: Path) -> None:
    spec = SPEC.validate_python(_source(example["source"]))
    files = _FILE.findall(example["rest"])
    if not files:
        return
    for name, content in files:
        (tmp_path / name).write_text(content, "utf-8")
    header, *expected = _table(example["table"])
    with open_source(spec, tmp_path, frozenset(header[1:])).read() as reading:
        rows = [[row.location.place, *(row.cells[column] for column in header[1:])] for row in reading.rows]
    assert rows == expected


def test_the_page_has_examples() -> None:
    assert sum(bool(_FILE.search(example["rest"])) for example in EXAMPLES) >= 5
