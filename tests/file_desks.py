"""A feed over a file, or over rows that say when they changed, staged and published into a ledger of its own."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from unit.state.world import DESTINATION, World, answer

from connectors.sources.catalogue import open_source
from connectors.sources.contract import REAL_CLOCK, Clock, Ending, Reading, Source, SourceUnavailableError
from connectors.sources.files.choice import take_snapshot
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.delivery import Answer, Blocked, Conflict, Receipt, Refusal, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from mappings.event import Directory
from mappings.outcome import RowLocation, SourceRow
from mappings.row_key import RowKey
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import parse_feed
from pipelines.run.options import RunOptions
from pipelines.run.stage import CHUNK_ROWS, ReadPlan, Staged, StageJob, plan_read, stage
from state.enums import ProblemKind
from state.ledger.choices import Instruction, NotPossibleError
from state.ledger.decisions import Decisions, Found
from state.ledger.gate import GateClosedError
from state.ledger.outbox import Settled
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries, RowFilter

COLUMNS = ("REF", "TITLE", "STATE", "DAYS", "NOTE")
Cells = tuple[str, str, str, str, str]
FEED_TEXT = """\
feed: agenda
source: {{{kind}{source}}}
key: [{key}]
rows: [{rows}]
event:
  channelId: {{channel: city}}
  title: {{join: [{{from: TITLE}}, {more}], with: " "}}
  startAt: {starts}
  timezone: Europe/Lisbon
  status: {{from: STATE, on_empty: {{use: published}}}}
  classifications: [music]
  approxLocation: {{city: {{placeId: lisboa}}}}
  locationName: {{from: TITLE, on_empty: omit}}
publish:
  on_change: {on_change}
  on_vanish: {on_vanish}
  brakes: {brakes}
