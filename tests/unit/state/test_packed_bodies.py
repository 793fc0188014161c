"""Bodies of delivered rows are kept packed, and are read everywhere as they went out; what may still be sent stays as it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select, update
from unit.state.world import DESTINATION, FEED, World, answer, body_of, row

from mappings.delivery import Conflict, Receipt, Refusal, Uncertain, Unconfirmed, Verdict
from state.archive.compacting import Compaction, compact
from state.archive.verify import examine
from state.database import reading, writing
from state.enums import DriftKind, EntryState
from state.ledger.row_record import Book
from state.ledger.terms import Terms
from state.packing import Packer, unpacked
from state.tables import ENTRY, SCOPE
from state.trouble import StateDamagedError
from state.views.books import Books
from state.views.views import RowFilter

LONG = "An evening of songs, tales & slow dances in the old mill by the river"
BOOK = Book(DESTINATION, FEED)


def kept(world: World, key: str) -> bytes:
    with reading(world.engine) as connection:
        return bytes(connection.execute(select(ENTRY.c.body).where(ENTRY.c.row_key == key)).scalar_one())


def packed(world: World) -> Compaction:
    return compact(world.engine, lambda _count: None)


def test_a_delivered_body_takes_less_room_and_reads_as_it_went_out(world: World) -> None:
    world.stage([row("a", title=f"{LONG}, first"), row("b", title=f"{LONG}, second")])
    world.publish()
    done = packed(world)
    assert (done.packed, done.spared) == (2, sum(len(world.known(key).body) - len(kept(world, key)) for key in ("a", "b")))
    for key, title in (("a", f"{LONG}, first"), ("b", f"{LONG}, second")):
        assert len(kept(world, key)) * 3 < len(body_of(title))
        assert world.known(key).body == body_of(title)


def test_packing_again_packs_what_came_since_by_the_same_body(world: World) -> None:
    rows = [row("a", title=f"{LONG}, first"), row("b", title=f"{LONG}, second")]
    for count in (1, 2):
        world.stage(rows[:count])
        world.publish()
        assert packed(world).packed == 1
        world.crash()
    assert packed(world).packed == 0
    assert kept(world, "b") != rows[1].body
    assert [world.known(key).body for key in ("a", "b")] == [one.body for one in rows]


@pytest.mark.parametrize(
    "verdict",
    [Unconfirmed(answer(409)), Refusal(answer(400)), Uncertain(answer(503)), Conflict(answer(409))],
    ids=lambda verdict: type(verdict).__name__,
)
def test_a_body_that_may_be_sent_again_stays_as_it_is(world: World, verdict: Verdict) -> None:
    world.stage([row("a", title=LONG), row("b", title=LONG + "!")])
    world.publish(verdict)
    world.stage([row("a", title=LONG), row("b", title=LONG + "!"), row("c", title=LONG + "?")])
    assert packed(world).packed == 1
    assert (kept(world, "a"), kept(world, "c")) == (body_of(LONG), body_of(LONG + "?"))


def test_an_empty_ledger_is_compact(world: World) -> None:
    assert packed(world).packed == 0


def test_a_large_ledger_is_packed_page_by_page_and_its_file_shrinks(world: World) -> None:
    rows = [row(f"{number:04}", title=f"{LONG}, number {number}. {LONG}. {LONG}") for number in range(2_300)]
    world.stage(rows)
    with writing(world.engine) as connection:
        connection.execute(update(ENTRY).values(state=EntryState.DELIVERED.value, event_id=ENTRY.c.id))
    told: list[int] = []
    done = compact(world.engine, told.append)
    assert (done.packed, told) == (2_300, [1_000, 1_000, 300])
    assert done.after < done.before or world.engine.dialect.name == "postgresql"
    assert [record.body for record in Books(world.engine).every_row(BOOK, RowFilter())] == [one.body for one in rows]


def test_a_change_of_a_packed_body_is_told_for_what_it_is(world: World) -> None:
    world.stage([row("a", title=LONG, status="draft"), row("b", title=LONG + "!")])
    world.publish()
    packed(world)
    world.stage([row("a", title=LONG), row("b", title=LONG + "?")])
    assert [world.known(key).drift_kind for key in ("a", "b")] == [DriftKind.TO_PUBLISH, DriftKind.EDITED]


def test_an_event_that_a_draft_has_replaced_is_packed_too_and_comes_back_as_it_was(world: World) -> None:
    drafting = Terms(on_change="create_draft_again")
    world.stage([row("a", title=LONG)])
    world.publish()
    world.stage([row("a", title=LONG + "!")], terms=drafting)
    assert packed(world).packed == 0  # no body is delivered now that could be the base
    world.publish(Receipt(2002, answer(201)))
    assert packed(world).packed == 2
    world.stage([row("a", title=LONG + "?")], terms=drafting)
    assert packed(world).packed == 0
    assert (world.known("a").state, kept(world, "a")[:1]) == (EntryState.PENDING, b"{")
    world.stage([row("a", title=LONG + "!")], terms=drafting)
    assert (world.known("a").state, world.known("a").body) == (EntryState.DELIVERED, body_of(LONG + "!", status="draft"))
    assert examine(world.engine).findings == ()


def test_a_packed_body_that_is_damaged_is_found(world: World) -> None:
    world.stage([row("a", title=LONG), row("b", title=LONG + "!")])
    world.publish()
    packed(world)
    assert examine(world.engine).findings == ()
    with writing(world.engine) as connection:
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == "a").values(body=func.substr(ENTRY.c.body, 1, 9)))
    (finding,) = examine(world.engine).findings
    assert (finding.check, finding.which) == ("body", "a")
    with writing(world.engine) as connection:
        connection.execute(update(SCOPE).values(body_base=b"another"))
    assert {finding.which for finding in examine(world.engine).findings} == {"a", "b"}


@given(base=st.binary(max_size=20_000), said=st.dictionaries(st.text(), st.text()), share=st.floats(0, 1))
def test_whatever_is_packed_comes_back_byte_for_byte(base: bytes, said: dict[str, str], share: float) -> None:
    body = json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass") + base[: int(len(base) * share)]
    in_short = Packer(base).pack(body)
    assert len(in_short) <= len(body)
    assert unpacked(in_short, base) == body


def test_a_body_is_unpacked_by_its_own_base_alone() -> None:
    base = body_of(LONG)
    in_short = Packer(base).pack(base)
    assert in_short != base
    for other in (None, b"", base + b" "):
        with pytest.raises(StateDamagedError, match="cannot be unpacked"):
            unpacked(in_short, other)


def test_a_packer_takes_any_number_of_bodies_in_any_order() -> None:
    bodies = [body_of(f"{LONG}, number {number}") for number in range(50)]
    packer = Packer(bodies[0])
    in_short = {body: packer.pack(body) for body in reversed(bodies)}
    assert all(unpacked(in_short[body], bodies[0]) == body for body in bodies)
