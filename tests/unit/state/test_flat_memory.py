"""Memory does not grow with the rows of a read, whatever becomes of them, but for a byte each."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.state.world import World, receipt, rejection, row

from mappings.outcome import RowOutcome
from state.enums import EntryState
from state.ledger.outbox import Settled

KNOWN = 2_500, 4_000
"""More than a page of the ledger, as the end of a read goes through it."""
UNSENT = 4_000, 5_500
"""Rows of which none was sent: below two such pages the peak still grows with them."""
A_ROW = 32
"""At most so many bytes may a further row cost: one is its mark, the others are Python's own ups and downs; a list takes 40."""
NEW = 16_500, 18_000
"""More new rows than may wait for their marks, at the end of either read."""
CHUNK = 500

Make = Callable[[int], RowOutcome]


def usual(number: int) -> RowOutcome:
    return row(f"{number:05}")


def chunks(count: int, make: Make) -> Iterator[Iterator[RowOutcome]]:
    return ((make(number) for number in range(start, start + CHUNK)) for start in range(0, count, CHUNK))


def deliver(world: World) -> None:
    outbox = world.outbox()
    intents = outbox.settle_and_claim([], CHUNK)
    while intents:
        intents = outbox.settle_and_claim([Settled(intent, receipt(intent)) for intent in intents], CHUNK)


def peak_of(world: World, count: int, state: EntryState | None, make: Make, share: int) -> int:
    """Return the most bytes that Python held at once, beyond what it held before, while so many rows were read."""
    if state is not None:
        world.stage(*chunks(count, usual))
    if state is EntryState.DELIVERED:
        deliver(world)
    gc.collect()
    tracemalloc.start()
    world.stage(*chunks(count * share, make), brakes=["held"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    world.engine.dispose()
    return peak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "state", "make", "share"),
    [
        pytest.param(KNOWN, EntryState.DELIVERED, usual, 1, id="unchanged"),
        pytest.param(KNOWN, EntryState.DELIVERED, lambda number: row(f"{number:05}", title="edited"), 1, id="all edited"),
        pytest.param(KNOWN, EntryState.DELIVERED, lambda number: rejection(f"{number:05}", f"{number}"), 1, id="all unusable"),
        pytest.param(KNOWN, EntryState.DELIVERED, usual, 0, id="all gone"),
        pytest.param(UNSENT, EntryState.PENDING, usual, 0, id="all gone, and none was sent"),
        pytest.param(NEW, None, usual, 1, id="all new"),
    ],
)
def test_a_read_of_more_rows_holds_no_more(
    tmp_path: Path, counts: tuple[int, int], state: EntryState | None, make: Make, share: int
) -> None:
    """A first read, of a chunk, leaves Python what it keeps of its statements. Where it keeps more, or begins anew, in the last
    read alone, the next try does not.
    """

    def growth(number: int) -> int:
        places = ((tmp_path / f"{number}-{count}.db", count) for count in (CHUNK, *counts))
        _, fewer, more = (peak_of(World(place), count, state, make, share) for place, count in places)
        return more - fewer

    assert any(growth(number) < (counts[1] - counts[0]) * A_ROW for number in range(3))
