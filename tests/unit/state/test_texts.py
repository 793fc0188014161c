"""Texts that no database takes as they are: wherever they stand, they are kept legibly and mean the same the next time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.state.world import DESTINATION, FEED, World, answer, receipt, rejection, row, skipped

from mappings.delivery import Answer, Refusal
from mappings.outcome import Cover
from mappings.row_key import FeedName
from state.enums import ProblemKind
from state.ledger.ledger import Ledger
from state.ledger.outbox import Settled
from state.ledger.stage import open_stage
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries
from state.tables import storable
from state.verify import examine

BAD = "k\x00\udce9é"
KEPT = "k\\x00\\udce9é"


def test_a_row_with_such_a_key_goes_all_the_way_and_is_known_again(world: World) -> None:
    odd = row(BAD, "Good title", place=f"{BAD}.csv:7")
    assert world.stage([odd], [odd]).account.duplicate == 1
    key = world.known(BAD).key
    assert world.known(BAD).row_key == KEPT
    outbox = world.outbox(keys=[BAD])
    (intent,) = outbox.settle_and_claim([], 1)
    outbox.settle_and_claim([Settled(intent, receipt(intent))], 0)
    assert world.stage([odd]).account.unchanged == 1
    assert world.stage([rejection(BAD)]).vanished == 0
    assert world.stage([skipped(BAD)]).vanished == 0
    assert (world.known(BAD).state, world.known(BAD).key, world.known(BAD).origin) == ("delivered", key, f"{KEPT}.csv:7")
    assert examine(world.engine).findings == ()


def test_a_key_goes_on_to_its_next_revision_under_the_same_name(world: World) -> None:
    world.stage([row(BAD, "first")])
    world.publish(Refusal(answer(400, BAD)))
    assert world.stage([row(BAD, "second")]).account.new == 1
    assert world.known(BAD).state == "pending"
    assert examine(world.engine).findings == ()


def test_what_a_service_answers_is_kept_whatever_it_holds(world: World) -> None:
    world.stage([row("a")])
    said = Answer(400, BAD, BAD, BAD, BAD, BAD)
    world.publish(Refusal(said))
    assert world.known("a").answer == said


def test_names_of_feeds_people_and_reasons_are_kept_too(world: World) -> None:
    ledger = Ledger(world.engine, DESTINATION + BAD, FeedName(FEED + BAD), namespace="tests", now=world.clock)
    with ledger.acquire_lease(BAD) as lease:
        ledger.begin_run("run-1", launched_by=BAD, dagster_run_id=BAD)
        stage = open_stage(ledger.fence("run-1", lease.token), is_whole=True, stamp=BAD)
        stage.write([row("a", cover=Cover(f"https://img.example/{BAD.replace(chr(0xDCE9), '')}", "omit"))])
        stage.close(lambda _report: [BAD])
        ledger.open_gate(BAD)
        ledger.finish_run("run-1", outcome="done", exit_code=0, message=BAD)
    (run,) = LedgerQueries(world.engine).runs()
    assert (run.message, run.launched_by, run.dagster_run_id) == (KEPT, KEPT, KEPT)
    assert KEPT in ledger.gate().reason


def test_a_problem_at_such_a_place_is_listed_once(world: World) -> None:
    world.stage([rejection(BAD, place=BAD)])
    world.stage([rejection(BAD, place=BAD)])
    (problem,) = LedgerQueries(world.engine).problems(FeedScope(DESTINATION, FEED), ProblemKind.REJECTED)
    assert (problem.row_key, problem.origin) == (KEPT, KEPT)


@pytest.mark.parametrize("state_url", ["sqlite", "postgresql"], indirect=True)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(st.characters(codec=None), min_size=1, max_size=12).filter(lambda key: "\\" not in key))
def test_every_text_is_a_key(world: World, key: str) -> None:
    before = len(world.states())
    odd = row(key, place=f"{key} {before}")
    is_known = storable(key) in world.states()
    world.stage([odd], is_whole=False)
    assert len(world.states()) == before + (not is_known)
    assert world.stage([odd], is_whole=False).account.unchanged == 1
