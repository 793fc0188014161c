"""A source that is read by what changed, as small as can be: rows with stamps, edited, deleted and broken by a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from unit.state.world import World

from connectors.sources.contract import Ending, Reading, SourceUnavailableError
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import Directory
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import parse_feed
from pipelines.run.options import RunOptions
from pipelines.run.stage import CHUNK_ROWS, ReadPlan, Staged, StageJob, plan_read, stage

COLUMNS = ("REF", "TITLE", "DAYS")
FEED_TEXT = """\
feed: agenda
source:
  kind: salesforce
  object: Event__c
  incremental: {{full_every: 1d}}
key: [REF]
rows: [{rows}]
event:
  channelId: 7
  title: {{join: [{{from: TITLE}}, {{from: DAYS, on_empty: omit}}], with: " "}}
  startAt: "2031-05-03T20:00:00+01:00"
  timezone: Europe/Lisbon
  status: published
  classifications: [music]
  approxLocation: {{city: {{placeId: lisboa}}}}
publish:
  on_change: {on_change}
  brakes: {brakes}
"""
NO_BRAKES = "{rejected: off, shrink: off, new: off}"
DAYS = '{explode: {columns: DAYS, by: " "}}'
"""A rule by which a row gives an event for each word of a cell."""


def feed_of(base: Path, *, on_change: str = "report", rows: str = "", brakes: str = NO_BRAKES) -> FeedMapping:
    """A feed whose source is read by what changed."""
    return parse_feed(FEED_TEXT.format(rows=rows, on_change=on_change, brakes=brakes), base / "agenda.yaml")


@dataclass
class ChangingRows:
    """The rows of a source, each with the moment of its last change; deleted ones are remembered, as a recycle bin does."""

    now: int = 0
    rows: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    bin: dict[str, int] = field(default_factory=dict)

    def edit(self, ref: str, title: str, days: str = "") -> None:
        self.now += 1
        self.rows[ref] = (self.now, title, days)
        self.bin.pop(ref, None)

    def delete(self, ref: str) -> None:
        if ref in self.rows:
            self.now += 1
            del self.rows[ref]
            self.bin[ref] = self.now


@dataclass
class ChangedSince:
    """The source: all rows, or those at or after a cursor, with the deleted ones. `breaks_after`: it fails after so many
    rows, of which the stage has by then written down those before the last of them; `ends_after`: it stops at its limit.
    """

    place: ChangingRows
    since: str = ""
    breaks_after: int | None = None
    ends_after: int | None = None

    @contextmanager
    def read(self) -> Iterator[Reading]:
        told = sorted([*self._there(), *self._gone()])
        kept = told[: self.ends_after]
        short = len(kept) < len(told)
        cursor = str(kept[-1][0] if short and kept else 0 if short else self.place.now)
        ending = Ending(cursor, ("the day's requests are used up",) if short else (), is_short=short)
        yield Reading(COLUMNS, self._rows(kept), is_whole=not self.since, ending=lambda: ending)

    def _there(self) -> Iterator[tuple[int, str, str, str, bool]]:
        for ref, (stamp, title, days) in self.place.rows.items():
            if stamp >= int(self.since or 0):
                yield stamp, ref, title, days, False

    def _gone(self) -> Iterator[tuple[int, str, str, str, bool]]:
        if self.since:
            for ref, stamp in self.place.bin.items():
                if stamp >= int(self.since):
                    yield stamp, ref, "", "", True

    def _rows(self, told: list[tuple[int, str, str, str, bool]]) -> Iterator[SourceRow]:
        for number, (_, ref, title, days, is_gone) in enumerate(told):
            if number == self.breaks_after:
                yield from (SourceRow(RowLocation(f"blank {place}"), dict.fromkeys(COLUMNS, "")) for place in range(CHUNK_ROWS))
                raise SourceUnavailableError("the line broke", hint="run again")
            yield SourceRow(RowLocation(ref), dict(zip(COLUMNS, (ref, title, days), strict=True)), is_gone=is_gone)


@dataclass
class Desk:
    """A feed over such a source, staged into a world's ledger as a run does it."""

    world: World
    mapping: FeedMapping
    place: ChangingRows = field(default_factory=ChangingRows)
    lists: str = ""

    def approach(self, options: RunOptions | None = None) -> ReadPlan:
        now, bookmark = self.world.clock(), self.world.ledger.bookmark()
        return plan_read(self.mapping, self._mapper(), self.lists, now, options or RunOptions(), bookmark)

    def stage(
        self,
        options: RunOptions | None = None,
        *,
        breaks_after: int | None = None,
        ends_after: int | None = None,
        loses_place: bool = False,
    ) -> Staged:
        """Read, map and record; the brakes are those of the mapping. `loses_place`: the source knows the cursor no more."""
        asked = options or RunOptions()
        run_id, approach = self.world.run(), self.approach(asked)
        source = ChangedSince(self.place, "" if loses_place else approach.since, breaks_after, ends_after)
        token, ledger = self.world.lease.token, self.world.ledger
        return stage(StageJob(run_id, token, self.mapping, source, self._mapper(), ledger, asked, lambda _: None, approach))

    def _mapper(self) -> RowMapper:
        return compile_feed(self.mapping, Directory(), self.world.clock())
