"""Rows that look like known events of the service: held, and freed once nothing known looks like them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import delete, update
from unit.state.books import beside, count, delivered
from unit.state.story import picture, play, stories, told
from unit.state.world import World, no_brakes, row

from mappings.outcome import MappedRow
from state.database import writing
from state.ledger.accounts import StagePolicy, StageReport
from state.ledger.stage import open_stage
from state.tables import DUPLICATE_MARK, SCOPE


JAZZ = row("a", twin="jazz")


@stories("""
a held row is sent where the row that it resembled is still there and they differ now
    a~z b | sent | a~z n~z b | a~z n:x~x b => unchanged 2, new 1 => a delivered, b delivered, n pending x
    a~z | sent | a~z n~z | a~z n:x~x | sent | a~z n:x~x => unchanged 2 => a delivered, n delivered x
a held row stays held where the row that it resembled is gone, or a person has ignored it
    a~z b | sent | a~z n~z b | n:x~x b => held 1, unchanged 1, vanished 1 => a delivered gone, b delivered, n held x like a
    a~z | sent | a~z n~z | --ignore n | a~z n:x~x => held 1, unchanged 1, ignored 1 => a delivered, n held x like a ignore
of two held rows that nothing resembles any more but each other one is sent
    a~z | sent | a~z m~z n~z | a~z m:x~x n:x~x => held 1, unchanged 1, new 1 => a delivered, m pending x, n held x like m
a held row is sent once the row that it resembles has no event
    a~z b | a~z n~z b | refused | a~z n~z b => unchanged 1, new 1, still_refused 1 => a refused, b delivered, n pending
    a~z n~z | sent | a is removed | a~z n~z => drifted 1, new 1 => a delivered but returned removed, n pending
a held row that its source does not have is forgotten unless a person has decided on it
    a~z | sent | a~z n~z | a~z => unchanged 1 => a delivered
    a~z | sent | a~z n~z | a~z !n => rejected 1, unchanged 1 => a delivered
    a~z | sent | a~z n~z | --ignore n | a~z => unchanged 1 => a delivered, n held like a ignore
two rows that claim one held key are not sent
    a~z | sent | a~z n~z | a~z n:x~x n:y~y => rejected 1, held 1, unchanged 1 => a delivered, n held x like a
an entry is found by what it looks like now
    a:x~x | a:y~y | a:y~y b~y => held 1, unchanged 1 => a pending y, b held like a
    a:x~x | a:y~y | a:y~y c~x => unchanged 1, new 1 => a pending y, c pending
""")
def test_a_row_is_held_as_long_as_it_looks_like_another_one(world: World, story: str, numbers: str, ledger: str) -> None:
    report = play(world, story)
    assert (told(report), picture(world)) == (numbers, ledger)


def test_a_row_of_another_feed_whose_source_was_not_read_again_holds_whatever_the_row_says(world: World) -> None:
    delivered(world, JAZZ)
    other = beside(world)
    (found,) = other.stage([row("x", twin="jazz")]).held
    assert (found.feed, found.twin_key) == (world.feed, "a")
    assert other.stage([row("x", "Blues", twin="blues")]).account.held == 1
    world.stage([JAZZ])
    assert other.stage([row("x", "Blues", twin="blues")]).account.new == 1


def test_a_stage_that_began_before_another_ended_sees_its_rows(world: World) -> None:
    other = beside(world)
    second = open_stage(other.ledger.fence(other.run(), other.lease.token), is_whole=True)
    second.write([row("x", twin="jazz")])
    assert world.stage([row("b")]).account.new == 1
    world.stage([row("b"), row("a", "late", twin="late")])
    second.write([row("y", "late", twin="late")])
    report = second.close(no_brakes)
    assert (report.account.held, report.account.new) == (1, 1)
    assert report.held[0].row_key == "y"


def test_a_state_db_without_marks_gets_them_with_the_next_read(world: World) -> None:
    delivered(world, JAZZ)
    with writing(world.engine) as connection:
        connection.execute(delete(DUPLICATE_MARK))
        connection.execute(update(SCOPE).values(marked_id=0))
    assert play(world, "a~jazz n~jazz").account.held == 1


def test_marks_go_with_their_entries(world: World) -> None:
    play(world, "a b c d e | a b")
    assert (picture(world), count(world, DUPLICATE_MARK)) == ("a pending, b pending", 2)


def test_the_second_of_two_equal_rows_of_a_long_first_read_is_held(world: World) -> None:
    chunks = [[row(f"{chunk}-{number}") for number in range(2_000)] for chunk in range(9)]
    report = world.stage(*chunks, [row("copy", twin="0-1"), row("young", twin="8-1")])
    assert (report.account.held, report.account.new) == (2, 18_000)


ROWS = [row(key) for key in "abcde"]


def closed_by_scope(world: World, rows: list[MappedRow], *accepted: str) -> StageReport:
    """Read rows as a run that asks the brake `scope`."""
    fence, policy = world.ledger.fence(world.run(), world.lease.token), StagePolicy(accepted=accepted)
    stage = open_stage(fence, is_whole=True, policy=policy)
    stage.write(rows)
    return stage.close(lambda report: ["scope"] if report.alongside else [])


def test_a_renamed_feed_is_known_by_its_rows_and_sends_nothing_until_a_person_lets_both_deliver(world: World) -> None:
    delivered(world, *ROWS)
    renamed = beside(world, "agenda-2026")
    found = closed_by_scope(renamed, ROWS).alongside
    assert found is not None
    assert (found.feed, found.namespace, found.known, found.rows, found.held) == (world.feed, "", 5, 5, 5)
    report = closed_by_scope(renamed, ROWS, "scope")
    assert (report.account.held, report.account.new, report.accepted) == (0, 5, ("scope",))
    assert closed_by_scope(renamed, ROWS).alongside is not None, "what one run was allowed is asked again"
    assert not renamed.ledger.gate().is_open
    assert closed_by_scope(renamed, ROWS, "scope").accepted == ("scope",)
    renamed.ledger.open_gate("ann")
    assert renamed.publish().delivered == 5
    assert closed_by_scope(renamed, [*ROWS, row("f")]).alongside is None
    assert world.stage([*ROWS, row("f")]).account.held == 0


def test_two_stages_that_close_at_the_same_moment_see_each_other(world: World) -> None:
    other = beside(world)
    stages = [open_stage(each.ledger.fence(each.run(), each.lease.token), is_whole=True) for each in (world, other)]
    for stage in stages:
        stage.write([row(f"{key}", twin=key) for key in "abcdef"])
    with ThreadPoolExecutor(2) as pool:
        accounts = [report.account for report in pool.map(lambda stage: stage.close(no_brakes), stages)]
    assert sorted((account.held, account.new) for account in accounts) == [(0, 6), (6, 0)]
