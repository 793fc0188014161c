"""Rows that are known by an identifier or by their names: identifiers come and go, and no row becomes a second event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from empty_books import folder_in_memory, lay_out
from file_desks import Desk, Feed, write_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.state.world import World

from state.queries import LedgerQueries, RowFilter

FEED = Feed(key="{first_of: [REF, [DAYS, NOTE]]}")


@dataclass(frozen=True)
class Row:
    """What the file says of a row in one read: `number` is the row itself, `name` the name that it has there."""

    number: int
    has_id: bool
    name: str
    title: str


ROWS = st.builds(Row, st.integers(1, 3), st.booleans(), st.sampled_from(["a", "b"]), st.sampled_from(["one", "two"]))
READS = st.lists(st.tuples(st.lists(ROWS, max_size=3, unique_by=lambda row: row.number), st.booleans()), min_size=1, max_size=5)
Reads = Sequence[tuple[Sequence[Row], bool]]
"""What the file says each time, and whether its rows are read whatever it looks like."""


def names_as_people_give_them(reads: Reads, own: bool) -> Sequence[list[Row]]:
    """A row is renamed only once it was met with its identifier: else nothing would tell that it is the same row. `own`: no two
    rows share a name.
    """
    names, met, said = dict[int, str](), set[int](), list[list[Row]]()
    for rows, _ in reads:
        of_read = []
        for row in rows:
            name = row.name if row.number in met and row.has_id else names.get(row.number, row.name)
            names[row.number] = name
            of_read.append(Row(row.number, row.has_id, f"{name}{row.number * own}", row.title))
        met |= {row.number for row in rows if row.has_id}
        said.append(of_read)
    return said


@given(reads=READS, own=st.booleans())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_identifier_that_comes_or_goes_makes_no_second_event(reads: Reads, own: bool) -> None:
    with folder_in_memory() as name:
        desk = Desk(World(lay_out(Path(name) / "state.db")), Path(name), feed=FEED)
        keys: dict[str, str] = {}
        met: set[int] = set()
        for rows, (_, is_plain) in zip(names_as_people_give_them(reads, own), reads, strict=True):
            write_rows(desk.folder, [(f"id{row.number}" * row.has_id, row.title, "", row.name, "n") for row in rows])
            assert desk.stage(is_plain=is_plain).report.account.imbalance() == 0
            desk.publish()
            met |= {row.number for row in rows}
            assert desk.events - 1000 <= len(met)
            entries = LedgerQueries(desk.world.engine).every_row(desk.book, RowFilter())
            sent = {row.row_key: row.key for row in entries if row.event_id is not None}
            assert sent.items() >= keys.items()
            keys = sent
        desk.world.engine.dispose()
