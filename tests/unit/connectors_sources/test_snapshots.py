"""What a snapshot of files of this machine says before they are read: their stamp, and a digest of their bytes."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from unit.connectors_sources.reading import SPEC

from connectors.sources.catalogue import open_source
from connectors.sources.contract import REAL_CLOCK, Clock
from connectors.sources.files.choice import FileSnapshot, take_snapshot
from mappings.spec.source import AnySource, SourceSpec

CSV = b"REF,TITLE,VENUE\na,one,v\n"
JOIN = "{source: {kind: csv, path: venues.csv}, by: {VENUE: ID}, prefix: venue.}"


def spec_of(text: str) -> SourceSpec:
    return SPEC.validate_python(yaml.safe_load(text))


def seen(text: str, folder: Path, clockwork: Clock = REAL_CLOCK) -> FileSnapshot:
    snapshot = take_snapshot(spec_of(text), folder, clockwork)
    assert snapshot is not None
    return snapshot


def read_stamp(spec: AnySource, folder: Path) -> str:
    with open_source(spec, folder, frozenset({"REF", "TITLE"})).read() as reading:  # type: ignore[arg-type]  # one of the union
        assert list(reading.rows)
        return reading.stamp


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("rows.csv", "agenda-1.csv", "agenda-2.csv", "agenda-20310503.csv"):
        (tmp_path / name).write_bytes(CSV)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(CSV))
    (tmp_path / "venues.csv").write_bytes(b"ID,NAME\nv,Hall\n")
    return tmp_path


KINDS = {
    "csv": "{kind: csv, path: rows.csv}",
    "packed": "{kind: csv, path: rows.csv.gz}",
    "pattern": '{kind: csv, path: "agenda-?.csv"}',
    "newest": '{kind: csv, path: "agenda-?.csv", files: newest}',
    "joined": f"{{kind: csv, path: rows.csv, join: {JOIN}}}",
    "nulls": "{kind: csv, path: rows.csv, empty_if: [n/a]}",
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_seen_as_a_reading_stamps_them_and_written_anew_have_another_stamp_and_the_same_digest(
    folder: Path, kind: str
) -> None:
    before = seen(KINDS[kind], folder)
    assert before.read_as == read_stamp(spec_of(KINDS[kind]), folder) != ""
    digest = before.digest()
    assert digest
    for place in folder.iterdir():
        content = place.read_bytes()
        place.unlink()
        place.write_bytes(content)
        os.utime(place, (0, 0))
    after = seen(KINDS[kind], folder)
    assert (after.size, after.digest()) == (before.size, digest)
    assert after.stamp != before.stamp
    assert before.digest() == ""


OTHER = b"ID,NAME,REF,TITLE,VENUE\nv,Ball,a,two,v\n"


@pytest.mark.parametrize(
    ("kind", "happens", "is_other"),
    [
        ("pattern", {"agenda-1.csv": OTHER}, True),
        ("pattern", {"agenda-3.csv": CSV}, True),
        ("pattern", {"agenda-2.csv": None}, True),
        ("pattern", {"agenda-2.csv": None, "agenda-3.csv": CSV}, True),
        ("newest", {"agenda-2.csv": OTHER}, True),
        ("newest", {"agenda-1.csv": OTHER}, False),
        ("joined", {"venues.csv": OTHER}, True),
    ],
)
def test_other_files_are_others_and_what_is_not_meant_may_change(
    folder: Path, kind: str, happens: dict[str, bytes | None], is_other: bool
) -> None:
    before = seen(KINDS[kind], folder)
    digest = before.digest()
    for name, content in happens.items():
        (folder / name).write_bytes(content or b"")
        if content is None:
            (folder / name).unlink()
    after = seen(KINDS[kind], folder)
    assert (after.stamp != before.stamp, after.digest() != digest) == (is_other, is_other)
    (folder / after.files[0].path).unlink()
    assert after.digest() == "", "what cannot be read has no digest"


def test_the_files_of_a_day_are_those_of_the_day_of_the_look(folder: Path) -> None:
    dated = '{kind: csv, path: "agenda-{date:%Y%m%d}.csv", days: {back: 1}}'
    on_the_day = replace(REAL_CLOCK, now=lambda: 1_935_921_600.0)  # 2031-05-07 noon, UTC
    assert take_snapshot(spec_of(dated), folder, on_the_day) is None
    the_day_after = replace(REAL_CLOCK, now=lambda: 1_935_921_600.0 - 3 * 86_400)
    assert seen(dated, folder, the_day_after).digest()


def test_a_link_that_leads_to_another_file_is_seen_by_its_number_on_the_disk(folder: Path) -> None:
    link = folder / "current.csv"
    link.symlink_to("agenda-1.csv")
    before = seen("{kind: csv, path: current.csv}", folder)
    link.unlink()
    link.symlink_to("agenda-2.csv")
    after = seen("{kind: csv, path: current.csv}", folder)
    assert before.stamp != after.stamp
    assert before.files[0].number != after.files[0].number


@pytest.mark.parametrize(
    "text",
    [
        '{kind: csv, path: "https://partner.example/rows.csv"}',
        "{kind: csv, path: nowhere.csv}",
        '{kind: csv, path: "agenda-?.csv", files: new}',
        "{kind: csv, path: rows.csv, settle: 30s}",
        '{kind: csv, path: rows.csv, marker: "{name}.done"}',
        KINDS["joined"].replace("venues.csv", "https://a.example/b.csv"),
    ],
)
def test_nothing_is_seen_where_a_look_does_not_tell(folder: Path, text: str) -> None:
    assert take_snapshot(spec_of(text), folder) is None
