"""What a mapping file may say about a source."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from unit.connectors_sources.reading import SPEC

SHEET = {"kind": "google_sheets", "spreadsheet": "1lookalike-spreadsheet-of-a-test"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"encoding": ["utf-88"]}, "not an encoding"),
        ({"encoding": ["base64"]}, "not an encoding"),
        ({"encoding": []}, "at least 1"),
        ({"delimiter": "\n"}, "line break"),
        ({"delimiter": '"'}, "are the same character"),
        ({"delimiter": ";;"}, "not one character"),
        ({"escape": ","}, "are the same character"),
        ({"header": {"row": 0}}, "no header"),
        ({"path": ""}, "at least 1"),
        ({"delimeter": ";"}, "delimeter"),
        ({"path": "a-{date:%B}.csv"}, '"%B" is no part of a day in numbers'),
        ({"path": "a-{date:%Y-%H}.csv"}, '"%H" is no part of a day in numbers'),
        ({"marker": "done"}, '"done" does not say whose marker it is'),
        ({"marker": "{name}"}, "does not say whose marker it is"),
        ({"settle": "soon"}, '"soon" is not a duration'),
        ({"largest": "huge"}, '"huge" is not a size'),
        ({"largest": "0"}, '"0" is not a size'),
        ({"days": {"zone": "Lisbon"}}, '"Lisbon" is not a time zone'),
        ({**SHEET, "spreadsheet": "https://example.org/sheet"}, "is not the address of a Google spreadsheet"),
        ({**SHEET, "range": "B3-H9"}, "neither a range of cells nor the name of one"),
        ({**SHEET, "range": "$"}, "neither a range of cells nor the name of one"),
        ({**SHEET, "tab": "Programme", "gid": "3"}, "named in two ways"),
    ],
)
def test_a_spec_that_cannot_work_is_refused_before_any_file_is_opened(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=r"[12] validation error") as caught:
        SPEC.validate_python(spec if "kind" in spec else {"kind": "csv", "path": "events.csv", **spec})
    assert said in str(caught.value)
    assert caught.value.error_count() == (2 if said == "not an encoding" else 1)


@pytest.mark.parametrize(("text", "size"), [("500MB", 500 * 2**20), ("2 GB", 2 * 2**30), ("1.5kB", 1536), ("77", 77)])
def test_sizes_are_written_as_people_write_them(text: str, size: int) -> None:
    assert SPEC.validate_python({"kind": "csv", "path": "a.csv", "largest": text}).largest == size  # type: ignore[union-attr] # csv
