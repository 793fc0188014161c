"""A feed that is read by what changed comes to the ledger of one that is read whole, whatever happened on the way."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from empty_books import folder_in_memory, lay_out
from file_desks import CHANGES, DAYS, Desk, Feed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.state.world import World

from connectors.sources.contract import SourceUnavailableError
from pipelines.run.options import RunOptions
from state.enums import ProblemKind
from state.queries import LedgerQueries, RowFilter

STRICT = '{rejected: "1%", rejected_at_least: 1, shrink: off, new: off}'
REFS = st.sampled_from("abcd")
FEW = st.sampled_from([None, None, None, None, 0, 1, 2])
OPTIONS = st.sampled_from(
    [RunOptions()] * 5
    + [RunOptions(full=True), RunOptions(keys=("a",)), RunOptions(keys=("b|x", "c")), RunOptions(status="draft")]
    + [RunOptions(full=True, status="draft"), RunOptions(accept=("rejected",))]
)
Step = tuple[Any, ...]
"""What is done, in a word, and with what."""


def step(word: str, *given: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(word), *given)


EDITS = step("edit", REFS, st.sampled_from(["", "one", "two", "three"]), st.sampled_from(["x", "x y", "y z", ""]))
EDITED = st.lists(EDITS | step("delete", REFS), max_size=4)
READS = step("read", OPTIONS, FEW, FEW, st.booleans())
PUBLISHED = step("publish", st.just(()), st.none() | st.integers(0, 3))
BETWEEN = st.lists(
    PUBLISHED | step("wait", st.sampled_from([1, 30])) | step("lists", st.sampled_from(["one", "other"])), max_size=2
)
STEPS = st.lists(st.tuples(EDITED, READS, BETWEEN, EDITED), min_size=1, max_size=5).map(
    lambda rounds: [step for edits, read, between, late in rounds for step in (*edits, read, *between, *late)]
)


def take(desk: Desk, step: Step) -> None:
    match step:
        case ("edit", ref, title, days):
            desk.place.edit(ref, f"{ref} {title}" if title else "", days)
        case ("delete", ref):
            desk.place.delete(ref)
        case ("read", options, breaks_after, ends_after, is_braked):
            reader = replace(desk, feed=replace(desk.feed, brakes=STRICT)) if is_braked else desk
            with suppress(SourceUnavailableError):
                staged = reader.stage(options, breaks_after=breaks_after, ends_after=ends_after)
                assert staged.report.account.imbalance() == 0
        case ("lists", name):
            desk.channels = {"city": 7, name: 8}
        case (word, *given):
            getattr(desk, word)(*given)


def what_stands(desk: Desk) -> dict[str, object]:
    """What people are told and what is sent next: entries without the times and runs that differ, and the rejected rows."""
    books, book = LedgerQueries(desk.world.engine), desk.book
    entries = {
        row.row_key: (row.state, row.body, row.drift_body, row.drift_kind, row.vanished_at is None)
        for row in books.every_row(book, RowFilter())
    }
    rejected = sorted((one.row_key, one.origin, one.reasons) for one in books.every_problem(book, ProblemKind.REJECTED))
    (status,) = books.status()
    assert status.waiting.get("rejected", 0) == len(rejected)
    return {"entries": entries, "rejected": rejected, "gate": status.gate.is_open}


def finish(desk: Desk, options: RunOptions) -> None:
    """Run once more, and again where the first run says that the next one has to be a full one."""
    if desk.stage(options).report.is_blind:
        assert not desk.stage(options).report.is_blind


@pytest.mark.parametrize("rows", ["", DAYS], ids=["a row is an event", "a row is several"])
@given(steps=STEPS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_a_run_onward_comes_to_what_a_full_one_would_have_come_to(rows: str, steps: Sequence[Step]) -> None:
    with folder_in_memory() as name:
        folder = Path(name)
        world = World(lay_out(folder / "state.db"))
        desk = Desk(world, folder, feed=Feed(kind=CHANGES, rows=rows))
        for step in steps:
            take(desk, step)
        world.engine.dispose()
        world.clock.turn(minutes=5)
        shutil.copy(folder / "state.db", folder / "other.db")
        onward = replace(desk, world=World(folder / "state.db", world.clock, runs=100))
        full = replace(desk, world=World(folder / "other.db", world.clock, runs=100))
        try:
            finish(onward, RunOptions())
            finish(full, RunOptions(full=True))
            assert what_stands(onward) == what_stands(full)
            assert onward.world.ledger.gate().is_open
            assert onward.world.ledger.bookmark().cursor == str(desk.place.now)
        finally:
            onward.world.engine.dispose()
            full.world.engine.dispose()
