"""The outbox: what is owed goes out once, oldest first; answers are written once, also where the state DB is away meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Connection, event
from unit.state.story import VERDICTS, goes_out, picture, play, stories
from unit.state.world import DESTINATION, FEED, World, answer, receipt, row

from mappings.delivery import Postponed, Receipt, Superseded, Uncertain, Verdict
from mappings.errors import TransientError
from mappings.outcome import Cover
from mappings.row_key import RowKey
from state.enums import EntryState
from state.errors import LeaseLostError, StateBusyError
from state.ledger.accounts import PublishAccount
from state.ledger.outbox import NotClaimedError, Settled, open_outbox
from state.ledger.stage import open_stage
from state.queries import LedgerQueries

PAUSED = TransientError("come back later")
COVER = Cover("https://img.example/a.jpg", "draft")


def test_rows_go_out_oldest_first_and_each_once(world: World) -> None:
    world.stage([row(key) for key in "abcde"])
    outbox = world.outbox()
    first = outbox.settle_and_claim([], 2)
    second = outbox.settle_and_claim([Settled(intent, receipt(intent)) for intent in first], 2)
    third = outbox.settle_and_claim([Settled(intent, receipt(intent)) for intent in second], 9)
    assert "".join(intent.row_key for intent in (*first, *second, *third)) == "abcde"
    assert outbox.settle_and_claim([Settled(third[0], receipt(third[0]))], 9) == []
    assert outbox.account() == PublishAccount(new=0, carried_over=5, delivered=5)


def test_what_this_run_staged_is_new_and_the_rest_is_carried_over(world: World) -> None:
    world.stage([row("a")])
    stage = open_stage(world.ledger.fence("one run", world.lease.token), is_whole=True)
    stage.write([row("a"), row("b")])
    stage.close(lambda _report: ())
    outbox = open_outbox(world.ledger.fence("one run", world.lease.token))
    assert (outbox.account(), outbox.owed) == (PublishAccount(new=1, carried_over=1, pending=2), 2)


def test_a_claim_is_on_record_before_anything_is_sent_and_leads_to_the_same_request_after_a_crash(world: World) -> None:
    world.stage([row("a")])
    (before,) = world.outbox().settle_and_claim([], 1)
    assert not before.is_unanswered
    entry = world.known("a")
    assert (entry.attempts, entry.unanswered_at, entry.sent_run) == (1, world.clock(), "run-2")
    world.crash()
    (after,) = world.outbox().settle_and_claim([], 1)
    assert after == replace(before, is_unanswered=True)
    dead = LedgerQueries(world.engine).run(DESTINATION, FEED, "run-2")
    assert dead is not None
    assert (dead.outcome, "run-3 carries on" in dead.message) == ("lost", True)


@stories(
    """
each answer counts once, and the row is owed again as the same request unless a person must decide
    a | sent => a delivered =>
    a | unconfirmed => a delivered_unconfirmed =>
    a | refused => a refused =>
    a | blocked => a blocked => a denied by req-x
    a | blocked unanswered => a blocked => a unanswered denied by req-x
    a | uncertain => a uncertain => a unanswered
    a | conflict => a conflict =>
    a | superseded => a conflict =>
    a | denied => a pending => a denied by req-x
    a | paced => a pending => a
    a | cut => a pending => a unanswered
a blocked row that has vanished is left alone
    a | blocked | nothing => a blocked over =>
what was postponed without a trace may still change
    a:A | paced | a:B => a pending B => a B
a row whose cover cannot be used is refused without a trace
    a* | refused at once | a:B => a pending B => a B
a corrected row that was withdrawn goes out with its past
    a:A | refused | a:B | b | a:B b => a pending B, b pending => a B refused by req-x, b
a corrected row goes on under its next key in the same drain once
    a:A | refused | a:B | next key | retry => a delivered as 2000 B key 1 =>
    a:A | refused | a:B | next key taken => a conflict B key 1 =>
