"""What proves that a source is as its last whole read left it: the stamp of a settled file, else its bytes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connectors.sources.contract import REAL_CLOCK
from connectors.sources.files.choice import FileSnapshot, take_snapshot
from mappings.spec.source import CsvSource
from pipelines.run.stage import ReadPlan, SourceFingerprint, fingerprint_of, match_fingerprint, parse_fingerprint

PLAN = ReadPlan(datetime(2026, 3, 1, 12, 0, tzinfo=UTC), fit_today="fit")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "rows.csv"
    place.write_bytes(b"REF\na\n")
    return place


def snapshot_of(place: Path, *, age_s: float = 3600) -> FileSnapshot:
    """The file as a run sees it when it is so old."""
    clockwork = replace(REAL_CLOCK, now=lambda: place.stat().st_ctime + age_s)
    snapshot = take_snapshot(CsvSource(kind="csv", path=place.name), place.parent, clockwork)
    assert snapshot is not None
    return snapshot


def kept_of(place: Path, *, age_s: float = 3600) -> str:
    """The evidence of a read."""
    return str(fingerprint_of(snapshot_of(place, age_s=age_s), PLAN))


def matched(snapshot: FileSnapshot, kept: str) -> SourceFingerprint | None:
    return match_fingerprint(snapshot, parse_fingerprint(kept, PLAN))


def out_of_reach(snapshot: FileSnapshot) -> FileSnapshot:
    """The same snapshot, of bytes that cannot be digested any more."""
    return replace(snapshot, files=tuple(replace(file, version="another") for file in snapshot.files))


def test_a_settled_file_is_known_by_its_stamp_alone(place: Path) -> None:
    assert matched(out_of_reach(snapshot_of(place)), kept_of(place)) is not None


@pytest.mark.parametrize(("age_s_then", "age_s"), [(10, 3600), (3600, 10), (10, 10), (3600, -10)])
def test_a_file_that_was_young_once_is_known_by_its_bytes(place: Path, age_s_then: float, age_s: float) -> None:
    kept, snapshot = kept_of(place, age_s=age_s_then), snapshot_of(place, age_s=age_s)
    assert matched(snapshot, kept) is not None
    assert matched(out_of_reach(snapshot), kept) is None


def test_the_stamp_of_a_file_that_has_settled_takes_the_place_of_none(place: Path) -> None:
    again = matched(snapshot_of(place), kept_of(place, age_s=10))
    assert again is not None
    assert matched(out_of_reach(snapshot_of(place)), str(again)) == again


@pytest.mark.parametrize("kept", ["", "size=7 mtime_ns=1", "{}", "[]"])
def test_what_is_no_evidence_proves_nothing(place: Path, kept: str) -> None:
    assert matched(snapshot_of(place), kept) is None
