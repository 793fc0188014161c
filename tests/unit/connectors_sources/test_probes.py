"""What is known of a source before it is read: stamps and digests of files here, the versions of what stands elsewhere."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from lookalikes.sheets import Fault
from lookalikes.web_files import answering, web_server
from unit.connectors_sources.reading import SPEC, assert_untold
from unit.connectors_sources.sheets_at_hand import sheet_of

from connectors.sources.catalogue import SourceProbe, open_source, probe_source
from connectors.sources.contract import NO_ACCESS, REAL_CLOCK, Clock, SourceRefusedError
from connectors.sources.files.choice import FileSnapshot, take_snapshot
from mappings.spec.source import SourceSpec

CSV = b"REF,TITLE,VENUE\na,one,v\n"
JOIN = "{source: {kind: csv, path: venues.csv}, by: {VENUE: ID}, prefix: venue.}"


def spec_of(text: str) -> SourceSpec:
    return SPEC.validate_python(yaml.safe_load(text))


def seen(text: str, folder: Path, clockwork: Clock = REAL_CLOCK) -> FileSnapshot:
    snapshot = take_snapshot(spec_of(text), folder, clockwork)
    assert snapshot is not None
    return snapshot


def probed(base: Path = Path(), **source: Any) -> SourceProbe:
    return probe_source(SPEC.validate_python(source), base, access=NO_ACCESS)


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
def test_files_are_seen_as_a_reading_stamps_them_and_written_anew_have_the_same_digest(folder: Path, kind: str) -> None:
    before = seen(KINDS[kind], folder)
    with open_source(spec_of(KINDS[kind]), folder, frozenset({"REF", "TITLE"})).read() as reading:
        assert list(reading.rows)
        assert before.read_as == reading.stamp != ""
    for place in folder.iterdir():
        content = place.read_bytes()
        place.unlink()
        place.write_bytes(content)
        os.utime(place, (0, 0))
    after = seen(KINDS[kind], folder)
    assert after.content == before.content
    assert after.read_as != before.read_as


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
        ("newest", {"agenda-3.csv": CSV}, True),
        ("joined", {"venues.csv": OTHER}, True),
    ],
)
def test_other_files_are_others_and_what_is_not_meant_may_change(
    folder: Path, kind: str, happens: dict[str, bytes | None], is_other: bool
) -> None:
    before, source = seen(KINDS[kind], folder), yaml.safe_load(KINDS[kind])
    marks = probed(folder, **source).marks
    for name, content in happens.items():
        (folder / name).write_bytes(content or b"")
        if content is None:
            (folder / name).unlink()
    after = seen(KINDS[kind], folder)
    assert (after.content != before.content) is is_other
    assert probed(folder, **source).is_news_to(marks) is is_other


def test_the_files_of_a_day_are_those_of_the_day_of_the_look(folder: Path) -> None:
    dated = '{kind: csv, path: "agenda-{date:%Y%m%d}.csv", days: {back: 1}}'
    noon = 1_935_921_600.0  # 2031-05-07, UTC
    assert take_snapshot(spec_of(dated), folder, replace(REAL_CLOCK, now=lambda: noon)) is None
    assert seen(dated, folder, replace(REAL_CLOCK, now=lambda: noon - 3 * 86_400)).content


@pytest.mark.parametrize(
    "text",
    [
        '{kind: csv, path: "https://partner.example/rows.csv"}',
        "{kind: csv, path: nowhere.csv}",
        '{kind: csv, path: "agenda-?.csv", files: new}',
        "{kind: csv, path: rows.csv, settle: 30s}",
        KINDS["joined"].replace("venues.csv", "https://a.example/b.csv"),
    ],
)
def test_nothing_is_seen_where_a_look_does_not_tell(folder: Path, text: str) -> None:
    assert take_snapshot(spec_of(text), folder) is None


def test_a_file_on_the_web_costs_one_request_and_is_news_once_its_version_is_another_and_a_refusal_tells_no_secret() -> None:
    with web_server() as web:
        address = web.address("/agenda.csv", user="ana:s3cret-word")
        web.put("/agenda.csv", "id\n1\n")
        first = probed(kind="csv", path=address)
        assert [asked.method for asked in web.asked] == ["HEAD"]
        assert not probed(kind="csv", path=address).is_news_to(first.marks)
        web.put("/agenda.csv", "id\n2\n")
        assert probed(kind="csv", path=address).is_news_to(first.marks)
        web.put("/agenda.csv", "id\n1\n", etag="", changed_at=None)
        assert "agenda.csv has no version" in probed(kind="csv", path=address).blind
        web.instead = answering(403)
        with pytest.raises(SourceRefusedError) as refused:
            probed(kind="csv", path=address)
    assert_untold(refused.value, "s3cret-word")


def test_a_sheet_costs_one_request_is_news_once_it_was_edited_and_says_nothing_where_we_may_not_ask(tmp_path: Path) -> None:
    def of_sheet() -> SourceProbe:
        return probe_source(desk.spec(), Path(), access=desk.access, clock=desk.clock)

    with sheet_of(tmp_path, [["id", "title"], ["1", "Jazz"]]) as desk:
        first = of_sheet()
        assert [one for one in desk.google.asked if "/token" not in one and "/drive/v3/files/" not in one] == []
        assert not of_sheet().is_news_to(first.marks)
        desk.sheet.put(3, 1, "2")
        assert of_sheet().is_news_to(first.marks)
        desk.google.faults.append(Fault("/drive/", status=403))
        assert "gives no version" in of_sheet().blind


def test_records_of_an_org_are_asked_for_by_runs_only() -> None:
    assert "kind salesforce" in probed(kind="salesforce", object="Event__c").blind