a key may be forgotten a day after the first attempt
    a b | cut | 20 hours => a pending, b pending => a unanswered, b
    a b | cut | 20 hours | cut | 5 hours => a uncertain, b pending => b
""",
    names=("story", "ledger", "requests"),
)
def test_what_is_owed_goes_out_as_the_same_request_unless_nothing_was_created(
    world: World, story: str, ledger: str, requests: str
) -> None:
    play(world, story)
    assert (picture(world), goes_out(world)) == (ledger, requests)


ANSWERS = [Receipt(4711, answer(201, "req-1"), attempts=3), *(verdicts[0] for verdicts in VERDICTS.values() if verdicts)]


@pytest.mark.parametrize("verdict", ANSWERS, ids=str)
def test_an_answer_is_kept_counted_and_taken_once(world: World, verdict: Verdict) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    outbox.settle_and_claim([Settled(intent, verdict)], 0)
    entry = world.known("a")
    event_id = verdict.event_id if isinstance(verdict, Receipt) else None
    assert (entry.event_id, entry.answer, entry.attempts) == (event_id, verdict.answer, verdict.attempts)
    assert outbox.account() == replace(PublishAccount(carried_over=1), **{entry.state.value: 1})
    with pytest.raises(NotClaimedError, match="a, which this drain does not hold"):
        outbox.settle_and_claim([Settled(intent, verdict)], 0)


def test_a_row_whose_key_may_be_forgotten_is_counted_by_the_run_that_finds_it(world: World) -> None:
    play(world, "a b | cut | 20 hours | claimed")
    world.clock.turn(hours=5)
    world.crash()
    for counts in ({"carried_over": 2, "uncertain": 1}, {"carried_over": 1}):
        outbox = world.outbox()
        assert (outbox.account(), outbox.owed) == (PublishAccount(**counts, pending=1), 1)


def test_a_drain_that_lasts_hands_out_no_row_whose_key_may_be_forgotten_by_then(world: World) -> None:
    world.stage([row("a")])
    world.outbox().settle_and_claim([], 1)
    world.crash()
    outbox = world.outbox()
    world.clock.turn(hours=25)
    assert outbox.settle_and_claim([], 1) == []


def test_a_postponed_row_is_not_handed_out_twice_in_one_drain(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    assert outbox.settle_and_claim([Settled(intent, Postponed(answer(429), PAUSED, attempts=0))], 9) == []
    assert (outbox.account(), world.known("a").unanswered_at) == (PublishAccount(carried_over=1, pending=1), None)


def test_a_row_that_goes_on_under_its_next_key_counts_once_for_the_limit_and_the_account(world: World) -> None:
    play(world, "a:A | refused | a:B c")
    outbox = world.outbox(limit=1)
    (intent,) = outbox.settle_and_claim([], 5)
    (again,) = outbox.settle_and_claim([Settled(intent, Superseded(answer(400)))], 5)
    assert outbox.settle_and_claim([Settled(again, Superseded(answer(409)))], 5) == []
    assert outbox.account() == PublishAccount(carried_over=2, conflict=1, pending=1)


@pytest.mark.parametrize(
    ("keys", "wanted", "row_parts", "picked"),
    [
        pytest.param("a b c d", "d b unknown", 1, "b d", id="keys of whole rows"),
        pytest.param(r"a|x a|x|y a A|x a\|x a%|x ab|x b|x b|y", "a b|y", 1, "a|x a|x|y a b|y", id="all events of a row"),
        pytest.param("7|x 7|y 700|x", " ".join(map(str, range(300))), 1, "7|x 7|y", id="many row keys"),
        pytest.param("a|x a|x|y a|y", "a", 2, "", id="a part of a row key picks no row"),
    ],
)
def test_picked_keys_go_out_alone(world: World, keys: str, wanted: str, row_parts: int, picked: str) -> None:
    world.stage([row(key) for key in keys.split()])
    row_keys = [RowKey(key) for key in wanted.split()]
    outbox = open_outbox(world.ledger.fence(world.run(), world.lease.token), keys=row_keys, row_parts=row_parts)
    first = outbox.settle_and_claim([], 1)
    assert [intent.row_key for intent in (*first, *outbox.settle_and_claim([], 9))] == picked.split()
    assert outbox.settle_and_claim([], 9) == []


def test_a_cover_is_pinned_before_the_first_attempt_begins_and_until_then_nothing_was_sent(world: World) -> None:
    world.stage([row("a", cover=COVER)])
    (lost,) = world.outbox().settle_and_claim([], 1)
    assert (world.known("a").attempts, lost.cover) == (0, COVER)
    world.crash()
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    assert intent == lost
    pinned = outbox.pin(intent, b'{"coverImage":5}')
    assert (pinned.body, pinned.cover) == (b'{"coverImage":5}', None)
    entry = world.known("a")
    assert (entry.body, entry.attempts, entry.unanswered_at) == (b'{"coverImage":5}', 1, world.clock())
    world.crash()
    (again,) = world.outbox().settle_and_claim([], 1)
    assert again == replace(pinned, is_unanswered=True)
    assert world.stage([row("a", cover=COVER)]).account.unchanged == 1


def test_a_run_that_lost_its_lease_settles_nothing(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    world.clock.turn(minutes=2)
    world.lease = world.ledger.acquire_lease("another")
    with pytest.raises(LeaseLostError):
        outbox.settle_and_claim([Settled(intent, receipt(intent))], 1)
    assert world.known("a").state is EntryState.PENDING


def test_a_run_keeps_its_accounts_and_goes_on_with_its_record_when_it_is_begun_again(world: World) -> None:
    report = world.stage([row("a")])
    account = world.publish()
    world.clock.turn(seconds=1)
    world.ledger.begin_run("r", launched_by="ana", dagster_run_id="d-1")
    world.ledger.finish_run("r", outcome="done", exit_code=0, message="1 delivered", publish_account=account)
    published, _, staged = LedgerQueries(world.engine).runs()
    assert (staged.read, staged.stage_report) == (report.account, report)
    assert (published.publish, published.outcome, published.exit_code) == (account, "done", 0)
    world.ledger.begin_run("r", launched_by="ana", dagster_run_id="d-1")
    begun = LedgerQueries(world.engine).runs()[0]
    assert (begun.outcome, begun.finished_at, begun.dagster_run_id) == (None, None, "d-1")


@pytest.mark.parametrize("state_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("is_done", [False, True], ids=["before the server has heard", "before we have heard"])
def test_a_connection_that_breaks_in_a_commit_costs_no_answer_and_counts_none_twice(world: World, is_done: bool) -> None:
    world.stage([row(key) for key in "abcdef"])
    outbox = world.outbox(limit=5)
    intents = outbox.settle_and_claim([], 4)
    settled = [
        Settled(intents[0], receipt(intents[0])),
        Settled(intents[1], Uncertain(answer(503, ""))),
        Settled(intents[2], Postponed(answer(429, ""), TransientError("later"), attempts=0)),
        Settled(intents[3], Superseded(answer(409, ""))),
    ]
    commits = [1]

    @event.listens_for(world.engine, "commit")
    def _break(connection: Connection) -> None:
        if commits:
            commits.clear()
            line = connection.connection.dbapi_connection
            assert line is not None
            if is_done:
                line.commit()
            line.close()

    with pytest.raises(StateBusyError, match="cannot be reached"):
        outbox.settle_and_claim(settled, 1)
    assert world.known("a").state == ("delivered" if is_done else "pending")
    (claimed,) = outbox.settle_and_claim(settled, 1)
    assert claimed.row_key == "e", "the limit counts what was claimed, not what was asked for"
    assert world.states() == dict(
        zip("abcdef", ("delivered", "uncertain", "pending", "conflict", "pending", "pending"), strict=True)
    )
    assert [world.known(key).attempts for key in "abcd"] == [1, 1, 0, 1]
    assert world.known("e").attempts >= 1
    account = outbox.account()
    assert (account.delivered, account.uncertain, account.conflict, account.pending) == (1, 1, 1, 3)
