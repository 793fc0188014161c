"""A run that reads only what has changed of a file says and leaves what one says and leaves that reads every row."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from empty_books import folder_in_memory, lay_out
from file_desks import BRAKES, COLUMNS, NO_BRAKES, Cells, Desk, Feed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.test_incremental_reads import Step, step
from unit.state.world import World

from connectors.sources.contract import REAL_CLOCK, Clock
from mappings.errors import SyncError
from mappings.row_key import FeedName
from pipelines.run.options import RunOptions
from state.ledger.choices import Instruction, Option

EXAMPLES = int(os.environ.get("EVENTSYNC_TEST_EXAMPLES", "12"))


@dataclass(frozen=True)
class Line:
    """One record as it is written: as csv writes it, with every cell in quotes, or with none; `raw` in place of it."""

    cells: Cells = ("", "", "", "", "")
    quotes: int = csv.QUOTE_MINIMAL
    end: str = "\n"
    raw: bytes | None = None

    def written(self) -> bytes:
        if self.raw is not None:
            return self.raw
        text = io.StringIO()
        if self.quotes == csv.QUOTE_NONE:
            text.write(",".join(self.cells) + self.end)
        else:
            csv.writer(text, quoting=self.quotes, lineterminator=self.end).writerow(self.cells)
        return text.getvalue().encode()


KEYS = st.sampled_from("abcdefgh")
TITLES = st.sampled_from(
    ["one", "two", "three", "", "a one", "b one", 'a "quoted" one', "two\nlines", "two\r\nlines", '5" pipe', "a, b"]
)
CELLS = st.tuples(
    KEYS | st.sampled_from(["a", "b", ""]),
    TITLES,
    st.sampled_from(["", "", "", "off", "draft", "wrong"]),
    st.sampled_from(["", "x", "x y"]),
    st.sampled_from(["", "", "n"]),
)
FEW = st.tuples(
    st.sampled_from(["a", "a", "b"]),
    st.sampled_from(["one", "two", "three"]),
    st.sampled_from(["", "", "off", "draft"]),
    st.just("x"),
    st.sampled_from(["", "", "n"]),
)
"""Rows of one key or two, which meet one another, and themselves as they were, more often."""
RAW = (
    *(b"\n", b"\r\n", b",,,,\n", b"#c,x,,,\n", b"\xef\xbb\xbfa,marked,,,\n", b"b,nul \x00,,,\n", b"c,\xe9,,,\n", b"d,ragged\n"),
    *(b"e,long,,,,more\n", b'f,"mis"quoted,,,\n', b'g,"open,,,\n', b'h,3" x,"open,,,\n', b"<html>,,,,\n", b"a,last,,,"),
)
GOOD = st.builds(
    Line,
    CELLS | FEW,
    st.sampled_from([csv.QUOTE_MINIMAL] * 4 + [csv.QUOTE_ALL, csv.QUOTE_NONE]),
    st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]),
)
LINES = st.builds(lambda line, raw: replace(line, raw=raw), GOOD, st.sampled_from([None] * 25 + [*RAW]))
STARTS = st.lists(GOOD, max_size=7, unique_by=lambda line: line.cells[0]) | st.lists(st.builds(Line, FEW), min_size=1, max_size=3)
PLACES = st.integers(0, 9)


def change(lines: list[Line], edit: Step) -> None:
    """Edit the file as a partner may: `swap` lets two rows change what they say in one column."""
    match edit:
        case ("put", place, line, taken):
            at = place % (len(lines) + 1)
            lines[at : at + taken] = [line]
        case ("export", others):
            lines[:] = others
        case _ if not lines:
            pass
        case ("remove", place):
            lines.pop(place % len(lines))
        case ("repeat", place):
            lines.append(lines[place % len(lines)])
        case ("turn", place):
            at = place % len(lines)
            lines[:] = [*lines[at:], *lines[:at]]
        case ("swap", *places, column):
            first, second = (place % len(lines) for place in places)
            one, other = (list(lines[place].cells) for place in (first, second))
            one[column], other[column] = other[column], one[column]
            lines[first], lines[second] = replace(lines[first], cells=tuple(one)), replace(lines[second], cells=tuple(other))
        case _:
            raise AssertionError(edit)


CHANGES = st.one_of(
    step("put", PLACES, LINES, st.integers(0, 1)),
    step("put", st.integers(0, 1), st.builds(Line, FEW), st.just(1)),
    step("remove", PLACES),
    step("swap", PLACES, PLACES, st.integers(0, 1)),
    step("turn", PLACES),
    step("repeat", PLACES),
    step("export", STARTS),
)
CALLED_OFF = "{cancelled: {column: STATE, equals: off}}"
LEFT_OUT = "{skip: {column: NOTE, equals: n}, because: noted}"
NOTED = "{assert: {column: NOTE, is: missing}, message: no notes, severity: warn}"
RULES = st.sampled_from(
    [
        *("", "", CALLED_OFF, LEFT_OUT, NOTED, '{explode: {columns: DAYS, by: " "}}', "{window: {past: skip, horizon: 2000d}}"),
        *("{duplicates: {keep: last}}", "{group: {collect: classifications}}"),
        '{recur: {when: {column: NOTE, is: missing}, from: "2026-03-01", horizon: 2d}}',
    ]
)
FEEDS = st.builds(
    Feed,
    rows=RULES | st.builds("{}, {}".format, st.sampled_from([CALLED_OFF, NOTED]), RULES),
    more=st.sampled_from(
        ["{from: DAYS, on_empty: omit}"] * 3
        + ["{meta: run_date, zone: Europe/Lisbon, do: [to_text]}", "{meta: row, do: [to_text]}"]
    ),
    on_change=st.sampled_from(["report", "report", "ignore"]),
    on_vanish=st.sampled_from(["report", "report", "ignore"]),
    brakes=st.sampled_from([NO_BRAKES, NO_BRAKES, BRAKES]),
    source=st.sampled_from(["", "", ', comment: "#"', ", quote: null", ", empty_if: one", ", encoding: [ascii, latin-1]"]),
)
WORDS = st.lists(st.sampled_from(["create"] * 4 + ["refuse", "block", "lose", "conflict", "unconfirmed"]), max_size=4).map(tuple)
OPTIONS = [RunOptions(full=True), RunOptions(keys=("a",)), RunOptions(status="draft"), RunOptions(accept=("rejected", "shrink"))]
READS = step("read", st.sampled_from([RunOptions()] * 6 + OPTIONS))
CHOICES = (*map(Instruction, (Option.RESEND, Option.IGNORE, Option.UNDO)), Instruction(Option.EVENT_ID, event_id=7))
STEPS = st.one_of(
    step("decide", KEYS, st.sampled_from(CHOICES)) | step("retry"),
    step("wait", st.sampled_from([1, 9, 30])),
    step("stage_and_break"),
    step("remap", FEEDS),
    step("find", KEYS),
    step("beside", WORDS),
    step("lists", st.sampled_from([7, 8])),
    READS,
)
ROUNDS = st.tuples(
    st.lists(CHANGES, max_size=3),
    st.just([]) | st.lists(STEPS, max_size=2),
    READS,
    step("publish", WORDS, st.sampled_from([None] * 6 + [1])),
    st.integers(0, 1),
)
FIRST = ("read", RunOptions())
LATER = replace(REAL_CLOCK, now=lambda: time.time() + 3600)
"""By this clock no file has been touched for a while: it is known again by its times."""


class Books:
    """A ledger with two feeds over one file; `desk` is the one that is looked at."""

    def __init__(self, place: Path, feed: Feed, *, is_plain: bool, clockwork: Clock) -> None:
        world = World(lay_out(place))
        self.desk = Desk(world, place.parent, is_plain=is_plain, feed=feed, clockwork=clockwork)
        self.other = Desk(World(place, world.clock, FeedName("beside")), place.parent, feed=Feed(rows=LEFT_OUT))

    def take(self, step: Step) -> object:
        """Let a desk take a step; return what a person is told."""
        match step:
            case ("read", options):
                try:
                    staged = self.desk.stage(options)
                except SyncError as error:
                    self.desk.world.crash()
                    return str(error)
                assert staged.report.account.imbalance() == 0
                return staged.report, staged.brakes, staged.missing
            case ("remap", feed):
                self.desk.feed = feed
            case ("lists", channel):
                self.desk.channels = {"city": channel}
            case ("beside", words):
                try:
                    self.other.stage()
                except SyncError:
                    self.other.world.crash()
                self.other.publish(words)
            case (word, *given):
                getattr(self.desk, word)(*given)
        return None

    def close(self) -> None:
        self.desk.world.engine.dispose()
        self.other.world.engine.dispose()


@pytest.mark.slow(about_s=15)
@given(feed=FEEDS, lines=STARTS, rounds=st.lists(ROUNDS, min_size=1, max_size=5), clockwork=st.sampled_from([REAL_CLOCK, LATER]))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_that_reads_what_differs_agrees_with_one_that_reads_all(
    feed: Feed, lines: list[Line], rounds: Sequence[tuple[Sequence[Step], Sequence[Step], Step, Step, int]], clockwork: Clock
) -> None:
    with folder_in_memory() as name:
        folder = Path(name)
        both = [Books(folder / f"{is_plain}.db", feed, is_plain=is_plain, clockwork=clockwork) for is_plain in (False, True)]

        def take(*steps: Step) -> None:
            for step in steps:
                quick, plain = (books.take(step) for books in both)
                assert quick == plain
                if step[0] == "read":
                    assert both[0].desk.stands() == both[1].desk.stands()

        try:
            for edits, steps, read, publish, more in [((), (), FIRST, ("publish",), 1), *rounds]:
                for edit in edits:
                    change(lines, edit)
                head = ",".join(COLUMNS).encode() + b"\n"
                (folder / "rows.csv").write_bytes(head + b"".join(line.written() for line in lines))
                take(*steps, read, publish, *[FIRST] * more)
        finally:
            for books in both:
                books.close()
