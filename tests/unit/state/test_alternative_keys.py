"""Rows of several keys in the ledger: which entry a row is, and what is in doubt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from file_desks import Desk, Feed, write_rows
from sqlalchemy import event
from unit.state.world import World

from pipelines.run.options import RunOptions
from state.enums import ProblemKind
from state.queries import LedgerQueries, RowFilter

FEED = Feed(key="{first_of: [REF, [DAYS, NOTE]]}")


@pytest.fixture
def desk(world: World, tmp_path: Path) -> Desk:
    return Desk(world, tmp_path, feed=FEED, is_plain=True)


def read(desk: Desk, rows: str, options: RunOptions | None = None) -> str:
    """Read rows such as `7 jazz a` (`-` for no identifier), publish; return the keys of the entries, then what was rejected."""
    cells = [row.split() for row in rows.split(",")]
    write_rows(desk.folder, [(ref.strip("-"), title, "", name, "n") for ref, title, name in cells])
    staged = desk.stage(options)
    desk.publish()
    books = LedgerQueries(desk.world.engine)
    entries = [f"{row.row_key} {row.drift_kind or row.state}" for row in books.every_row(desk.book, RowFilter())]
    rejected = [one.reasons[0].hint for one in books.every_problem(desk.book, ProblemKind.REJECTED)]
    assert staged.report.account.imbalance() == 0
    return "; ".join([", ".join(entries), *rejected])


IN_DOUBT = "the row could be 7 or 8: fill in the identifier that says which"
STORIES = {
    "an identifier comes, and goes": (("- one a", "a|n delivered"), ("7 one a", "a|n delivered"), ("- one a", "a|n delivered")),
    "the name changes while the identifier stays": (
        *(("- one a", "a|n delivered"), ("7 one a", "a|n delivered"), ("7 one b", "a|n edited")),
        *(("- one b", "a|n edited"), ("- one a", "a|n delivered")),
    ),
    "an identifier goes, and the row is edited": (("7 one a", "7 delivered"), ("- two a", "7 edited")),
    "two rows of one name": (
        *(("7 one a, 8 two a", "7 delivered, 8 delivered"), ("- one a", f"7 delivered, 8 delivered; {IN_DOUBT}")),
        ("8 three a, 7 one a", "7 delivered, 8 edited"),
    ),
    "the same row twice": (("7 one a, - one a", "7 delivered"), ("- one a, 7 one a", "7 delivered")),
    "an identifier that is a name": (("7 one a", "7 delivered"), ("7 one a, a|n two b", "7 delivered, a\\|n delivered")),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_row_keeps_its_entry_under_all_of_its_keys(story: tuple[tuple[str, str], ...], desk: Desk) -> None:
    assert [read(desk, rows) for rows, _ in story] == [becomes for _, becomes in story]


def test_a_row_in_doubt_says_nothing_of_the_events_that_it_may_be(desk: Desk) -> None:
    read(desk, "7 one a, 8 two a")
    read(desk, "- one a")
    rows = LedgerQueries(desk.world.engine).every_row(desk.book, RowFilter())
    assert [row.vanished_at for row in rows] == [None, None]


def test_a_feed_keeps_its_keys_when_other_keys_are_added(desk: Desk) -> None:
    before = replace(desk, feed=Feed(key="DAYS, NOTE"))
    assert read(before, "7 one a") == "a|n delivered"
    staged = desk.stage()
    assert [one.name for one in staged.brakes if one.is_tripped] == ["keys"]
    assert read(desk, "7 one a, 8 two a", RunOptions(accept=("keys",))) == "a|n delivered, 8 pending"


def test_the_rows_of_a_chunk_are_looked_up_together(desk: Desk) -> None:
    statements: list[str] = []
    event.listen(desk.world.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    counts = []
    for number in (2, 400, 400):
        statements.clear()
        read(desk.__class__(desk.world, desk.folder, feed=FEED, is_plain=True), ", ".join(f"{n} t{n} a" for n in range(number)))
        counts.append(sum("known_as" in statement for statement in statements))
    assert max(counts) <= counts[0] + 2
