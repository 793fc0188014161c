"""What a snapshot of files of this machine says before they are read: their stamp, and a digest of their bytes."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
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


def change(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes().replace(b"one", b"two").replace(b"Ha", b"Ba"))


@pytest.mark.parametrize(
    ("kind", "happens"),
    [
        pytest.param("pattern", change("agenda-1.csv"), id="one of several files changed"),
        pytest.param("pattern", lambda folder: (folder / "agenda-3.csv").write_bytes(CSV), id="one more file"),
        pytest.param("pattern", lambda folder: (folder / "agenda-2.csv").unlink(), id="one file less"),
        pytest.param("pattern", lambda folder: (folder / "agenda-2.csv").rename(folder / "agenda-3.csv"), id="another name"),
        pytest.param("newest", change("agenda-2.csv"), id="the newest changed"),
        pytest.param("joined", change("venues.csv"), id="the joined file changed"),
    ],
)
def test_other_files_are_others(folder: Path, kind: str, happens: Callable[[Path], object]) -> None:
    before = seen(KINDS[kind], folder)
    digest = before.digest()
    happens(folder)
    after = seen(KINDS[kind], folder)
    assert after.stamp != before.stamp
    assert after.digest() != digest


def test_what_is_not_meant_may_change_and_what_cannot_be_read_has_no_digest(folder: Path) -> None:
    before = seen(KINDS["newest"], folder)
    change("agenda-1.csv")(folder)
    assert seen(KINDS["newest"], folder).stamp == before.stamp
    (folder / "agenda-2.csv").unlink()
    assert before.digest() == ""


def test_the_files_of_a_day_are_those_of_the_day_of_the_look(folder: Path) -> None:
    dated = '{kind: csv, path: "agenda-{date:%Y%m%d}.csv", days: {back: 1}}'
    on_the_day = replace(REAL_CLOCK, now=lambda: 1_935_921_600.0)  # 2031-05-07 noon, UTC
    assert take_snapshot(spec_of(dated), folder, on_the_day) is None
    the_day_after = replace(REAL_CLOCK, now=lambda: 1_935_921_600.0 - 3 * 86_400)
    assert seen(dated, folder, the_day_after).digest()


def test_a_link_that_leads_to_another_file_is_seen_by_its_number_on_the_disk(folder: Path) -> None:
    link = folder / "current.csv"
    snapshots = []
    for place in ("agenda-1.csv", "agenda-2.csv"):
        link.unlink(missing_ok=True)
        link.symlink_to(place)
        snapshots.append(seen("{kind: csv, path: current.csv}", folder))
    before, after = snapshots
    assert before.stamp != after.stamp
    assert before.files[0].number != after.files[0].number


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{kind: csv, path: "https://partner.example/rows.csv"}', id="elsewhere"),
        pytest.param("{kind: csv, path: nowhere.csv}", id="nowhere"),
        pytest.param('{kind: csv, path: "agenda-?.csv", files: new}', id="read once each"),
        pytest.param("{kind: csv, path: rows.csv, settle: 30s}", id="to be waited for"),
        pytest.param('{kind: csv, path: rows.csv, marker: "{name}.done"}', id="to be marked"),
        pytest.param(
            f"{{kind: csv, path: rows.csv, join: {JOIN.replace('venues.csv', 'https://a.example/b.csv')}}}", id="joined elsewhere"
        ),
    ],
)
def test_nothing_is_seen_where_a_look_does_not_tell(folder: Path, text: str) -> None:
    assert take_snapshot(spec_of(text), folder) is None
