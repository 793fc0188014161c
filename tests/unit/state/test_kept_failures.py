"""A failure that the service keeps under a row's key and only repeats: what a person's `--resend` comes to, on a real state DB.

Which answers are such a failure is the client's to tell (tests/contract).
"""

from __future__ import annotations

import pytest
from unit.state.books import resolve
from unit.state.world import FEED, World, answer, row

from mappings.delivery import Answer, Receipt, Uncertain, Verdict
from mappings.row_key import RowKey, idempotency_key
from state.enums import Decision, EntryState
from state.ledger.choices import Change, Instruction, Option, decide

KEPT = answer(500, "req-1")


def failed(world: World, last: Answer = KEPT) -> None:
    """One row that the service failed at, that failed again in the same way, and that a person lets be sent again."""
    world.stage([row("a")])
    for _ in range(2):
        world.publish(Uncertain(last))
        assert (world.known("a").state, world.known("a").revision) == (EntryState.UNCERTAIN, 0)
    resolve(world, "a", Instruction(Option.RESEND))


def test_a_row_whose_kept_failure_is_repeated_after_a_persons_word_goes_out_under_its_next_key(world: World) -> None:
    failed(world)
    account = world.publish(Uncertain(KEPT), Receipt(7, answer(201)))
    entry = world.known("a")
    assert (account.delivered, account.uncertain, entry.state, entry.event_id) == (1, 0, EntryState.DELIVERED, 7)
    assert (entry.revision, entry.key) == (1, idempotency_key("tests", FEED, RowKey("a"), revision=1))


def test_one_word_of_a_person_is_good_for_one_next_key(world: World) -> None:
    failed(world)
    account = world.publish(Uncertain(KEPT), Uncertain(KEPT))
    entry = world.known("a")
    assert (account.uncertain, entry.revision, entry.decision) == (1, 1, Decision.RESENT)
    resolve(world, "a", Instruction(Option.RESEND))
    world.publish(Uncertain(KEPT), Receipt(7, answer(201)))
    assert (world.known("a").state, world.known("a").revision) == (EntryState.DELIVERED, 2)


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        pytest.param(KEPT, Uncertain(answer(500, "req-2")), id="another failure, which may be of this very attempt"),
        pytest.param(answer(500, ""), Uncertain(answer(500, "")), id="no request id to know it by"),
        pytest.param(answer(201, "req-1"), Uncertain(answer(201, "req-1")), id="a success that did not tell its id"),
        pytest.param(KEPT, Uncertain(KEPT, attempts=0), id="nothing was asked"),
    ],
)
def test_the_key_stays_where_nothing_shows_that_the_failure_is_a_kept_one(world: World, last: Answer, verdict: Verdict) -> None:
    failed(world, last)
    world.publish(verdict)
    assert (world.known("a").state, world.known("a").revision) == (EntryState.UNCERTAIN, 0)


@pytest.mark.parametrize(("last", "is_named"), [(KEPT, True), (answer(0), False)], ids=["a failure", "no answer"])
def test_before_a_failed_row_goes_out_again_its_next_key_is_named(world: World, last: Answer, *, is_named: bool) -> None:
    world.stage([row("a")])
    world.publish(Uncertain(last))
    change = decide(world.known("a"), Instruction(Option.RESEND))
    assert isinstance(change, Change)
    assert ("under the next one" in change.risk) is is_named
