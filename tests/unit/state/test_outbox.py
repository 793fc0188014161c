"""The outbox: what is owed goes out once, answers are written once, and what each of them leads to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Connection, event
from unit.state.books import BOOK
from unit.state.story import VERDICTS, goes_out, picture, play, stands, stories
from unit.state.world import DESTINATION, FEED, World, answer, no_brakes, receipt, row

from mappings.delivery import Answer, Blocked, Conflict, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import TransientError
from mappings.row_key import RowKey
from state.errors import LeaseLostError, StateBusyError
from state.ledger.accounts import PublishAccount
from state.ledger.choices import Change, Instruction, Option
from state.ledger.decisions import propose
from state.ledger.outbox import NotClaimedError, Settled, open_outbox
from state.ledger.stage import open_stage
from state.ledger.standing import Copies
from state.queries import LedgerQueries, RowFilter

PAUSED = TransientError("come back later")


def test_a_claim_is_on_record_before_anything_is_sent_and_the_run_that_carries_on_calls_a_dead_one_lost(world: World) -> None:
    play(world, "a | claimed")
    entry = world.known("a")
    assert (entry.attempts, entry.unanswered_at, entry.sent_run) == (1, world.clock(), "run-2")
    world.crash()
    world.outbox()
    dead = LedgerQueries(world.engine).run(DESTINATION, FEED, "run-2")
    assert dead is not None
    assert (dead.outcome, "run-3 continues" in dead.message) == ("lost", True)


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
what was postponed without a trace, or had no cover yet, may still change
    a:A | paced | a:B => a pending B => a B
    a*:A | cut => a pending A => a A
    a*:A | cut | a:B => a pending B => a B
a row whose cover cannot be used is refused without a trace
    a* | refused at once | a:B => a pending B => a B
a corrected row that was withdrawn goes out with its past
    a:A | refused | a:B | b | a:B b => a pending B, b pending => a B refused by req-x, b
a corrected row goes on under its next key in the same drain once
    a:A | refused | a:B | next key | retry => a delivered as 2000 B key 1 =>
    a:A | refused | a:B | next key taken => a conflict B key 1 =>
one word of a person after a kept failure is good for one next key
    a | failed | failed => a uncertain => a unanswered
    a | failed | failed | --resend a | failed again => a uncertain key 1 resent => a key 1 unanswered
    a | failed | failed | --resend a | failed again | --resend a | failed, then delivered => a delivered as 2000 key 2 resent =>
the key stays where nothing shows that the failure is a kept one: it may be of this very attempt, or nothing was asked
    a | failed | failed | --resend a | failed otherwise => a uncertain resent => a unanswered
    a | failed unnamed | failed unnamed | --resend a | failed unnamed => a uncertain resent => a unanswered
    a | created unnamed | created unnamed | --resend a | created unnamed => a uncertain resent => a unanswered
    a | failed | failed | --resend a | failed unasked => a uncertain resent => a unanswered
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
    assert (entry.event_id, entry.answer) == (event_id, verdict.answer)
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
    play(world, "a | cut")
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


def test_a_body_is_pinned_with_its_cover_as_the_first_attempt_begins(world: World) -> None:
    play(world, "a*")
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    pinned = outbox.pin(intent, b'{"coverImage":5}')
    assert (pinned.body, pinned.cover) == (b'{"coverImage":5}', None)
    assert (world.known("a").attempts, world.known("a").unanswered_at) == (1, world.clock())
    world.crash()
    assert world.outbox().settle_and_claim([], 1) == [replace(pinned, is_unanswered=True)]
    assert play(world, "a*").account.unchanged == 1


def test_a_run_that_lost_its_lease_writes_and_settles_nothing_more(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    stage = open_stage(world.ledger.fence(world.run(), world.lease.token), is_whole=True)
    world.clock.turn(minutes=2)
    world.lease = world.ledger.acquire_lease("another")
    for write in (
        lambda: outbox.settle_and_claim([Settled(intent, receipt(intent))], 1),
        lambda: stage.write([row("b")]),
        lambda: stage.close(no_brakes),
    ):
        with pytest.raises(LeaseLostError):
            write()
    assert world.states() == {"a": "pending"}


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
    assert begun.phase == "staged"


@pytest.mark.parametrize("kind", ["postgresql"])
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
        if commits and "isolation_level" not in connection.get_execution_options():  # those of reads are isolated
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
    assert picture(world) == "a delivered, b uncertain, c pending, d conflict, e pending, f pending"
    assert [world.known(key).attempts for key in "abcd"] == [1, 1, 0, 1]
    assert world.known("e").attempts >= 1
    account = outbox.account()
    assert (account.delivered, account.uncertain, account.conflict, account.pending) == (1, 1, 1, 3)


POSTPONED = Postponed(answer(401), PAUSED)
LIMITED = Postponed(answer(429), PAUSED, attempts=0, is_limited=True)
DENIED = "a:A b:B | denied apart"
BEFORE = {
    "fresh": "a:A",
    "unanswered": "a:A | cut",
    "limited": "a:A | limited",
    "unanswered resent": "a:A | cut | 25 hours | --resend a",
    "refused": "a:A | refused | a:B",
    "refused retried": "a:A | refused | retry",
    "refused unanswered": "a:A | refused | a:B | cut",
    "refused limited": "a:A | refused | a:B | limited",
    "denied": DENIED,
    "denied limited": f"{DENIED} | limited",
    "denied retried": f"{DENIED} | --resend a",
    "denied retried unanswered": f"{DENIED} | --resend a | cut",
    "denied unanswered": f"{DENIED} | cut",
    "denied unanswered resent": f"{DENIED} | cut | 25 hours | --resend a",
}


@pytest.mark.parametrize(
    ("before", "verdict", "comes_to"),
    [
        ("unanswered", Receipt(5, answer(201)), "a delivered as 5 A but edited C =>"),
        ("unanswered", Unconfirmed(answer(409)), "a delivered_unconfirmed A but edited C =>"),
        ("fresh", Refusal(answer(400, "req-9")), "a pending C => a C refused by req-9"),
        ("unanswered", Refusal(answer(400)), "a uncertain A but edited C => a A unanswered refused by req-x"),
        ("unanswered", Refusal(answer(413, "")), "a uncertain A but edited C => a A unanswered refused by unnamed"),
        ("fresh", Refusal(answer(422), copies=1), "a uncertain A but edited C => a A unanswered refused by req-x"),
        (
            "refused retried",
            Refusal(answer(422, "req-2"), copies=1),
            "a uncertain A but edited C retried => a A unanswered refused by req-2",
        ),
        ("refused retried", Refusal(answer(422, "req-2")), "a delivered A key 1 but edited C retried =>"),
        ("limited", Refusal(answer(400)), "a pending C => a C unanswered limited refused by req-x"),
        ("fresh", Refusal(answer(400), is_limited=True), "a pending C => a C unanswered limited refused by req-x"),
        # a person has taken the risk of the earlier attempts, not of one in this call
        ("unanswered resent", Refusal(answer(400)), "a pending C key 1 resent => a key 1 C"),
        (
            "unanswered resent",
            Refusal(answer(400), copies=1),
            "a uncertain A but edited C resent => a A unanswered refused by req-x",
        ),
        ("fresh", Refusal(answer(413, "")), "a pending C => a C refused by unnamed"),
        ("unanswered", Blocked(answer(403)), "a blocked A but edited C => a A unanswered denied by req-x"),
        ("fresh", replace(POSTPONED, copies=1), "a pending A but edited C => a A unanswered denied by req-x"),
        ("denied", Blocked(answer(404, "req-10")), "a pending C => a C denied by req-10"),
        ("unanswered", Conflict(answer(409)), "a conflict A but edited C =>"),
        ("unanswered", POSTPONED, "a pending A but edited C => a A unanswered denied by req-x"),
        ("denied", POSTPONED, "a pending C => a C denied by req-x"),
        ("denied", replace(POSTPONED, attempts=0), "a pending C => a C denied by req-9"),
        ("limited", POSTPONED, "a pending A but edited C => a A unanswered limited denied by req-x"),
        ("unanswered", LIMITED, "a pending A but edited C => a A unanswered"),
        ("fresh", LIMITED, "a pending A but edited C => a A unanswered limited"),
        ("limited", Conflict(answer(409)), "a conflict A but edited C =>"),
        ("unanswered", Uncertain(answer(503)), "a uncertain A but edited C => a A unanswered"),
        # the very denial, the very refusal, a denial anew at a person's risk, a corrected row
        ("denied", Superseded(answer(403, "req-9")), "a delivered A key 1 but edited C =>"),
        ("refused", Superseded(answer(400, "req-x")), "a delivered B key 1 but edited C =>"),
        ("denied retried", Superseded(answer(401, "req-10")), "a delivered A key 1 but edited C retried =>"),
        ("refused", Superseded(answer(409, "req-2")), "a delivered B key 1 but edited C =>"),
        # the very answer proves nothing while an attempt may have created the event; neither does a denial anew
        ("denied unanswered", Superseded(answer(403, "req-9")), "a blocked A but edited C => a A unanswered denied by req-9"),
        (
            "denied limited",
            Superseded(answer(403, "req-9")),
            "a blocked A but edited C => a A unanswered limited denied by req-9",
        ),
        ("denied unanswered resent", Superseded(answer(403, "req-9")), "a delivered A key 1 but edited C resent =>"),
        ("refused unanswered", Superseded(answer(400, "req-x")), "a uncertain B but edited C => a B unanswered refused by req-x"),
        ("refused limited", Superseded(answer(400, "req-x")), "a pending C => a C unanswered limited refused by req-x"),
        ("denied", Superseded(answer(401, "req-10")), "a pending C => a C denied by req-10"),
        (
            "denied retried unanswered",
            Superseded(answer(401, "req-10")),
            "a blocked A but edited C retried => a A unanswered denied by req-10",
        ),
        # a denial explains no 409, never refused, a bare 409 may mean the attempt
        ("denied retried", Superseded(answer(409, "req-x")), "a conflict A but edited C retried =>"),
        ("fresh", Superseded(answer(409, "req-x")), "a conflict A but edited C =>"),
        ("refused unanswered", Superseded(answer(409, "req-2")), "a conflict B but edited C =>"),
    ],
    ids=str,
)
def test_an_answer_comes_to_what_it_proves_of_this_attempt_and_of_earlier_ones(
    world: World, before: str, verdict: Verdict, comes_to: str
) -> None:
    """`comes_to`: the row once its source has changed, and what goes out of it then."""
    play(world, BEFORE[before])
    world.publish(verdict)
    play(world, f"crash | a:C{' b:B' * ('b:B' in BEFORE[before])}")
    assert f"{stands(world.known('a'))} => {goes_out(world)}".strip() == comes_to


def _resent(world: World) -> list[tuple[str, int]]:
    rows = LedgerQueries(world.engine).every_row(BOOK, RowFilter(is_resent=True))
    return [(row.row_key, row.copies) for row in rows]


def test_a_row_that_was_sent_again_is_counted_and_stays_listed(world: World) -> None:
    world.stage([row("a"), row("b")])
    account = world.publish(Receipt(1001, answer(201), attempts=2, copies=2))
    assert (account.delivered, account.resent, account.imbalance()) == (2, 1, 0)
    assert _resent(world) == [("a", 2)]
    world.stage([row("a", title="Another title"), row("b")])
    assert world.publish().resent == 0
    assert _resent(world) == [("a", 2)]


def _named(world: World) -> Copies:
    """Publish what is owed in a run that ends; return the rows that it names as sent more than once."""
    outbox, run = world.outbox(), f"run-{world.runs}"
    while intents := outbox.settle_and_claim([], 1):
        outbox.settle_and_claim([Settled(intents[0], receipt(intents[0]))], 0)
    world.ledger.finish_run(run, outcome="done", exit_code=0, message="", publish_account=outbox.account())
    return outbox.standing().copies


def test_a_row_repeated_in_a_killed_run_is_named_by_the_next_run_that_sends_and_by_no_later_one(world: World) -> None:
    world.stage([row("a"), row("b")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    outbox.settle_and_claim([Settled(intent, Receipt(1001, answer(201), attempts=2, copies=2))], 0)
    world.crash()
    world.stage([row("a"), row("b")])
    world.ledger.finish_run(f"run-{world.runs}", outcome="staged", exit_code=0, message="")
    assert _named(world) == Copies(1, ((RowKey("a"), 2),))
    assert _named(world) == Copies()


def test_an_intent_knows_how_long_ago_its_unanswered_attempts_began_and_nothing_was_sent(world: World) -> None:
    world.stage([row("a")])
    for unanswered_s, quiet_s in ((0.0, 0.0), (301.0, 301.0), (602.0, 301.0)):
        (intent,) = world.outbox().settle_and_claim([], 1)
        assert (intent.is_unanswered, intent.unanswered_s) == (unanswered_s > 0, pytest.approx(unanswered_s, abs=4))
        assert intent.quiet_s == pytest.approx(quiet_s, abs=2)
        world.crash()
    world.publish(Uncertain(answer(0)))
    world.clock.turn(hours=2)
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert 7_200 <= intent.quiet_s < intent.unanswered_s


def test_attempts_are_counted_over_runs_and_kills_before_they_leave(world: World) -> None:
    world.stage([row("a")])
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 1)
    outbox.begin_again(intent)
    assert world.known("a").copies == 2
    world.crash()
    for copies in (5, 8):
        assert world.publish(Uncertain(answer(0), attempts=3, copies=3)).resent == 1
        assert _resent(world) == [("a", copies)]
    world.publish()
    assert world.known("a").copies == 9


def test_an_attempt_that_certainly_created_nothing_is_taken_back(world: World) -> None:
    world.stage([row("a"), row("b")])
    assert world.publish(Refusal(answer(400)), Postponed(answer(0), PAUSED, attempts=0)).resent == 0
    assert [world.known(key).copies for key in "ab"] == [0, 0]
    assert _resent(world) == []


def test_a_row_that_only_met_limits_waits_for_no_person_however_long_ago_that_was(world: World) -> None:
    world.stage([row("a")])
    world.publish(LIMITED)
    world.stage([row("a", title="Another title")])
    world.clock.turn(days=3)
    (intent,) = world.outbox().settle_and_claim([], 1)
    assert (intent.is_unanswered, intent.is_limited, intent.unanswered_s) == (True, True, 0.0)
    assert b"Title of a" in intent.body, "a retry is the same request"
    world.crash()
    (again,) = world.outbox().settle_and_claim([], 1)
    assert (again.is_limited, again.unanswered_s) == (False, pytest.approx(301, abs=2))


@pytest.mark.parametrize(("last", "is_named"), [(answer(500), True), (answer(0), False)], ids=["a failure", "no answer"])
def test_before_a_failed_row_goes_out_again_its_next_key_is_named(world: World, last: Answer, *, is_named: bool) -> None:
    world.stage([row("a")])
    world.publish(Uncertain(last))
    (change,) = propose(world.engine, BOOK, [RowKey("a")], Instruction(Option.RESEND)).values()
    assert isinstance(change, Change)
    assert ("under the next key" in change.risk) is is_named


def test_an_event_that_another_row_has_already_or_gets_at_once_is_no_answer(world: World) -> None:
    world.stage([row(key) for key in "abcd"])
    world.publish(Receipt(2_000, answer(201)), *[Uncertain(answer(503))] * 3)
    outbox = world.outbox()
    b, c, d = outbox.settle_and_claim([], 3)
    given = zip((b, c, d), (2_000, 2_001, 2_001), strict=True)
    outbox.settle_and_claim([Settled(intent, Receipt(event_id, answer(201))) for intent, event_id in given], 0)
    for key, taken in (("b", "event 2000, which is that of row a"), ("d", "event 2001, which is that of row c")):
        said = world.known(key).answer
        assert said is not None
        assert said.message == f"the service answered with {taken}"
    assert outbox.account() == PublishAccount(carried_over=3, delivered=1, uncertain=2, resent=3)
    outbox = world.outbox()
    again, _ = outbox.settle_and_claim([], 3)
    assert (again.key, again.body, again.is_unanswered) == (b.key, b.body, True)
