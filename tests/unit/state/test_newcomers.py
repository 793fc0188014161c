"""A feed's first read asks the ledger only about names that may be there, and comes to what asking about all comes to."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.state.world import DESTINATION, World, rejection, row

from mappings.outcome import RowOutcome
from mappings.row_key import FeedName
from state.ledger.accounts import ReadAccount
from state.ledger.ledger import Ledger
from state.ledger.newcomers import Newcomers

ROWS = st.builds(
    lambda key, title, twin: row(key, title, twin=twin, place="agenda.csv:1"),
    st.sampled_from("abcd\x00é"),
    st.sampled_from(["one", "other"]),
    st.sampled_from(["jazz", "blues", "tango"]),
)
NUMBERS = count()
OUTCOMES = st.one_of(ROWS, st.sampled_from("abcd").map(rejection))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One open state DB for all examples: each has two feeds of its own in it, at services of their own."""
    world = World(tmp_path_factory.mktemp("feeds") / "state.db")
    yield world
    world.engine.dispose()


def with_feed(shared: World, name: str) -> World:
    world = copy(shared)
    world.ledger = Ledger(world.engine, f"{DESTINATION}/{name}", FeedName(name), namespace="tests", now=world.clock)
    world.lease = world.ledger.acquire_lease("test")
    return world


@settings(max_examples=25)
@given(st.lists(st.lists(OUTCOMES, max_size=4), max_size=5))
def test_a_first_read_comes_to_what_a_later_one_of_the_same_rows_comes_to(shared: World, chunks: list[list[RowOutcome]]) -> None:
    number = next(NUMBERS)
    later = with_feed(shared, f"later {number}")
    later.stage([row("of before")])
    known = later.stage(*chunks, [row("of before")])
    first = with_feed(shared, f"first {number}").stage(*chunks)
    assert first.account == replace(known.account, read=known.account.read - 1, unchanged=known.account.unchanged - 1)
    assert (first.held, first.rejections) == (known.held, known.rejections)


def test_rows_of_earlier_chunks_are_known_in_later_ones(world: World) -> None:
    report = world.stage([row("a")], [row("b", twin="jazz")], [row("a"), row("c", twin="jazz")])
    assert report.account == ReadAccount(read=4, new=2, duplicate=1, held=1)


def test_a_first_read_that_was_cut_short_is_known_to_the_next_one(world: World) -> None:
    stage = world.ledger.open_stage(world.run(), is_whole=True, fence=world.lease.token)
    stage.write([row("a"), row("b", twin="jazz")])
    world.crash()
    assert world.stage([row("a"), row("b", twin="jazz"), row("c", twin="jazz")]).account.held == 1


def test_nothing_that_was_heard_is_missed_and_hardly_anything_else_is_asked_about() -> None:
    newcomers = Newcomers(is_first=True)
    keys = [f"row {number}" for number in range(20_000)]
    newcomers.hear(keys)
    assert newcomers.hear(keys) == keys
    assert len(newcomers.hear([f"other {number}" for number in range(20_000)])) < 200


def test_where_a_feed_had_entries_any_name_may_be_known() -> None:
    newcomers = Newcomers(is_first=False)
    newcomers.hear(["a"])
    assert newcomers.hear(["a", "b"]) == ["a", "b"]
