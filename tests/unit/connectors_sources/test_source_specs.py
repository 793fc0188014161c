"""What a mapping file may say about a source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from unit.connectors_sources.reading import SPEC

from connectors.sources.catalogue import open_source
from mappings.positions import Block, read_yaml

SHEET = {"kind": "google_sheets", "spreadsheet": "1lookalike-spreadsheet-of-a-test"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        *(({"encoding": [odd]}, "not an encoding") for odd in ("utf-88", "base64")),
        ({"encoding": []}, "at least 1"),
        ({"delimiter": "\n"}, "line break"),
        ({"delimiter": '"'}, "are the same character"),
        ({"delimiter": ";;"}, "not a single character"),
        ({"escape": ","}, "are the same character"),
        ({"header": {"row": 0}}, "no header"),
        ({"path": ""}, "at least 1"),
        ({"delimeter": ";"}, "delimeter"),
        *(({"path": f"a-{{date:{day}}}.csv"}, f'"{day[-2:]}" is not a numeric part of a date') for day in ("%B", "%Y-%H")),
        ({"settle": "soon"}, '"soon" is not a duration'),
        ({"days": {"zone": "Lisbon"}}, '"Lisbon" is not a time zone'),
        *(
            ({**SHEET, "spreadsheet": one}, "is not the address of a Google")
            for one in ("https://example.org/sheet", "Our programme")
        ),
        *(({**SHEET, "range": part}, "is not a range of cells") for part in ("B3-H9", "Block", "$")),
        ({**SHEET, "tab": "Programme", "gid": "3"}, "named in two ways"),
        ({"kind": "sql", "connection": "sqlite:///house.db", "table": "events"}, "is not the name of a secret"),
        *(
            ({"kind": "command", "run": ["tap"], **more}, said)
            for more, said in (
                ({"run": [" "]}, "run names no program"),
                ({"run": ["tap", "{state}"]}, "{state} means nothing in `run`"),
                ({"config": "MEETUP"}, "write both or none"),
                ({"run": ["tap", "{config}"]}, "write both or none"),
                ({"run": ["tap", "{config}"], "config": "meetup"}, "is not the name of a secret"),
                ({"speaks": "singer"}, "singer needs the name of a stream"),
                ({"stream": "events"}, "lines of JSON have no streams"),
                ({"resume": ["{state}"]}, "have no STATE to continue from"),
                ({"resume": ["--state"], "speaks": "singer", "stream": "events"}, "must hand back the last STATE"),
                ({"timeout": "0s"}, "must be more than zero"),
            )
        ),
    ],
)
def test_a_spec_that_cannot_work_is_refused_before_any_file_is_opened(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=r"[12] validation error") as caught:
        SPEC.validate_python(spec if "kind" in spec else {"kind": "csv", "path": "events.csv", **spec})
    assert said in str(caught.value)
    assert caught.value.error_count() == (2 if said == "not an encoding" else 1)


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
