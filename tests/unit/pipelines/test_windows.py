"""How windows of a feed's past are cut and read, who gives way to whom, and what proves that a source is as it was."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine
from unit.pipelines.feed_files import CSV, feed

from connectors.sources.catalogue import open_source
from connectors.sources.contract import SourceUnavailableError
from connectors.sources.files.source import NO_FILES
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import ConfigError
from mappings.event import Directory
from mappings.outcome import MappedRow, RowLocation, SourceRow
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from mappings.spec.source import SourceSpec
from pipelines.run.backfill import DAYS_OF_A_RUN, BackfillPlan, cut, narrow_to, plan_of_tag
from pipelines.run.context import is_awaited, note_waiting
from pipelines.run.options import By, RunOptions, Window
from pipelines.run.stage import (
    ReadPlan,
    WindowFilter,
    parse_fingerprint,
    plan_read,
)
from state.ledger.accounts import ReadKind
from state.ledger.gate import NO_BOOKMARK, Bookmark
from state.notes import ServiceNotes

NOW = datetime(2031, 6, 1, 12, tzinfo=UTC)
DATED = '{kind: csv, path: "in/{date:%Y%m%d}.csv"}'
DELIVERED = '{kind: csv, path: "in/*.csv", files: new}'
ORG = "{kind: salesforce, object: Event__c, incremental: {by: LastModifiedDate}}"
DAYS = st.dates(date(2000, 1, 1), date(2040, 1, 1))


def compiled(mapping: FeedMapping) -> RowMapper:
    return compile_feed(mapping, Directory(), NOW)


def window(by: By, first: str, last: str, column: str = "") -> Window:
    return Window.model_validate({"by": by, "first": first, "last": last, "column": column})


@given(DAYS, st.integers(0, 800), st.sampled_from(["day", "week", "month", "1", "10", "365"]))
def test_slices_hold_each_day_of_a_window_once_and_in_order(first: date, days: int, slice_: str) -> None:
    whole = Window(by="event", first=first, last=first + timedelta(days=days))
    slices = cut(whole, slice_)
    assert (slices[0].first, slices[-1].last) == (whole.first, whole.last)
    assert all(after.first - before.last == timedelta(days=1) for before, after in pairwise(slices))


@pytest.mark.parametrize(
    ("last", "by", "column", "status", "tag"),
    [
        ("2026-05-31", "file", "", None, "2026-05-01 to 2026-05-31 by file"),
        ("2026-05-01", "event", "", "draft", "2026-05-01 by event, as drafts"),
        ("2026-05-31", "cursor", "changed by hand", "draft", "2026-05-01 to 2026-05-31 by cursor changed by hand, as drafts"),
    ],
)
def test_the_tag_of_a_backfill_is_for_people_and_lacks_nothing_to_resume_it(
    last: str, by: By, column: str, status: Literal["draft"] | None, tag: str
) -> None:
    window = Window(by=by, first=date(2026, 5, 1), last=date.fromisoformat(last), column=column)
    plan = BackfillPlan(window=window, slice=str(DAYS_OF_A_RUN), status=status)
    assert (plan.tag, plan_of_tag(tag)) == (tag, plan)


def test_weeks_begin_on_a_monday_and_months_on_the_first() -> None:
    whole = window("file", "2031-01-30", "2031-02-12")
    assert [str(one.first) for one in cut(whole, "week")] == ["2031-01-30", "2031-02-03", "2031-02-10"]
    assert [str(one.first) for one in cut(whole, "month")] == ["2031-01-30", "2031-02-01"]


def test_rows_that_make_one_event_together_are_not_torn_apart(tmp_path: Path) -> None:
    mapping = feed(tmp_path, DATED, "rows: [{duplicates: {keep: last}}]")
    with pytest.raises(ConfigError, match="separate them") as refused:
        narrow_to(mapping, window("file", "2031-01-01", "2031-01-02"), compiled(mapping))
    assert "--by event" in refused.value.hint


def rows_in(mapping: FeedMapping, source: SourceSpec, since: str) -> tuple[list[str], str]:
    """The ids of the rows that a source has, and the cursor to go on from."""
    with open_source(source, mapping.path.parent, compiled(mapping).columns, since=since).read() as reading:
        return [row.cells["ID"] for row in reading.rows], reading.ending().cursor


def read(mapping: FeedMapping, days: Window) -> list[str]:
    return rows_in(mapping, narrow_to(mapping, days, compiled(mapping)).source, NO_FILES)[0]


def put(folder: Path, name: str) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    path = folder / "in" / f"{name}.csv"
    path.write_text(f"ID,TITLE,START\n{name},x,2031-05-03\n", "utf-8")
    return path


def test_deliveries_without_a_day_in_their_names_are_told_by_when_they_changed(tmp_path: Path) -> None:
    for name, day in (("a", 1), ("b", 2)):
        at = datetime(2011, 1, day, 23, 30, tzinfo=UTC).timestamp()
        os.utime(put(tmp_path, name), (at, at))
    for source, found in ((DELIVERED, "b"), (DELIVERED.replace("new", "new, days: {zone: Asia/Tokyo}"), "a")):
        assert read(feed(tmp_path, source), window("file", "2011-01-02", "2011-01-02")) == [found]


def test_half_a_day_of_files_counts_as_none_of_it(tmp_path: Path) -> None:
    for name in ("20110101", "20110102"):
        put(tmp_path, name)
    os.utime(tmp_path / "in" / "20110101.csv", (0, 0))
    mapping = feed(tmp_path, DATED.replace('csv"}', 'csv", files: new, settle: 1h}'))
    assert read(mapping, window("file", "2011-01-01", "2011-01-01")) == ["20110101"]
    with pytest.raises(SourceUnavailableError, match=r"20110102.csv is still being written"):
        read(mapping, window("file", "2011-01-01", "2011-01-02"))


def rows(**starts: str) -> list[SourceRow]:
    return [SourceRow(RowLocation(key), {"ID": key, "TITLE": "x", "START": start}) for key, start in starts.items()]


def test_an_event_is_in_the_window_of_its_own_day_where_it_happens(tmp_path: Path) -> None:
    sieve = WindowFilter(window("event", "2031-07-02", "2031-07-02"))
    moments = {"late": "01T23:30", "before": "01T22:30", "after": "02T23:30", "in": "02T10:00"}
    told = rows(**{name: f"2031-07-{at}:00Z" for name, at in moments.items()}, bad="soon")
    mapper = compiled(feed(tmp_path, CSV))
    kept = list(sieve.outcomes(mapper.over(sieve.rows(told))))
    assert [one.row_key for one in kept if isinstance(one, MappedRow)] == ["late", "in"], "in Lisbon it is an hour later"
    assert any("belong to no window: 1" in notice for notice in sieve.notices())


def test_a_column_tells_the_day_in_utc_and_what_is_none_is_counted() -> None:
    sieve = WindowFilter(window("cursor", "2031-07-02", "2031-07-02", "START"))
    told = rows(plain="2031-07-02", zoned="2031-07-01T23:30:00-03:00", other="2031-07-03T00:00:00Z", empty="", word="soon")
    assert [row.cells["ID"] for row in sieve.rows(told)] == ["plain", "zoned"]
    assert any("which belong to no window: 2" in notice for notice in sieve.notices())


def plan(mapping: FeedMapping, hours: int | None = None, cursor: str = "") -> ReadPlan:
    """How a feed is read whose source was read as a whole so many hours ago, or never."""
    first = plan_read(mapping, compiled(mapping), "", NOW, RunOptions())
    before = NO_BOOKMARK if hours is None else Bookmark(cursor, first.fit, NOW - timedelta(hours=hours))
    return plan_read(mapping, compiled(mapping), "", NOW, RunOptions(), before)


def onward(mapping: FeedMapping, hours: int | None = None, cursor: str = "") -> tuple[list[str], str]:
    return rows_in(mapping, mapping.source, plan(mapping, hours, cursor).since)


@pytest.mark.parametrize(
    ("rules", "is_daily"),
    [("", False), ("{window: {past: skip}}", False), ("{window: {past: skip, horizon: 30d}}", True)],
    ids=["no window", "past", "horizon"],
)
def test_what_lies_beyond_a_horizon_is_read_again_every_day(tmp_path: Path, rules: str, is_daily: bool) -> None:
    mapping = feed(tmp_path, DELIVERED, f"rows: [{rules}]")
    put(tmp_path, "a")
    _, cursor = onward(mapping)
    put(tmp_path, "b")
    assert onward(mapping, 22, cursor)[0] == ["b"]
    assert plan(mapping, 22, cursor).kind is ReadKind.INCREMENTAL
    assert onward(mapping, 25, cursor)[0] == (["a", "b"] if is_daily else ["b"])


def test_a_backfill_gives_way_to_a_run_that_asked_for_its_feed_a_moment_ago_and_not_to_its_own_next_slice(engine: Engine) -> None:
    notes = ServiceNotes(engine, "https://events.example#default", lambda: NOW)
    hall, harbour = FeedName("town-hall"), FeedName("harbour")
    for launched_by, awaited in (("backfill", [False, False]), ("cli", [True, False])):
        note_waiting(notes, hall, f"run 7, launched by {launched_by}", NOW)
        assert [is_awaited(notes, hall, NOW + timedelta(seconds=after_s)) for after_s in (3, 30)] == awaited
    assert not is_awaited(notes, harbour, NOW)


PLAN = ReadPlan(datetime(2026, 3, 1, 12, 0, tzinfo=UTC), fit_today="fit")


@pytest.mark.parametrize("kept", ["", "size=7 mtime_ns=1", "{}", "[]"])
def test_what_is_no_evidence_proves_nothing(kept: str) -> None:
    assert parse_fingerprint(kept, PLAN) is None
