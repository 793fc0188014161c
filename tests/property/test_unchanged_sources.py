"""A run that reads only what has changed of a file says and leaves what one says and leaves that reads every row."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from empty_books import folder_in_memory, lay_out
from file_desks import BRAKES, COLUMNS, NO_BRAKES, Cells, Decide, Desk, Feed, Killed, Publish, Read, Remap, Wait, act
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.state.world import World

from connectors.sources.contract import REAL_CLOCK, Clock
from mappings.errors import SyncError
from mappings.row_key import FeedName
from pipelines.run.options import RunOptions
from state.ledger.choices import Instruction, Option


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


@dataclass(frozen=True)
class Find:
    """A row's event is found in the service's list."""

    key: str


@dataclass(frozen=True)
class Beside:
    """Another feed in the same books reads the same file, and sends."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Lists:
    """The service's lists name another channel."""

    channel: int


Change = Callable[[list[Line]], object]
"""What is done to the file's lines."""
Step = Read | Publish | Decide | Wait | Killed | Remap | Find | Beside | Lists

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


def _put(place: int, line: Line, taken: int) -> Change:
    """Put a line into the file, in the place of another one or beside it."""

    def change(lines: list[Line]) -> None:
        at = place % (len(lines) + 1)
        lines[at : at + taken] = [line]

    return change


def _remove(place: int) -> Change:
    return lambda lines: lines and lines.pop(place % len(lines))


def _swap(one: int, other: int, column: int) -> Change:
    """Let two rows change what they say in one column: with that of the key, each is the other's."""

    def change(lines: list[Line]) -> None:
        if not lines:
            return
        first, second = one % len(lines), other % len(lines)
        cells = [list(lines[first].cells), list(lines[second].cells)]
        cells[0][column], cells[1][column] = cells[1][column], cells[0][column]
        lines[first] = replace(lines[first], cells=tuple(cells[0]))
        lines[second] = replace(lines[second], cells=tuple(cells[1]))

    return change


def _turn(by: int) -> Change:
    def change(lines: list[Line]) -> None:
        at = by % (len(lines) or 1)
        lines[:] = [*lines[at:], *lines[:at]]

    return change


def _repeat(place: int) -> Change:
    return lambda lines: lines.extend(lines[place % len(lines) :][:1] if lines else [])


def _export(others: list[Line]) -> Change:
    def change(lines: list[Line]) -> None:
        lines[:] = others

    return change


CHANGES = st.one_of(
    st.builds(_put, PLACES, LINES, st.integers(0, 1)),
    st.builds(_put, st.integers(0, 1), st.builds(Line, FEW), st.just(1)),
    st.builds(_remove, PLACES),
    st.builds(_swap, PLACES, PLACES, st.integers(0, 1)),
    st.builds(_turn, PLACES),
    st.builds(_repeat, PLACES),
    st.builds(_export, STARTS),
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
    on_change=st.sampled_from(["report", "report", "ignore", "create_draft_again"]),
    on_vanish=st.sampled_from(["report", "report", "ignore"]),
    brakes=st.sampled_from([NO_BRAKES, NO_BRAKES, BRAKES]),
    source=st.sampled_from(["", "", ', comment: "#"', ", quote: null", ", empty_if: one", ", encoding: [ascii, latin-1]"]),
)
WORDS = st.lists(st.sampled_from(["create"] * 4 + ["refuse", "block", "lose", "conflict", "unconfirmed"]), max_size=4).map(tuple)
OPTIONS = [RunOptions(full=True), RunOptions(keys=("a",)), RunOptions(status="draft"), RunOptions(accept=("rejected", "shrink"))]
READS = st.builds(Read, st.sampled_from([RunOptions()] * 6 + OPTIONS))
_CHOICES = (*map(Instruction, (Option.RESEND, Option.IGNORE, Option.UNDO)), Instruction(Option.EVENT_ID, event_id=7), None)
STEPS = st.one_of(
    st.builds(Decide, KEYS, st.sampled_from(_CHOICES)),
    st.builds(Wait, st.sampled_from([1, 9, 30])),
    st.just(Killed()),
    st.builds(Remap, FEEDS),
    st.builds(Find, KEYS),
    st.builds(Beside, WORDS),
    st.builds(Lists, st.sampled_from([7, 8])),
    READS,
)
ROUNDS = st.tuples(
    st.lists(CHANGES, max_size=3),
    st.just([]) | st.lists(STEPS, max_size=2),
    READS,
    st.builds(Publish, WORDS, st.sampled_from([None] * 6 + [1])),
    st.integers(0, 1),
)
LATER = replace(REAL_CLOCK, now=lambda: time.time() + 3600)
"""By this clock no file has been touched for a while: it is known again by its times."""


class Books:
    """A ledger with two feeds over one file; `desk` is the one that is looked at."""

    def __init__(self, place: Path, feed: Feed, *, is_plain: bool, clockwork: Clock) -> None:
        world = World(lay_out(place))
        self.desk = Desk(world, place.parent, is_plain=is_plain, feed=feed, clockwork=clockwork)
        self.other = Desk(World(place, world.clock, FeedName("beside")), place.parent, feed=Feed(rows=LEFT_OUT))

    def take(self, step: Step) -> object:  # one arm for each kind of step
        """Let a desk take a step; return what a person is told."""
        match step:
            case Read(options):
                try:
                    staged = self.desk.stage(options)
                except SyncError as error:
                    self.desk.world.crash()
                    return str(error)
                assert staged.report.account.imbalance() == 0
                return staged.report, staged.brakes, staged.missing
            case Killed():
                with suppress(SyncError):
                    self.desk.stage_and_break()
                self.desk.is_doomed = False
                self.desk.world.crash()
            case Remap(feed):
                self.desk.feed = feed
            case Lists(channel):
                self.desk.channels = {"city": channel}
            case Find(key):
                self.desk.find(key)
            case Beside(words):
                try:
                    self.other.stage()
                except SyncError:
                    self.other.world.crash()
                self.other.publish(words)
            case _:
                act(self.desk, step)
        return None

    def close(self) -> None:
        self.desk.world.engine.dispose()
        self.other.world.engine.dispose()


@pytest.mark.slow(about_s=15)
@given(feed=FEEDS, lines=STARTS, rounds=st.lists(ROUNDS, min_size=1, max_size=5), clockwork=st.sampled_from([REAL_CLOCK, LATER]))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_that_reads_what_differs_agrees_with_one_that_reads_all(
    feed: Feed, lines: list[Line], rounds: Sequence[tuple[Sequence[Change], Sequence[Step], Read, Publish, int]], clockwork: Clock
) -> None:
    with folder_in_memory() as name:
        folder = Path(name)
        both = [Books(folder / f"{is_plain}.db", feed, is_plain=is_plain, clockwork=clockwork) for is_plain in (False, True)]

        def take(*steps: Step) -> None:
            for step in steps:
                quick, plain = (books.take(step) for books in both)
                assert quick == plain
                if isinstance(step, Read):
                    assert both[0].desk.stands() == both[1].desk.stands()

        try:
            for changes, steps, read, publish, more in [((), (), Read(), Publish(), 1), *rounds]:
                for change in changes:
                    change(lines)
                head = ",".join(COLUMNS).encode() + b"\n"
                (folder / "rows.csv").write_bytes(head + b"".join(line.written() for line in lines))
                take(*steps, read, publish, *[Read()] * more)
        finally:
            for books in both:
                books.close()
