"""The shards of a run: every entry is in one of them, no two workers hold one entry, and the last to end closes the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from threading import Barrier

import pytest
from empty_books import lay_out
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, update
from unit.state.test_lease import ELSEWHERE, ledger_of, on_postgres
from unit.state.world import DESTINATION, FEED, START, Clock, World, receipt, row

from mappings.delivery import Answer, Postponed
from mappings.errors import TransientError
from state.database import writing
from state.errors import HeldByAnotherError, LeaseLostError
from state.ledger.accounts import PublishAccount, sum_of
from state.ledger.lease import WHOLE, FencedTransaction, Lease, Shard, acquire, own_clock, this_process
from state.ledger.ledger import Ledger
from state.ledger.outbox import Settled, open_outbox
from state.ledger.shards import Closing, End, ShardRecord, begin_shard, finish_shard, plan_shards
from state.ledger.standing import Standing
from state.opening import open_database
from state.prune import prune
from state.queries import LedgerQueries, RunRecord
from state.tables import METADATA, SHARD_RUN
from state.verify import examine

ROWS = 430
EXAMPLES = int(os.environ.get("EVENTSYNC_TEST_EXAMPLES", "20"))
SHARDS = [WHOLE, *(Shard(number, of) for of in (2, 3) for number in range(1, of + 1))]


def judge(shards: Sequence[ShardRecord], _standing: Standing) -> End:
    return End(" ".join(one.outcome or "?" for one in shards), 0, "", {})


CLOSING = Closing(judge, 86_400.0)


def planned(world: World, most: int = 4) -> tuple[str, int]:
    """A run that has staged the rows, with its plan; the feed's lease is free again."""
    world.stage([row(f"{number}") for number in range(ROWS)])
    run_id = f"run-{world.runs}"
    shards = plan_shards(world.ledger.fence(run_id, world.lease.token), most)
    world.lease.release()
    return run_id, shards


def begun(world: World, run_id: str, shard: Shard) -> FencedTransaction:
    fence = world.ledger.fence(run_id, world.ledger.acquire_lease(f"{shard}", shard, run_id).token, shard)
    begin_shard(fence, None)
    return fence


def published(fence: FencedTransaction, leaves: int = 0) -> tuple[set[str], PublishAccount]:
    """Publish a shard but for some rows; return the keys of those sent, and the account."""
    outbox = open_outbox(fence)
    intents = outbox.settle_and_claim([], outbox.owed)
    left = {intent.entry_id for intent in intents[:leaves]}
    stopped = Postponed(Answer(0, "not_sent"), TransientError("stopped"), attempts=0)
    outbox.settle_and_claim([Settled(one, stopped if one.entry_id in left else receipt(one)) for one in intents], 0)
    return {intent.row_key for intent in intents if intent.entry_id not in left}, outbox.account()


def record_of(world: World, run_id: str) -> RunRecord:
    record = LedgerQueries(world.engine).run(DESTINATION, FEED, run_id)
    assert record is not None
    return record


def test_every_row_is_in_one_shard_and_the_last_to_end_closes_the_run_with_the_sum(world: World) -> None:
    run_id, shards = planned(world)
    assert shards == 4
    fences = [begun(world, run_id, Shard(number, 4)) for number in (1, 2, 3, 4)]
    done = [published(fence, leaves=place) for place, fence in enumerate(fences)]
    keys = [key for sent, _ in done for key in sent]
    assert len(keys) == len(set(keys)) == ROWS - (0 + 1 + 2 + 3)
    end = End("done", 0, "", {})
    closed = [finish_shard(fence, end, account, CLOSING) for fence, (_, account) in zip(fences, done, strict=True)]
    assert closed == [False, False, False, True]
    record = record_of(world, run_id)
    assert (record.outcome, record.publish) == ("done done done done", sum_of(account for _, account in done))
    assert record.publish == PublishAccount(new=ROWS, delivered=ROWS - 6, pending=6)
    assert [one.publish and one.publish.imbalance() for one in record.shards] == [0] * 4
    assert examine(world.engine).findings == ()
    with writing(world.engine) as connection:
        connection.execute(update(SHARD_RUN).where(SHARD_RUN.c.shard == 2).values(publish_account=None))
    assert [finding.problem for finding in examine(world.engine).findings] == ["its shards do not add up to the rows owed"]


