"""Memory does not grow with the rows of a read, whatever becomes of them, but for a byte each."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from unit.state.world import World, rejection, row

from mappings.outcome import RowOutcome
from state.database import writing
from state.enums import EntryState
from state.tables import ENTRY

FEW, MANY = 4_000, 6_000
"""Two pages of the ledger, as the end of a read goes through it, and more."""
A_ROW = 24
"""At most so many bytes may a further row cost: one is its mark, the others are Python's own ups and downs; a list takes 40."""
NEW, MORE_NEW = 17_000, 19_000
"""More new rows than may wait for their marks, at the end of either read."""
CHUNK = 500

Make = Callable[[int], RowOutcome]


def usual(number: int) -> RowOutcome:
    return row(f"{number:05}")


def chunks(count: int, make: Make) -> Iterator[Iterator[RowOutcome]]:
    return ((make(number) for number in range(start, start + CHUNK)) for start in range(0, count, CHUNK))


def peak_of(world: World, count: int, make: Make) -> int:
    """Return the most bytes that Python held at once, beyond what it held before, while these rows were read."""
    gc.collect()
    tracemalloc.start()
    world.stage(*chunks(count, make), brakes=["held"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of ledgers in which so many rows stand."""
    folder = tmp_path_factory.mktemp("staged")
    for count in (FEW, MANY):
        world = World(folder / f"{count}.db")
        world.stage(*chunks(count, usual))
        world.lease.release()
        world.engine.dispose()
    return folder


def ledger_of(staged: Path, folder: Path, count: int, state: EntryState) -> World:
    """Make a ledger in which so many rows stand, in one state."""
    world = World(Path(shutil.copy(staged / f"{count}.db", folder)))
    with writing(world.engine) as connection:
        connection.execute(update(ENTRY).values(state=state.value, event_id=ENTRY.c.id, attempts=state is EntryState.DELIVERED))
    return world


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "make", "share"),
    [
        (EntryState.DELIVERED, usual, 1),
        (EntryState.DELIVERED, lambda number: row(f"{number:05}", title="edited"), 1),
        (EntryState.DELIVERED, lambda number: rejection(f"{number:05}", place=f"agenda.csv:{number}"), 1),
        (EntryState.DELIVERED, usual, 0),
        (EntryState.PENDING, usual, 0),
    ],
    ids=["unchanged", "all edited", "all unusable", "all gone", "all gone, and none was sent"],
)
def test_a_read_of_more_rows_holds_no_more(tmp_path: Path, staged: Path, state: EntryState, make: Make, share: int) -> None:
    peaks = [peak_of(ledger_of(staged, tmp_path, count, state), count * share, make) for count in (FEW, MANY)]
    assert peaks[1] - peaks[0] < (MANY - FEW) * A_ROW, peaks


@pytest.mark.slow
def test_a_read_of_more_new_rows_holds_no_more(tmp_path: Path) -> None:
    peaks = [peak_of(World(tmp_path / f"{count}.db"), count, usual) for count in (NEW, MORE_NEW)]
    assert peaks[1] - peaks[0] < (MORE_NEW - NEW) * A_ROW, peaks
