"""From where a feed of deliveries is read: each file once, and all that are there once more where rows wait for their time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from connectors.sources.catalogue import open_source
from mappings.compiler.mapper import compile_feed
from mappings.event import Directory
from mappings.yaml.loader import load_feed
from pipelines.run.options import RunOptions
from pipelines.run.stage import ReadInputs, ReadPlan, plan_read
from state.ledger.gate import NO_BOOKMARK, Bookmark
from state.ledger.reads import ReadKind

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEED = """\
feed: town-hall
source: {{kind: csv, path: "in/*.csv", files: new}}
key: [id]
rows: [{rules}]
event:
  channelId: 1
  title: {{from: title}}
  startAt: "2031-05-03T20:00:00+01:00"
  timezone: Europe/Lisbon
  classifications: [music]
  approxLocation: {{city: {{placeId: lisboa}}}}
"""


class Deliveries:
    """A feed whose files were last read an hour ago, and all of them so many hours ago."""

    def __init__(self, folder: Path, rules: str) -> None:
        (folder / "feed.yaml").write_text(FEED.format(rules=rules), "utf-8")
        (folder / "in").mkdir()
        self.folder, self.mapping = folder, load_feed(folder / "feed.yaml")
        self.mapper = compile_feed(self.mapping, Directory(), NOW)

    def approach(self, hours: int | None = None, cursor: str = "") -> ReadPlan:
        known = ReadInputs(self.mapping, self.mapper, "", NOW)
        before = NO_BOOKMARK if hours is None else Bookmark(cursor, known.fit, NOW - timedelta(hours=hours))
        return plan_read(known, RunOptions(), before)

    def deliver(self, name: str) -> None:
        (self.folder / "in" / name).write_text(f"id,title\n{name},x\n", "utf-8")

    def read(self, approach: ReadPlan) -> tuple[list[str], str]:
        source = open_source(self.mapping.source, self.folder, self.mapper.columns, since=approach.since)
        with source.read() as reading:
            return [row.cells["id"] for row in reading.rows], reading.ending().cursor


@pytest.mark.parametrize(
    ("rules", "is_daily"),
    [("", False), ("{window: {past: skip}}", False), ("{window: {past: skip, horizon: 30d}}", True)],
    ids=["no window", "past", "horizon"],
)
def test_what_lies_beyond_a_horizon_is_looked_at_again_every_day(tmp_path: Path, rules: str, is_daily: bool) -> None:
    feed = Deliveries(tmp_path, rules)
    feed.deliver("a.csv")
    _, cursor = feed.read(feed.approach())
    feed.deliver("b.csv")
    assert feed.read(feed.approach(22, cursor))[0] == ["b.csv"]
    assert feed.approach(22, cursor).kind is ReadKind.INCREMENTAL
    assert feed.read(feed.approach(25, cursor))[0] == (["a.csv", "b.csv"] if is_daily else ["b.csv"])


def test_no_delivery_left_is_a_quiet_day_also_when_all_would_be_read_again(tmp_path: Path) -> None:
    feed = Deliveries(tmp_path, "{window: {horizon: 30d}}")
    feed.deliver("a.csv")
    _, cursor = feed.read(feed.approach())
    (tmp_path / "in" / "a.csv").unlink()
    assert feed.read(feed.approach(25, cursor))[0] == []
