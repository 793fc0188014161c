"""What only tells of the past can be taken out; what keeps a row from being sent twice, or is on a list, stays."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from unit.state.books import BOOK, problems, resolve
from unit.state.story import picture, play, stories, told
from unit.state.world import DESTINATION, FEED, World, answer, rejection, row

from mappings.delivery import Conflict, Refusal, Uncertain
from state.backfills import Backfills, SliceEnd, SliceState
from state.enums import ProblemKind
from state.ledger.accounts import READS_COMPARED
from state.ledger.choices import Instruction, Option
from state.prune import prune
from state.queries import LedgerQueries, RowFilter
from state.verify import examine

A_DAY = [("2031-05-01", "2031-05-01")]


def pruned(world: World, *, days: int = 90) -> dict[str, int]:
    """Take out what is so old, which a rehearsal has foretold; return how many, and how many were kept."""
    before = world.clock() - timedelta(days=days)
    foretold = prune(world.engine, before, lambda _count: None, is_dry=True)
    assert prune(world.engine, before, lambda _count: None) == foretold
    removed, kept = map(asdict, foretold)
    every = removed | {f"kept_{name}": number for name, number in kept.items()}
    return {name: number for name, number in every.items() if number}


@stories(
    """
a problem that was mended long ago goes with its raw cells, and one that stands stays
    a !b !c | 100 days | a b !c | 100 days => problems 1, kept_problems 1, kept_runs 2 => c
a problem that a read of what changed has not met is on the list and stays
    a !b | 100 days | onward a => kept_problems 1, kept_runs 1 => b
a warning that is listed stays however old its run is
    a! b! | 100 days | a! b:new | 100 days => problems 1, kept_problems 1, kept_runs 2 => a
the list of the last read stays behind a stage that was cut short
    a !b | begun | 365 days => kept_problems 1, kept_runs 2 => b
nothing young goes
    a !b | sent | a b | 89 days => =>
""",
    names=("story", "found", "listed"),
)
def test_what_is_on_a_list_stays_however_old_it_is(world: World, story: str, found: str, listed: str) -> None:
    play(world, story)
    assert ", ".join(f"{name} {number}" for name, number in pruned(world).items()) == found
    still = problems(world, ProblemKind.REJECTED) + problems(world, ProblemKind.WARNING)
    assert (" ".join(still), "problems" in pruned(world)) == (listed, False)


def test_accounts_of_old_runs_go_but_for_those_that_brakes_learn_from(world: World) -> None:
    for number in range(READS_COMPARED + 5):
        play(world, f"{number} | sent | 1 days")
    world.clock.turn(days=365)
    done = pruned(world)
    assert (done["runs"], done["kept_runs"]) == (READS_COMPARED + 9, READS_COMPARED + 1)
    kept = LedgerQueries(world.engine).runs(limit=1_000)
    assert len(kept) == READS_COMPARED + 1
    assert sum(run.read is not None for run in kept) == READS_COMPARED


def test_runs_that_never_ended_keep_their_accounts(world: World) -> None:
    world.stage([row("a")])
    begun = {world.run() for _ in range(2)}
    world.clock.turn(days=365)
    assert "runs" not in pruned(world)
    assert begun < {run.run_id for run in LedgerQueries(world.engine).runs()}


def test_only_answers_that_say_nothing_any_more_go(world: World) -> None:
    world.stage([row(key) for key in "abcde"])
    world.publish(Refusal(answer(400)), Uncertain(answer(503)), Conflict(answer(409)), Conflict(answer(409)))
    resolve(world, "d", Instruction(Option.EVENT_ID, event_id=77))
    world.clock.turn(days=365)
    assert pruned(world)["answers"] == 1
    entries = LedgerQueries(world.engine).rows(BOOK, RowFilter())
    assert [one.row_key for one in entries if one.answer is not None] == ["a", "b", "c", "d"]


def test_backfills_that_ended_long_ago_go_with_their_slices_and_open_ones_stay(world: World) -> None:
    ours = Backfills(world.engine, DESTINATION, FEED, world.clock)
    done = SliceEnd(SliceState.DONE, "run-1", 0)
    for number in range(12):
        ours.open(f"done {number}", "{}", A_DAY)
        ours.begin_slice(f"done {number}", 1, "me")
        ours.end_slice(f"done {number}", 1, "me", done)
    for name in ("cancelled", "open", "ended later"):
        ours.open(name, "{}", [*A_DAY, ("2031-05-02", "2031-05-02")])
    ours.begin_slice("cancelled", 1, "me")
    ours.cancel("cancelled")
    Backfills(world.engine, "https://rehearsal.example", FEED, world.clock).open("elsewhere", "{}", A_DAY)
    world.clock.turn(days=80)
    ours.cancel("ended later")
    world.clock.turn(days=20)
    assert pruned(world) == {"backfills": 13, "kept_backfills": 2}
    assert {one.backfill_id for one in ours.all()} == {"open", "ended later"}
    assert pruned(world) == {"kept_backfills": 2}
    gone = (ours.end_slice("cancelled", 1, "me", done), ours.begin_slice("cancelled", 1, "me"), ours.cancel("cancelled"))
    assert gone == (False, False, 0), "a run that comes back to it has lost its slice"


def test_no_row_is_sent_again_and_each_keeps_all_that_protects_it(world: World) -> None:
    play(world, "a b:x c d e | sent | a b:y c n~d | --removed e | --same-as n | a b:y !c copy~a n~d")
    before = picture(world)
    world.clock.turn(days=1_000)
    assert pruned(world)["answers"] == 3
    assert picture(world) == before
    assert told(play(world, "crash | a b:y !c copy~a n~d")) == "rejected 1, held 1, unchanged 1, drifted 2"
    assert examine(world.engine).findings == ()


def test_more_than_a_page_goes_page_by_page(world: World) -> None:
    world.stage([rejection(f"{number}", f"agenda.csv:{number}") for number in range(2_300)])
    world.stage([row("a")])
    world.clock.turn(days=91)
    pages: list[int] = []
    done, _ = prune(world.engine, world.clock() - timedelta(days=90), pages.append)
    assert (done.problems, pages) == (2_300, [1_000, 1_000, 300])
