"""What a mapping file may say about a CSV source."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mappings.spec.source import CsvSource


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
    ],
)
def test_a_spec_that_cannot_work_is_refused_before_any_file_is_opened(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CsvSource.model_validate({"kind": "csv", "path": "events.csv", **spec})
