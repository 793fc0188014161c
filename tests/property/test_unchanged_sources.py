"""A run that does not read what has not changed says and leaves what one says and leaves that reads every row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from empty_books import folder_in_memory, lay_out
from file_desks import BRAKES, NO_BRAKES, Cells, Decide, Desk, Feed, Killed, Publish, Read, Remap, Wait, act, write_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.state.world import World

from connectors.sources.contract import REAL_CLOCK, Clock
from mappings.row_key import FeedName
from pipelines.run.options import RunOptions
from state.ledger.choices import Choice, Option


@dataclass(frozen=True)
class Export:
    """The file is written: the same rows, others, or in another order."""

    rows: tuple[Cells, ...]


@dataclass(frozen=True)
class Shuffle:
    seed: int


@dataclass(frozen=True)
class Edit:
    place: int
    row: Cells


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
    channel: int


Step = Export | Shuffle | Edit | Read | Publish | Decide | Wait | Killed | Find | Beside | Remap | Lists

KEYS = st.sampled_from(["a", "b", "c", "d", ""])
ROWS = st.tuples(
    KEYS,
    st.sampled_from(["one", "two", "three", "", "a one", "b one"]),
    st.sampled_from(["", "", "", "off", "draft", "wrong"]),
    st.sampled_from(["", "x", "x y"]),
    st.sampled_from(["", "n"]),
)
FEW = st.tuples(
    st.sampled_from(["a", "a", "b"]),
    st.sampled_from(["one", "two", "three"]),
    st.sampled_from(["", "", "off", "draft"]),
    st.just("x"),
    st.sampled_from(["", "", "n"]),
)
"""Rows of one key or two, which meet one another, and themselves as they were, more often."""
FILES = (st.lists(ROWS, max_size=6) | st.lists(FEW, min_size=1, max_size=3)).map(tuple)
NOTED = "{assert: {column: NOTE, is: missing}, message: no notes, severity: warn}"
RULES = st.sampled_from(
    [
        "",
        "{cancelled: {column: STATE, equals: off}}",
        "{skip: {column: NOTE, equals: n}, because: noted}",
        NOTED,
        '{explode: {columns: DAYS, by: " "}}',
        "{window: {past: skip, horizon: 2000d}}",
        "{duplicates: {keep: last}}",
        "{group: {collect: classifications}}",
        '{recur: {when: {column: NOTE, is: missing}, from: "2026-03-01", horizon: 2d}}',
    ]
)
CALLED_OFF = st.just("{cancelled: {column: STATE, equals: off}}")
RULE_PAIRS = st.builds("{}, {}".format, CALLED_OFF | st.just(NOTED), RULES)
FEEDS = st.builds(
    Feed,
    rows=CALLED_OFF | RULES | RULE_PAIRS,
    more=st.sampled_from(["{from: DAYS, on_empty: omit}", "{meta: run_date, zone: Europe/Lisbon, do: [to_text]}"]),
    on_change=st.sampled_from(["report", "report", "ignore", "create_draft_again"]),
    on_vanish=st.sampled_from(["report", "report", "ignore"]),
    brakes=st.sampled_from([NO_BRAKES, NO_BRAKES, BRAKES]),
)
WORDS = st.lists(st.sampled_from(["create", "refuse", "block", "lose", "conflict", "unconfirmed"]), max_size=3).map(tuple)
OPTIONS = st.sampled_from(
    [RunOptions()] * 6
    + [RunOptions(full=True), RunOptions(keys=("a",)), RunOptions(status="draft"), RunOptions(accept=("rejected", "shrink"))]
)
PUBLISH = st.builds(Publish, WORDS, st.sampled_from([None] * 6 + [1]))
_CHOICES = (*map(Choice, (Option.RESEND, Option.IGNORE, Option.UNDO)), Choice(Option.EVENT_ID, event_id=7), None)
DECIDE = st.builds(Decide, KEYS, st.sampled_from(_CHOICES))
CHANGES = (
    st.builds(Edit, st.integers(0, 5), ROWS)
    | st.builds(Edit, st.integers(0, 2), FEW)
    | st.builds(Edit, st.integers(0, 1), FEW)
    | st.builds(Export, FILES)
    | st.builds(Shuffle, st.integers(0, 5))
    | st.builds(Remap, FEEDS)
    | st.builds(Lists, st.sampled_from([7, 8]))
    | st.builds(Wait, st.sampled_from([1, 9, 30]))
    | st.just(Killed())
    | st.builds(Find, KEYS)
    | st.builds(Beside, WORDS)
    | DECIDE
)
ROUNDS = st.tuples(st.lists(CHANGES, max_size=1), st.builds(Read, OPTIONS), PUBLISH, st.integers(0, 2))
STEPS = st.lists(ROUNDS, min_size=1, max_size=4).map(
    lambda rounds: [step for changes, read, sent, more in rounds for step in (*changes, read, sent, *[Read()] * more)]
)
LATER = replace(REAL_CLOCK, now=lambda: time.time() + 3600)
"""By this clock no file has been touched for a while: it is known again by its times."""
BESIDE = FeedName("beside")


class Pair:
    """A ledger with two feeds over one file; `desk` is the one that is looked at."""

    def __init__(self, place: Path, feed: Feed, *, is_plain: bool, clockwork: Clock) -> None:
        world = World(lay_out(place))
        self.desk = Desk(world, place.parent, is_plain=is_plain, feed=feed, clockwork=clockwork)
        other = World(place, world.clock, BESIDE)
        self.other = Desk(other, place.parent, feed=Feed(rows="{skip: {column: NOTE, equals: n}, because: noted}"))

    def close(self) -> None:
        self.desk.world.engine.dispose()
        self.other.world.engine.dispose()


class Two:
    """The same feed twice, at one file: one desk reads every row in every run."""

    def __init__(self, folder: Path, feed: Feed, rows: tuple[Cells, ...], clockwork: Clock) -> None:
        self.folder, self.rows = folder, list(rows)
        self.quick = Pair(folder / "quick.db", feed, is_plain=False, clockwork=clockwork)
        self.plain = Pair(folder / "plain.db", feed, is_plain=True, clockwork=clockwork)
        self.write()

    @property
    def pairs(self) -> tuple[Pair, Pair]:
        return self.quick, self.plain

    def write(self) -> None:
        write_rows(self.folder, self.rows)

    def take(self, step: Step) -> None:  # one arm for each kind of step
        match step:
            case Export() | Shuffle() | Edit():
                self.rows = edited(self.rows, step)
                self.write()
            case Remap(feed):
                self.quick.desk.feed = self.plain.desk.feed = feed
            case Lists(channel):
                self.quick.desk.channels = self.plain.desk.channels = {"city": channel}
            case Read(options):
                quick, plain = (pair.desk.stage(options) for pair in self.pairs)
                assert (quick.report, quick.brakes, quick.missing) == (plain.report, plain.brakes, plain.missing)
                assert quick.report.account.imbalance() == 0
                assert self.quick.desk.stands() == self.plain.desk.stands()
            case Beside(words):
                for pair in self.pairs:
                    pair.other.stage()
                    pair.other.publish(words)
            case _:
                for pair in self.pairs:
                    acted(pair.desk, step)

    def close(self) -> None:
        for pair in self.pairs:
            pair.close()


def edited(rows: list[Cells], step: Export | Shuffle | Edit) -> list[Cells]:
    match step:
        case Export(others):
            return list(others)
        case Shuffle(seed):
            return rows[seed:] + rows[:seed]
        case Edit(place, row):
            return [*rows[:place], row, *rows[place + 1 :]]


def acted(desk: Desk, step: Publish | Decide | Wait | Killed | Find) -> None:
    match step:
        case Find(key):
            desk.find(key)
        case Killed():
            desk.stage_and_break()
        case _:
            act(desk, step)


@given(feed=FEEDS, rows=FILES, steps=STEPS, clockwork=st.sampled_from([REAL_CLOCK, LATER]))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_that_passes_over_what_has_not_changed_agrees_with_one_that_reads_all(
    feed: Feed, rows: tuple[Cells, ...], steps: Sequence[Step], clockwork: Clock
) -> None:
    with folder_in_memory() as name:
        two = Two(Path(name), feed, rows, clockwork)
        try:
            for step in steps:
                two.take(step)
        finally:
            two.close()
