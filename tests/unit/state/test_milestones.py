"""When a feed was last done: the end of its last run that published and left with exit code 0, on either database."""

from __future__ import annotations

from unit.state.world import DESTINATION, FEED, World

from state.ledger.accounts import PublishAccount
from state.ledger.standing import FeedScope
from state.queries import last_came, last_done

BOOK = FeedScope(DESTINATION, FEED)


def _ends(world: World, run_id: str, exit_code: int, account: PublishAccount | None) -> None:
    world.ledger.begin_run(run_id, launched_by="a test")
    world.clock.turn(minutes=1)
    world.ledger.finish_run(run_id, outcome="ended", exit_code=exit_code, message="", publish_account=account)


def test_only_a_run_that_published_and_left_nothing_to_look_at_counts(world: World) -> None:
    assert last_done(world.engine) == {}
    _ends(world, "done", 0, PublishAccount(new=1, delivered=1))
    at = world.clock.instant
    _ends(world, "needs attention", 1, PublishAccount(new=1, refused=1))
    _ends(world, "staged only", 0, None)
    _ends(world, "braked", 5, None)
    world.ledger.begin_run("at work", launched_by="a test")
    assert last_done(world.engine) == {BOOK: at}
    assert last_done(world.engine, DESTINATION) == {BOOK: at}
    assert last_done(world.engine, "https://elsewhere.example#default") == {}


def test_the_latest_of_them_counts(world: World) -> None:
    _ends(world, "one", 0, PublishAccount())
    _ends(world, "two", 0, PublishAccount())
    assert last_done(world.engine) == {BOOK: world.clock.instant}


def test_a_feed_came_when_its_latest_run_ended_or_began(world: World) -> None:
    assert last_came(world.engine, DESTINATION, {4}, "backfill") == {}
    _ends(world, "braked", 5, None)
    at = world.clock.instant
    _ends(world, "held", 4, None)
    world.ledger.begin_run("a slice", launched_by="backfill")
    assert last_came(world.engine, DESTINATION, {4}, "backfill") == {FEED: at}
    world.clock.turn(minutes=1)
    world.ledger.begin_run("at work", launched_by="a test")
    assert last_came(world.engine, DESTINATION, {4}, "backfill") == {FEED: world.clock.instant}
    assert last_came(world.engine, "https://elsewhere.example#default", {4}, "backfill") == {}
