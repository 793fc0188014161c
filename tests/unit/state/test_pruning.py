"""What only tells of the past can be taken out; what keeps a row from being sent twice, or is on a list, stays."""

from __future__ import annotations

from datetime import timedelta

from unit.state.books import BOOK, column, count, problems, put, resolve
from unit.state.world import DESTINATION, FEED, World, answer, rejection, row

from mappings.delivery import Conflict, Receipt, Refusal, Uncertain
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import FeedName
from state.backfills import Backfills, SliceEnd, SliceState
from state.enums import ProblemKind
from state.ledger.accounts import READS_COMPARED, StagePolicy
from state.ledger.choices import Instruction, Option
from state.ledger.stage import open_stage
from state.ledger.standing import RowRecord
from state.notes import NoticesSent
from state.prune import Pruned, prune
from state.queries import LedgerQueries, RowFilter
from state.tables import BACKFILL_SLICE, EARLIER, ENTRY, PROBLEM, RUN
from state.verify import examine


def pruned(world: World, *, days: int = 90, is_dry: bool = False) -> Pruned:
    return prune(world.engine, world.clock() - timedelta(days=days), lambda _count: None, is_dry=is_dry)


def entries(world: World) -> tuple[RowRecord, ...]:
    return LedgerQueries(world.engine).rows(BOOK, RowFilter())


def test_a_problem_that_was_mended_long_ago_goes_with_its_raw_cells_and_one_that_stands_stays(world: World) -> None:
    world.stage([row("a"), rejection("b", "agenda.csv:2"), rejection("c", "agenda.csv:3")])
    world.clock.turn(days=100)
    world.stage([row("a"), row("b"), rejection("c", "agenda.csv:3")])
    world.clock.turn(days=100)
    found = Pruned(problems=1, standing_problems=1, telling_runs=2)
    assert pruned(world, is_dry=True) == found
    assert count(world, PROBLEM) == 2
    assert pruned(world) == found
    assert problems(world, ProblemKind.REJECTED) == ["c"]
    assert pruned(world).problems == 0


def test_a_warning_that_is_listed_stays_however_old_its_run_is(world: World) -> None:
    warning = (Reason(ReasonCode.REQUIRED, "coverImage", "IMAGE", "", "give a picture"),)
    world.stage([row("a", warnings=warning), row("b", warnings=warning)])
    world.clock.turn(days=100)
    world.stage([row("a", warnings=warning), row("b", "without a warning")])
    world.clock.turn(days=100)
    done = pruned(world)
    assert (done.problems, done.standing_problems) == (1, 1)
    assert (count(world, PROBLEM), problems(world, ProblemKind.WARNING)) == (1, ["a"])


def test_what_protects_from_a_second_event_stays_however_old_it_is(world: World) -> None:
    world.stage([row(key) for key in "abc"])
    world.publish()
    world.stage([row(key) for key in "bc"] + [row("copy", twin="a")])
    put(world, "b", removed_at=world.clock())
    put(world, "c", state="superseded", event_id=None, candidate_id=1)
    before = world.states()
    world.clock.turn(days=1_000)
    pruned(world)
    assert world.states() == before == {"a": "delivered", "b": "delivered", "c": "superseded", "copy": "held"}
    assert column(world, "b", "removed_at") is not None
    assert column(world, "copy", "candidate_id") == 1


def test_a_problem_that_a_read_of_a_part_has_not_met_is_on_the_list_and_stays(world: World) -> None:
    world.stage([row("a"), rejection("b")])
    world.clock.turn(days=100)
    world.stage([row("a")], is_whole=False, policy=StagePolicy(row_parts=None))
    listed = problems(world, ProblemKind.REJECTED)
    done = pruned(world)
    assert problems(world, ProblemKind.REJECTED) == listed
    assert done.problems + done.standing_problems == 1


def test_accounts_of_old_runs_go_but_for_those_that_brakes_learn_from(world: World) -> None:
    for number in range(READS_COMPARED + 5):
        world.stage([row(f"{number}")])
        world.publish()
        world.clock.turn(days=1)
    world.clock.turn(days=365)
    assert count(world, RUN) == 2 * (READS_COMPARED + 5)
    done = pruned(world)
    assert (done.runs, done.telling_runs) == (READS_COMPARED + 9, READS_COMPARED + 1)
    kept = LedgerQueries(world.engine).runs(limit=1_000)
    assert len(kept) == READS_COMPARED + 1
    assert sum(run.read is not None for run in kept) == READS_COMPARED
    assert len({record.staged_run for record in entries(world)}) == READS_COMPARED + 5


def test_runs_that_never_ended_keep_their_accounts(world: World) -> None:
    world.stage([row("a")])
    begun = {world.run() for _ in range(2)}
    world.clock.turn(days=365)
    assert pruned(world).runs == 0
    assert begun < {run.run_id for run in LedgerQueries(world.engine).runs()}


def test_the_list_of_the_last_read_stays_behind_a_stage_that_was_cut_short(world: World) -> None:
    world.stage([row("a"), rejection("b")])
    open_stage(world.ledger.fence(world.run(), world.lease.token), is_whole=True)
    world.clock.turn(days=365)
    done = pruned(world)
    assert (done.problems, done.standing_problems) == (0, 1)
    assert problems(world, ProblemKind.REJECTED) == ["b"]


