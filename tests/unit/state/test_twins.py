"""Entries that look like an event are found, whether their marks are written yet or not, and whatever became of them since."""

from __future__ import annotations

from sqlalchemy import delete, func, select, update
from state.twins import Twins
from unit.state.world import World, row

from state.database import reading, writing
from state.tables import ENTRY, SCOPE, TWIN_MARK

ROWS = [row(key) for key in "abcde"]
LOOKS = {each.twin_digest: each.row_key for each in ROWS}


def count_marks(world: World) -> int:
    with reading(world.engine) as connection:
        return connection.execute(select(func.count()).select_from(TWIN_MARK)).scalar_one()


def scope_of(world: World) -> int:
    with reading(world.engine) as connection:
        return connection.execute(select(SCOPE.c.id)).scalar_one()


def without_marks(world: World) -> None:
    """Make the state DB one in which no mark was ever written."""
    with writing(world.engine) as connection:
        connection.execute(delete(TWIN_MARK))
        connection.execute(update(SCOPE).values(marked_id=0))


def test_each_entry_has_a_mark_once_its_read_has_ended(world: World) -> None:
    world.stage(ROWS)
    world.stage([*ROWS, row("f")])
    assert count_marks(world) == 6


def test_marks_are_written_once_so_many_wait_for_theirs_and_all_twins_are_found_meanwhile(world: World) -> None:
    world.stage(ROWS)
    without_marks(world)
    twins = Twins(scope_of(world), at_a_time=3)
    counts = []
    with writing(world.engine) as connection:
        for each in ROWS:
            twins.create(each.twin_digest, each.row_key)
            twins.keep_up(connection)
            counts.append(connection.execute(select(func.count()).select_from(TWIN_MARK)).scalar_one())
            assert twins.find(connection, [each.twin_digest]) == {each.twin_digest: each.row_key}
        assert twins.find(connection, [*LOOKS, b"some other look."]) == LOOKS
    assert counts == [0, 0, 5, 5, 5]


def test_a_state_db_without_marks_gets_them_with_the_next_read(world: World) -> None:
    world.stage([row("old", twin="jazz")])
    world.publish()
    without_marks(world)
    assert world.stage([row("old", twin="jazz"), row("new", twin="jazz")]).account.held == 1


def test_marks_that_are_there_already_are_in_nobodys_way(world: World) -> None:
    world.stage(ROWS)
    with writing(world.engine) as connection:
        connection.execute(delete(TWIN_MARK).where(TWIN_MARK.c.entry_id == 1))
        connection.execute(update(SCOPE).values(marked_id=0))
    world.stage(ROWS)
    assert count_marks(world) == len(ROWS)


def test_an_entry_is_found_by_what_it_looks_like_now(world: World) -> None:
    world.stage([row("a", "Jazz", twin="jazz")])
    world.stage([row("a", "Blues", twin="blues")])
    assert world.stage([row("a", "Blues", twin="blues"), row("b", twin="blues")]).account.held == 1
    assert world.stage([row("a", "Blues", twin="blues"), row("c", twin="jazz")]).account.held == 0


def test_a_digest_that_only_begins_like_another_is_no_twin(world: World) -> None:
    world.stage(ROWS)
    begins_alike = ROWS[0].twin_digest[:8] + bytes(8)
    with reading(world.engine) as connection:
        assert Twins(scope_of(world)).find(connection, [begins_alike]) == {}


def test_marks_go_with_their_entries(world: World) -> None:
    world.stage(ROWS)
    world.stage(ROWS[:2])
    with reading(world.engine) as connection:
        assert connection.execute(select(func.count()).select_from(ENTRY)).scalar_one() == 2
    assert count_marks(world) == 2
