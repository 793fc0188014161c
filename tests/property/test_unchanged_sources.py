"""A run that does not read what has not changed says and leaves what one says and leaves that reads every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from empty_books import folder_in_memory, lay_out
from file_desks import BRAKES, NO_BRAKES, Cells, Desk, Feed, write_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.state.world import World

from pipelines.options import RunOptions
from state.deciding import Choice, Resend, SetAside, TakeBack


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


SCHEDULED = RunOptions()


@dataclass(frozen=True)
class Read:
    options: RunOptions = SCHEDULED


@dataclass(frozen=True)
class Publish:
    words: tuple[str, ...]
    limit: int | None


@dataclass(frozen=True)
class Decide:
    key: str
    choice: Choice | None


@dataclass(frozen=True)
class Wait:
    hours: int


@dataclass(frozen=True)
class Killed:
    """A run that is killed while it stages."""


@dataclass(frozen=True)
class Remap:
    feed: Feed


@dataclass(frozen=True)
class Lists:
    channel: int


Step = Export | Shuffle | Edit | Read | Publish | Decide | Wait | Killed | Remap | Lists

KEYS = st.sampled_from(["a", "b", "c", "d", ""])
ROWS = st.tuples(
    KEYS,
    st.sampled_from(["one", "two", "three", "", "a one", "b one"]),
    st.sampled_from(["", "", "", "off", "draft", "wrong"]),
    st.sampled_from(["", "x", "x y"]),
    st.sampled_from(["", "n"]),
)
FILES = st.lists(ROWS, max_size=6).map(tuple)
RULES = st.sampled_from(
    [
        "",
        "{cancelled: {column: STATE, equals: off}}",
        "{skip: {column: NOTE, equals: n}, because: noted}",
        '{assert: {column: NOTE, is: missing}, message: "no notes", severity: warn}',
        '{explode: {columns: DAYS, by: " "}}',
        "{window: {past: skip, horizon: 2000d}}",
        "{duplicates: {keep: last}}",
    ]
)
FEEDS = st.builds(
    Feed,
    rows=RULES,
    more=st.sampled_from(["{from: DAYS, on_empty: omit}", "{meta: run_date, zone: Europe/Lisbon, do: [to_text]}"]),
    on_change=st.sampled_from(["report", "report", "ignore", "create_draft_again"]),
    on_vanish=st.sampled_from(["report", "report", "ignore"]),
    brakes=st.sampled_from([NO_BRAKES, NO_BRAKES, BRAKES]),
)
WORDS = st.lists(st.sampled_from(["create", "create", "refuse", "block", "lose", "conflict", "unconfirmed"]), max_size=4).map(
    tuple
)
OPTIONS = st.sampled_from(
    [RunOptions()] * 6
    + [RunOptions(full=True), RunOptions(keys=("a",)), RunOptions(status="draft"), RunOptions(accept=("rejected", "shrink"))]
)
PUBLISH = st.builds(Publish, WORDS, st.sampled_from([None] * 6 + [1]))
DECIDE = st.builds(Decide, KEYS, st.sampled_from([Resend(), SetAside(), TakeBack(), None]))
CHANGES = (
    st.builds(Edit, st.integers(0, 5), ROWS)
    | st.builds(Export, FILES)
    | st.builds(Shuffle, st.integers(0, 5))
    | st.builds(Remap, FEEDS)
    | st.builds(Lists, st.sampled_from([7, 8]))
    | st.builds(Wait, st.sampled_from([1, 9, 30]))
    | st.just(Killed())
    | DECIDE
)
ROUNDS = st.tuples(st.lists(CHANGES, max_size=1), st.builds(Read, OPTIONS), PUBLISH, st.integers(0, 2))
STEPS = st.lists(ROUNDS, min_size=1, max_size=4).map(
    lambda rounds: [step for changes, read, sent, more in rounds for step in (*changes, read, sent, *[Read()] * more)]
)


class Two:
    """The same feed twice, at one file: one desk reads every row in every run."""

    def __init__(self, folder: Path, feed: Feed, rows: tuple[Cells, ...]) -> None:
        self.folder, self.rows = folder, list(rows)
        self.quick = Desk(World(lay_out(folder / "quick.db")), folder, feed=feed)
        self.plain = Desk(World(lay_out(folder / "plain.db")), folder, is_plain=True, feed=feed)
        self.write()

    def write(self) -> None:
        write_rows(self.folder, self.rows)

    def take(self, step: Step) -> None:  # one arm for each kind of step
        match step:
            case Export(rows):
                self.rows = list(rows)
                self.write()
            case Shuffle(seed):
                self.rows = self.rows[seed:] + self.rows[:seed]
                self.write()
            case Edit(place, row):
                self.rows[place : place + 1] = [row]
                self.write()
            case Remap(feed):
                self.quick.feed = self.plain.feed = feed
            case Lists(channel):
                self.quick.channels = self.plain.channels = {"city": channel}
            case _:
                for desk in (self.quick, self.plain):
                    act(desk, step)

    def close(self) -> None:
        for desk in (self.quick, self.plain):
            desk.world.engine.dispose()


def act(desk: Desk, step: Read | Publish | Decide | Wait | Killed) -> None:
    match step:
        case Read(options):
            assert desk.stage(options).report.account.imbalance() == 0
        case Publish(words, limit):
            desk.publish(words, limit)
        case Decide(_, None):
            desk.retry()
        case Decide(key, choice) if choice is not None:
            desk.decide(key, choice)
        case Wait(hours):
            desk.world.clock.turn(hours=hours)
            desk.world.crash()
        case Killed():
            desk.stage_and_break()


@given(feed=FEEDS, rows=FILES, steps=STEPS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_that_passes_over_what_has_not_changed_agrees_with_one_that_reads_all(
    feed: Feed, rows: tuple[Cells, ...], steps: Sequence[Step]
) -> None:
    with folder_in_memory() as name:
        two = Two(Path(name), feed, rows)
        try:
            for step in steps:
                two.take(step)
                if isinstance(step, Read):
                    assert two.quick.stands() == two.plain.stands()
        finally:
            two.close()
