"""A feed's first read keeps PostgreSQL's statistics up by itself; a minute later the server would do it too."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from unit.state.world import World, row

from state.database import reading


@pytest.mark.parametrize("state_url", ["postgresql"], indirect=True)
def test_the_size_of_the_ledger_is_known_to_the_planner_before_a_large_read_ends(world: World) -> None:
    rows = [row(str(number)) for number in range(1_500)]
    world.stage(rows[:500], rows[500:1_000], rows[1_000:])
    with reading(world.engine) as connection:
        known = connection.execute(text("SELECT reltuples FROM pg_class WHERE relname = 'ledger_entry'")).scalar_one()
        plan = connection.execute(
            text("EXPLAIN SELECT id FROM ledger_entry WHERE scope_id = 1 AND row_key IN ('1', '2', '3', '4')")
        ).scalars()
        assert "uq_ledger_entry_scope_id_row_key" in " ".join(plan)
    assert known >= 1_000