def test_a_run_is_not_divided_beyond_a_hundred_rows_a_shard_nor_after_one_that_was_stopped(world: World) -> None:
    run_id, shards = planned(world, most=64)
    assert shards == 4
    fence = begun(world, run_id, Shard(1, 4))
    open_outbox(fence).note_stop("outage")
    for _ in range(2):
        finish_shard(fence, End("paused", 6, "", {}), None, Closing(judge, 1.0, is_left=True))
    world.crash()
    assert plan_shards(world.ledger.fence(world.run(), world.lease.token), 64) == 1


def test_a_shard_whose_worker_died_is_lost_and_its_worker_can_write_nothing_when_it_comes_back(world: World) -> None:
    run_id, _ = planned(world, most=2)
    first, second = (begun(world, run_id, Shard(number, 2)) for number in (1, 2))
    _, account = published(first)
    late = open_outbox(second)
    claimed = late.settle_and_claim([], 5)
    assert not finish_shard(first, End("done", 0, "", {}), account, CLOSING), "the other one is at work"
    assert record_of(world, run_id).outcome is None
    world.clock.turn(seconds=61)
    assert world.ledger.close_if_over(run_id, CLOSING)
    record = record_of(world, run_id)
    assert (record.outcome, record.publish) == ("done lost", account)
    for write in (
        lambda: late.settle_and_claim([Settled(claimed[0], receipt(claimed[0]))], 1),
        lambda: finish_shard(second, End("done", 0, "", {}), account, CLOSING),
        lambda: begin_shard(second, None),
    ):
        with pytest.raises(LeaseLostError, match="taken this feed over"):
            write()
    with pytest.raises(LeaseLostError, match="has ended, or a newer run continues"):
        begun(world, run_id, Shard(2, 2))


@on_postgres
def test_a_shard_in_the_middle_of_a_transaction_keeps_the_run_open_though_others_never_begin(world: World) -> None:
    run_id, _ = planned(world, most=2)
    world.ledger.acquire_lease("a worker that dies before it begins", Shard(2, 2), run_id).release()
    first = begun(world, run_id, Shard(1, 2))
    with first.transaction():
        assert not world.ledger.close_if_over(run_id, Closing(judge, 1.0, is_left=True))
    assert record_of(world, run_id).outcome is None


def test_a_shard_that_is_done_does_not_begin_again(world: World) -> None:
    run_id, _ = planned(world, most=2)
    first = begun(world, run_id, Shard(1, 2))
    _, account = published(first)
    finish_shard(first, End("done", 0, "", {}), account, CLOSING)
    with pytest.raises(LeaseLostError, match="shard 1 of 2 is done"):
        begin_shard(first, None)
    assert record_of(world, run_id).shards[0].publish == account


def test_the_end_that_a_worker_could_not_record_is_its_shards_end(world: World) -> None:
    run_id, _ = planned(world, most=2)
    first = begun(world, run_id, Shard(1, 2))
    finish_shard(first, End("done", 0, "", {}), published(first)[1], CLOSING)
    ends = {1: End("paused", 6, "", {}), 2: End("paused", 6, "the state DB is busy", {})}
    assert world.ledger.close_if_over(run_id, Closing(judge, 1.0, is_left=True, ends=ends))
    record = record_of(world, run_id)
    assert record.outcome == "done paused"
    assert (record.shards[1].exit_code, record.shards[1].message) == (6, "the state DB is busy")


def test_a_newer_run_waits_for_all_shards_and_then_ends_what_has_not_begun(world: World) -> None:
    run_id, _ = planned(world)
    fence = begun(world, run_id, Shard(1, 4))
    with pytest.raises(HeldByAnotherError, match="shard 1 of 4"):
        world.ledger.acquire_lease("a newer run")
    _, account = published(fence)
    finish_shard(fence, End("done", 0, "", {}), account, CLOSING)
    world.clock.turn(seconds=61)
    world.lease = world.ledger.acquire_lease("a newer run")
    with pytest.raises(LeaseLostError):
        open_outbox(fence)
    assert world.outbox().owed == ROWS - account.delivered
    record = record_of(world, run_id)
    assert (record.outcome, record.publish) == ("lost", account)
    assert [one.outcome for one in record.shards] == ["done", "lost", "lost", "lost"]
    world.lease.release()
    with pytest.raises(LeaseLostError, match="a newer run continues"):
        begun(world, run_id, Shard(2, 4))


