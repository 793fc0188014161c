"""What a partner's slip looks like: a file of no bytes, a column under another name."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.sources.catalogue import open_source
from connectors.sources.contract import EmptySourceError, MissingColumnsError
from mappings.spec.source import CsvSource
from pipelines.run.outcome import outcome_of

WANTED = frozenset({"ID", "TITLE", "DAY", "HOUR"})


def _read(folder: Path, text: str) -> None:
    (folder / "events.csv").write_text(text, "utf-8")
    with open_source(CsvSource(kind="csv", path="events.csv"), folder, WANTED).read() as reading:
        list(reading.rows)


def test_a_file_of_no_bytes_stops_like_a_source_without_rows(tmp_path: Path) -> None:
    with pytest.raises(EmptySourceError, match="empty") as caught:
        _read(tmp_path, "")
    assert outcome_of(caught.value).exit_code == 5


@pytest.mark.parametrize(
    ("header", "missing", "nearest"),
    [
        ("ID,TITLE,DATE,HOUR", "DAY", "DATE"),
        ("ID,TITEL,DAY,HOUR", "TITLE", "TITEL"),
        ("ID,EVENT_TITLE,DAY,HOUR,NOTE", "TITLE", "EVENT_TITLE"),
        ("Id ,Title,day,START HOUR", "HOUR", "START HOUR"),
    ],
)
def test_a_renamed_column_is_sought_among_those_that_nobody_needs(
    tmp_path: Path, header: str, missing: str, nearest: str
) -> None:
    with pytest.raises(MissingColumnsError) as caught:
        _read(tmp_path, f"{header}\n")
    assert caught.value.nearest == {missing: nearest}


def test_a_lost_column_is_not_likened_to_one_that_is_needed_itself(tmp_path: Path) -> None:
    with pytest.raises(MissingColumnsError) as caught:
        _read(tmp_path, "ID,TITLE,HOUR\n")
    assert caught.value.nearest == {}
