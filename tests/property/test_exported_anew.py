"""A run that reads only what differs of a file exported anew says and leaves what one says and leaves that reads every row."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from empty_books import folder_in_memory, lay_out
from file_desks import BRAKES, COLUMNS, NO_BRAKES, Decide, Desk, Feed, Killed, Publish, Read, Remap, Wait
from file_desks import act as act_on
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.state.world import World

from mappings.errors import SyncError
from pipelines.run.options import RunOptions
from state.ledger.choices import Choice, Option

ENDS = ("\n", "\n", "\n", "\r\n", "\r")


@dataclass(frozen=True)
class Line:
    """One record as it is written: as csv writes it, with every cell in quotes, or with none; `raw` in place of it."""

    cells: tuple[str, str, str, str, str] = ("", "", "", "", "")
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


Change = Callable[[list[Line]], None]
Act = Read | Publish | Decide | Wait | Killed | Remap

KEYS = st.sampled_from("abcdefgh")
TITLES = st.sampled_from(["one", "two", "three", "four", "", 'a "quoted" one', "two\nlines", "two\r\nlines", '5" pipe', "a, b"])
CELLS = st.tuples(
    KEYS,
    TITLES,
    st.sampled_from(["", "", "", "", "off", "draft", "wrong"]),
    st.sampled_from(["", "x", "x y"]),
    st.sampled_from(["", "", "", "n"]),
)
LINES = st.builds(
    Line,
    CELLS,
    st.sampled_from([csv.QUOTE_MINIMAL] * 4 + [csv.QUOTE_ALL, csv.QUOTE_NONE]),
    st.sampled_from(ENDS),
    st.sampled_from(
        [None] * 25
        + [b"\n", b"\r\n", b",,,,\n", b"#c,x,,,\n", b"\xef\xbb\xbfa,marked,,,\n", b"b,nul \x00,,,\n", b"c,\xe9,,,\n"]
        + [
            b"d,ragged\n",
            b"e,long,,,,more\n",
            b'f,"mis"quoted,,,\n',
            b'g,"open,,,\n',
            b'h,3" x,"open,,,\n',
            b"<html>,,,,\n",
            b"a,last,,,",
        ]
    ),
)
STARTS = st.lists(LINES.filter(lambda line: line.raw is None), max_size=7, unique_by=lambda line: line.cells[0])
PLACES = st.integers(0, 9)


def _change_at(place: int, line: Line, *, taken: int) -> Change:
    def change(lines: list[Line]) -> None:
        at = place % (len(lines) + 1)
        lines[at : at + taken] = [line]

    return change


def _remove_at(place: int) -> Change:
    return lambda lines: lines.pop(place % len(lines)) and None if lines else None


def _swap_cells(one: int, other: int, column: int) -> Change:
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
        lines[:] = [*lines[by % (len(lines) or 1) :], *lines[: by % (len(lines) or 1)]]

    return change


def _again(place: int) -> Change:
    def change(lines: list[Line]) -> None:
        lines.extend(lines[place % len(lines) :][:1] if lines else [])

    return change


CHANGES = st.one_of(
    st.builds(_change_at, PLACES, LINES, taken=st.just(1)),
    st.builds(_change_at, PLACES, LINES, taken=st.just(0)),
    st.builds(_remove_at, PLACES),
    st.builds(_swap_cells, PLACES, PLACES, st.integers(0, 1)),
    st.builds(_turn, PLACES),
    st.builds(_again, PLACES),
)
FEEDS = st.builds(
    Feed,
    rows=st.sampled_from(
        [
            *["", "", "{cancelled: {column: STATE, equals: off}}", "{skip: {column: NOTE, equals: n}, because: noted}"],
            '{assert: {column: NOTE, is: missing}, message: "no notes", severity: warn}',
            "{duplicates: {keep: last}}",
        ]
    ),
    more=st.sampled_from(["{from: DAYS, on_empty: omit}"] * 3 + ["{meta: row, do: [to_text]}"]),
    on_change=st.sampled_from(["report", "report", "ignore", "create_draft_again"]),
    on_vanish=st.sampled_from(["report", "report", "ignore"]),
    brakes=st.sampled_from([NO_BRAKES, NO_BRAKES, BRAKES]),
    source=st.sampled_from(["", "", ', comment: "#"', ", quote: null", ", empty_if: one", ", encoding: [ascii, latin-1]"]),
)
WORDS = st.lists(st.sampled_from(["create"] * 5 + ["refuse", "block", "lose", "conflict", "unconfirmed"]), max_size=4).map(tuple)
ACTS = st.one_of(
    st.builds(Decide, KEYS, st.sampled_from([Choice(Option.RESEND), Choice(Option.IGNORE), Choice(Option.UNDO), None])),
    st.builds(Wait, st.sampled_from([1, 9, 30])),
    st.just(Killed()),
    st.builds(Remap, FEEDS),
    st.builds(Read, st.sampled_from([RunOptions(full=True), RunOptions(keys=("a",)), RunOptions(status="draft")])),
)
ROUNDS = st.tuples(
    st.lists(CHANGES, max_size=3), st.just([]) | st.just([]) | st.lists(ACTS, max_size=1), st.builds(Publish, WORDS)
)


class Two:
    """The same feed twice, at one file: one desk reads every row in every run."""

    def __init__(self, folder: Path, feed: Feed, lines: Sequence[Line]) -> None:
        self.folder, self.lines = folder, list(lines)
        self.quick = Desk(World(lay_out(folder / "quick.db")), folder, feed=feed)
        self.plain = Desk(World(lay_out(folder / "plain.db")), folder, is_plain=True, feed=feed)

    def write(self) -> None:
        head = ",".join(COLUMNS).encode() + b"\n"
        (self.folder / "rows.csv").write_bytes(head + b"".join(line.written() for line in self.lines))

    def take(self, act: Act) -> None:
        told = [_acted(desk, act) for desk in (self.quick, self.plain)]
        assert told[0] == told[1]
        if isinstance(act, Read):
            assert self.quick.stands() == self.plain.stands()

    def close(self) -> None:
        for desk in (self.quick, self.plain):
            desk.world.engine.dispose()


def _acted(desk: Desk, act: Act) -> object:
    """Let a desk act; return what whoever watches is told."""
    match act:
        case Read(options):
            try:
                staged = desk.stage(options)
            except SyncError as error:
                desk.world.crash()
                return str(error)
            return staged.report.account, staged.brakes, staged.missing
        case Killed():
            with suppress(SyncError):
                desk.stage_and_break()
            desk.is_doomed = False
            desk.world.crash()
        case Remap(feed):
            desk.feed = feed
        case _:
            act_on(desk, act)
    return None


@given(feed=FEEDS, lines=STARTS, rounds=st.lists(ROUNDS, min_size=1, max_size=5))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_that_reads_what_differs_agrees_with_one_that_reads_all(
    feed: Feed, lines: Sequence[Line], rounds: Sequence[tuple[Sequence[Change], Sequence[Act], Publish]]
) -> None:
    with folder_in_memory() as name:
        two = Two(Path(name), feed, lines)
        try:
            two.write()
            for act in (Read(), Publish(), Read()):
                two.take(act)
            for changes, acts, publish in rounds:
                for change in changes:
                    change(two.lines)
                two.write()
                for act in (*acts, Read(), publish):
                    two.take(act)
        finally:
            two.close()