"""
ONCE = '"2030-05-03T20:00:00+01:00"'
EACH_DAY = '{at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}'
FILE, CHANGES = "kind: csv, path: rows.csv", "kind: salesforce, object: Event__c, incremental: {full_every: 1d}"
DAYS = '{explode: {columns: DAYS, by: " "}}'
"""A rule by which a row gives an event for each word of a cell."""
NO_BRAKES = "{rejected: off, shrink: off, new: off}"
BRAKES = '{rejected: "20%", rejected_at_least: 2, shrink: "50%", new: off}'
ANSWERS: Mapping[str, tuple[Callable[[Answer], Verdict], int]] = {
    "refuse": (Refusal, 400),
    "block": (Blocked, 404),
    "lose": (Uncertain, 0),
    "conflict": (Conflict, 409),
    "unconfirmed": (Unconfirmed, 409),
}
"""What the service may say, in a word, beside creating an event."""


@dataclass(frozen=True)
class Feed:
    """What its mapping file says."""

    rows: str = ""
    more: str = "{from: DAYS, on_empty: omit}"
    on_change: str = "report"
    on_vanish: str = "report"
    brakes: str = NO_BRAKES
    source: str = ""
    kind: str = FILE
    key: str = "REF"

    @cache  # noqa: B019  # a mapping is as frozen as its feed, and takes longer to parse than its rows to be read
    def parsed(self, base: Path) -> FeedMapping:
        words = {name: getattr(self, name) for name in self.__dataclass_fields__}
        starts = EACH_DAY if "recur" in self.rows else ONCE
        return parse_feed(FEED_TEXT.format(**words, starts=starts), base / "agenda.yaml")


def write_rows(folder: Path, rows: Iterable[Cells]) -> None:
    """Write the file anew, as an export does."""
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as target:
        csv.writer(target).writerows([COLUMNS, *rows])


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
    """The source: all rows, or those at or after a cursor, with the deleted ones where later reads would miss them.

    `breaks_after`: it fails after so many rows, of which the stage has by then written down those before the last of them;
    `ends_after`: it stops at its limit.
    """

    place: ChangingRows
    since: str = ""
    breaks_after: int | None = None
    ends_after: int | None = None

    @contextmanager
    def read(self) -> Iterator[Reading]:
        since, place = int(self.since or 0), self.place
        shows_deleted = bool(self.since) or self.ends_after is not None
        changed = [(stamp, ref, title, days, False) for ref, (stamp, title, days) in place.rows.items() if stamp >= since]
        changed += [(stamp, ref, "", "", True) for ref, stamp in place.bin.items() if shows_deleted and stamp >= since]
        kept = sorted(changed)[: self.ends_after]
        short = len(kept) < len(changed)
        cursor = str(kept[-1][0] if short and kept else 0 if short else place.now)
        ending = Ending(cursor, ("the day's requests are used up",) if short else (), is_short=short)
        yield Reading(COLUMNS, self._rows(kept), is_whole=not self.since, ending=lambda: ending)

    def _rows(self, changed: list[tuple[int, str, str, str, bool]]) -> Iterator[SourceRow]:
        for number, (_, ref, title, days, is_gone) in enumerate(changed):
            if number == self.breaks_after:
                yield from (SourceRow(RowLocation(f"blank {place}"), dict.fromkeys(COLUMNS, "")) for place in range(CHUNK_ROWS))
                raise SourceUnavailableError("the line broke", hint="run again")
            yield SourceRow(RowLocation(ref), dict(zip(COLUMNS, (ref, title, "", days, ""), strict=True)), is_gone=is_gone)


class PowerCutError(Exception):
    """The process ends here."""


@dataclass
class Desk:
    """One feed and its ledger. `is_plain`: rows are read whatever the file looks like; `read`: how many rows were looked at."""

    world: World
    folder: Path
    is_plain: bool = False
    feed: Feed = field(default_factory=Feed)
    channels: Mapping[str, int] = field(default_factory=lambda: {"city": 7})
    place: ChangingRows = field(default_factory=ChangingRows)
    clockwork: Clock = REAL_CLOCK
    read: list[int] = field(default_factory=list)
    is_doomed: bool = False
    events: int = 1000
    watch: Callable[[RowMapper], RowMapper] = lambda mapper: mapper

    def plan(self, options: RunOptions | None = None, mapper: RowMapper | None = None) -> ReadPlan:
        mapping, lists = self.feed.parsed(self.folder), str(sorted(self.channels.items()))
        now, bookmark = self.world.clock(), self.world.ledger.bookmark()
        return plan_read(mapping, mapper or self._mapper(), lists, now, options or RunOptions(), bookmark)

    def stage(
        self,
        options: RunOptions | None = None,
        *,
        is_plain: bool | None = None,
        breaks_after: int | None = None,
        ends_after: int | None = None,
        loses_place: bool = False,
    ) -> Staged:
        """Stage once, as a run does. `loses_place`: the source knows the cursor no more."""
        asked = options or RunOptions()
        is_plain = self.is_plain if is_plain is None else is_plain
        run_id, mapping, mapper = self.world.run(), self.feed.parsed(self.folder), self._mapper()
        plan, ledger, snapshot = self.plan(asked, mapper), self.world.ledger, None
        if self.feed.kind == CHANGES:
            source: Source = ChangedSince(self.place, "" if loses_place else plan.since, breaks_after, ends_after)
        else:
            source = open_source(mapping.source, self.folder, mapper.columns)
            snapshot = None if is_plain else partial(take_snapshot, mapping.source, self.folder, self.clockwork)
        token = self.world.lease.token
        return stage(StageJob(run_id, token, mapping, source, mapper, ledger, asked, self._count, plan, (), snapshot))

    def _mapper(self) -> RowMapper:
        return self.watch(compile_feed(self.feed.parsed(self.folder), Directory(self.channels), self.world.clock()))

    def _count(self, rows: int) -> None:
        self.read.append(rows)
        if self.is_doomed:
            raise PowerCutError

    def stage_and_break(self) -> None:
        """Read the rows, and be killed once the first of them are written, before they are judged."""
        self.is_doomed = True
        with suppress(PowerCutError, SyncError):
            self.stage(is_plain=True)
        self.is_doomed = False
        self.world.crash()

    def publish(self, words: Iterable[str] = (), limit: int | None = None) -> None:
        """Send what is owed; the first rows get these answers, all others a receipt."""
        with suppress(GateClosedError):
            outbox = self.world.outbox(limit=limit)
            told = iter(words)
            while intents := outbox.settle_and_claim([], 1):
                outbox.settle_and_claim([Settled(intents[0], self._verdict(next(told, "create")))], 0)
                outbox.account().check()

    def _verdict(self, word: str) -> Verdict:
        if word not in ANSWERS:
            self.events += 1
            return Receipt(self.events, answer(201))
        kind, status = ANSWERS[word]
        return kind(answer(status))

    def decide(self, key: str, choice: Instruction) -> None:
        """Let a person decide about a row, known or held."""
        with suppress(NotPossibleError):
            self._decisions.resolve([RowKey(key)], choice)

    def retry(self) -> None:
        self._decisions.retry()

    def find(self, key: str) -> None:
        """Find a row's event in the service's list, if its id is not known."""
        entry = self.world.entry(key)
        if entry is not None and entry.event_id is None:
            self.events += 1
            self._decisions.record_found([Found(entry.entry_id, entry.revision, self.events, "by its title and its day")])

    def wait(self, hours: int) -> None:
        self.world.clock.turn(hours=hours)
        self.world.crash()

    @property
    def _decisions(self) -> Decisions:
        return Decisions(self.world.ledger.fence("", self.world.lease.token), "ana@desk")

    @property
    def book(self) -> FeedScope:
        return FeedScope(DESTINATION, self.world.feed)

    def stands(self) -> dict[str, object]:
        """All that people are shown and that later runs build on, but for ids and times of writing that carry no meaning."""
        books = LedgerQueries(self.world.engine)
        entries = {
            row.row_key: (
                *(row.state, row.key, row.revision, row.body, row.attempts, row.drift_body, row.drift_kind, row.vanished_at),
                *(row.origin, row.staged_run, row.sent_run, row.created_at, row.decision, row.event_id, row.is_asked_for),
            )
            for row in books.every_row(self.book, RowFilter())
        }
        problems = {
            kind: sorted(
                (one.row_key, one.origin, one.reasons, sorted(one.cells.items()), one.run_id, one.first_seen_at, one.seen_at)
                for one in books.every_problem(self.book, kind)
            )
            for kind in ProblemKind
        }
        (status,) = books.status(destination=DESTINATION, feed=self.world.feed)
        told = books.runs(destination=DESTINATION, feed=self.world.feed, limit=100)
        runs = [(run.run_id, run.phase, run.outcome, run.read, run.stage_report, run.brakes) for run in told]
        waiting = (status.waiting, status.counts, status.drifted, status.vanished, status.last_whole_read, status.set_aside)
        return {"entries": entries, "problems": problems, "gate": status.gate, "waiting": waiting, "runs": runs}