def test_an_old_run_is_pruned_with_its_shards(world: World) -> None:
    planned(world)
    world.lease = world.ledger.acquire_lease("a newer run")
    run_id = world.run()
    assert plan_shards(world.ledger.fence(run_id, world.lease.token), 2) == 2
    world.lease.release()
    for number in (1, 2):
        fence = begun(world, run_id, Shard(number, 2))
        finish_shard(fence, End("done", 0, "", {}), published(fence)[1], CLOSING)
    world.crash()
    world.outbox()
    assert record_of(world, run_id).shards
    assert prune(world.engine, world.clock() + timedelta(days=1), lambda _count: None).runs == 1
    assert LedgerQueries(world.engine).run(DESTINATION, FEED, run_id) is None
    assert examine(world.engine).findings == ()


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{lay_out(Path(tmp_path_factory.mktemp('leases')) / 'state.db')}")
    yield engine
    engine.dispose()


STEPS = st.lists(
    st.tuples(st.sampled_from(["acquire", "acquire", "renew", "release", "time"]), st.integers(0, 4), st.sampled_from(SHARDS)),
    min_size=5,
    max_size=40,
)


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(steps=STEPS)
def test_no_two_workers_can_write_one_entry_in_any_order_of_taking_renewing_and_expiring(
    one_file: Engine, steps: list[tuple[str, int, Shard]]
) -> None:
    with writing(one_file) as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(delete(table))
    clock, tokens = Clock(), set[int]()
    ledger = Ledger(one_file, DESTINATION, FEED, namespace="", now=clock, lease_clock=clock.lease_clock)
    scope_id = ledger.fence("", 0).scope_id
    held: dict[int, tuple[Lease, Shard]] = {}
    for step, worker, shard in steps:
        try:
            if step == "time":
                clock.turn(seconds=20 + 20 * worker)
            elif step == "acquire":
                lease = acquire(one_file, scope_id, ELSEWHERE, clock.lease_clock, shard)
                assert lease.token not in tokens
                tokens.add(lease.token)
                held[worker] = (lease, shard)
            elif worker in held:
                held[worker][0].renew() if step == "renew" else held.pop(worker)[0].release()
        except (HeldByAnotherError, LeaseLostError):
            pass
        able = [shard for lease, shard in held.values() if _can_write(one_file, lease)]
        assert not [pair for pair in combinations(able, 2) if share_an_entry(*pair)]


def _can_write(engine: Engine, lease: Lease) -> bool:
    """Whether a transaction of the lease would commit; it is not committed, so that nothing is renewed."""
    fence = FencedTransaction(engine, lease.scope_id, FEED, "", "run", lease.token, Clock(START), lease.clock)
    try:
        with fence.transaction() as connection:
            connection.rollback()
    except LeaseLostError:
        return False
    return True


def share_an_entry(one: Shard, other: Shard) -> bool:
    blocks = range(12)
    return any(all(not each.number or block % each.of == each.number - 1 for each in (one, other)) for block in blocks)


def test_of_many_who_come_at_once_only_those_get_a_lease_that_exclude_nobody(engine: Engine) -> None:
    crowd = [WHOLE, *(Shard(number, of) for of in (2, 4) for number in range(1, of + 1))] * 2
    start = Barrier(len(crowd))

    scope_id = ledger_of(engine).fence("", 0).scope_id

    def try_out(shard: Shard) -> tuple[Lease, Shard] | None:
        start.wait()
        try:
            return acquire(engine, scope_id, this_process("one of many"), own_clock(engine, Clock()), shard), shard
        except HeldByAnotherError:
            return None

    with ThreadPoolExecutor(len(crowd)) as pool:
        found = [each for each in pool.map(try_out, crowd) if each]
    assert found
    assert len({lease.token for lease, _ in found}) == len(found)
    assert not [(one, other) for (_, one), (_, other) in combinations(found, 2) if share_an_entry(one, other)]