def test_only_answers_that_say_nothing_any_more_go(world: World) -> None:
    world.stage([row(key) for key in "abcde"])
    world.publish(Refusal(answer(400)), Uncertain(answer(503)), Conflict(answer(409)), Conflict(answer(409)))
    resolve(world, "d", Instruction(Option.EVENT_ID, event_id=77))
    world.clock.turn(days=365)
    assert pruned(world).answers == 1
    told = {record.row_key: record.answer is not None for record in entries(world)}
    assert told == {"a": True, "b": True, "c": True, "d": True, "e": False}


def test_backfills_that_ended_long_ago_go_with_their_slices_and_open_ones_stay(world: World) -> None:
    ours = Backfills(world.engine, DESTINATION, FEED, world.clock)
    for number in range(12):
        ours.open(f"done {number}", "{}", [("2031-05-01", "2031-05-01")])
        ours.begin_slice(f"done {number}", 1, "me")
        ours.end_slice(f"done {number}", 1, "me", SliceEnd(SliceState.DONE, "run-1", 0))
    for name in ("cancelled", "open", "ended later"):
        ours.open(name, "{}", [("2031-05-01", "2031-05-01"), ("2031-05-02", "2031-05-02")])
    ours.cancel("cancelled")
    Backfills(world.engine, "https://rehearsal.example", FEED, world.clock).open(
        "elsewhere", "{}", [("2031-05-01", "2031-05-01")]
    )
    world.clock.turn(days=80)
    ours.cancel("ended later")
    world.clock.turn(days=20)
    found = Pruned(backfills=13, open_backfills=2)
    assert pruned(world, is_dry=True) == found
    assert len(ours.all()) == 15
    assert pruned(world) == found
    assert {one.backfill_id for one in ours.all()} == {"open", "ended later"}
    assert count(world, BACKFILL_SLICE) == 5
    assert pruned(world) == Pruned(open_backfills=2)


def test_a_run_that_comes_back_to_a_backfill_that_is_gone_has_lost_its_slice(world: World) -> None:
    ours = Backfills(world.engine, DESTINATION, FEED, world.clock)
    ours.open("b1", "{}", [("2031-05-01", "2031-05-01")])
    ours.begin_slice("b1", 1, "me")
    ours.cancel("b1")
    world.clock.turn(days=100)
    assert pruned(world).backfills == 1
    assert not ours.end_slice("b1", 1, "me", SliceEnd(SliceState.DONE, "run-1", 0))
    assert (ours.begin_slice("b1", 1, "me"), ours.cancel("b1"), ours.all()) == (False, 0, ())


def test_only_notices_of_what_was_over_long_ago_go(world: World) -> None:
    sent = NoticesSent(world.engine, DESTINATION, world.clock)
    causes = {"over long ago": "words", "over lately": "words", "stands": "words"}
    sent.note(FEED, "ops", causes)
    sent.settle(sent.claim(FEED, "ops"))
    sent.note(FeedName("crm"), "ops", {"never heard": "words"})
    del causes["over long ago"]
    world.clock.turn(days=10)
    sent.note(FEED, "ops", causes)
    sent.claim(FEED, "ops")
    world.clock.turn(days=100)
    del causes["over lately"]
    sent.note(FEED, "ops", causes)
    assert pruned(world, is_dry=True) == Pruned(notices=1)
    assert pruned(world) == Pruned(notices=1)
    assert sorted((one.cause, one.is_over) for one in sent.all()) == [
        ("never heard", False),
        ("over lately", True),
        ("stands", False),
    ]
    assert pruned(world) == Pruned()


def test_nothing_young_goes(world: World) -> None:
    world.stage([row("a"), rejection("b")])
    world.publish()
    world.stage([row("a"), row("b")])
    world.clock.turn(days=89)
    assert pruned(world) == Pruned()


def protecting(world: World) -> list[tuple[object, ...]]:
    return [(one.row_key, one.state, one.key, one.body, one.event_id, one.earlier_event_ids) for one in entries(world)]


def test_no_row_is_sent_again_and_each_keeps_all_that_protects_it(world: World) -> None:
    drafting = StagePolicy(on_change="create_draft_again")
    rows = [row("a"), row("b", title="Once"), rejection("c")]
    world.stage(rows)
    world.publish()
    world.stage([row("a"), row("b", title="Twice"), rejection("c")], policy=drafting)
    world.publish(Receipt(2002, answer(201)))
    before = protecting(world)
    world.clock.turn(days=365)
    assert pruned(world, is_dry=True).answers == 3
    assert pruned(world).answers == 3
    assert before == protecting(world)
    assert (count(world, EARLIER), count(world, EARLIER, EARLIER.c.answer.is_not(None))) == (1, 0)
    assert count(world, ENTRY, ENTRY.c.answer.is_not(None)) == 0
    world.crash()
    report = world.stage([row("a"), row("b", title="Twice"), rejection("c")], policy=drafting)
    assert (report.account.new, report.account.unchanged, report.account.rejected) == (0, 2, 1)
    assert examine(world.engine).findings == ()


def test_more_than_a_page_goes_page_by_page(world: World) -> None:
    world.stage([rejection(f"{number}", f"agenda.csv:{number}") for number in range(2_300)])
    world.stage([row("a")])
    world.clock.turn(days=91)
    told: list[int] = []
    done = prune(world.engine, world.clock() - timedelta(days=90), told.append)
    assert (done.problems, told) == (2_300, [1_000, 1_000, 300])
