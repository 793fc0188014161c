"""What a feed asks about changes, vanished rows and copies, and what one run asks of all its rows."""

from __future__ import annotations

import pytest
from unit.state.story import picture, play, stories, told
from unit.state.world import World, row


@stories("""
a change that the feed ignores is counted once and not listed, until the feed reports changes
    a:first b | sent | ignoring a:second b => unchanged 1, drifted 1 => a delivered first, b delivered
    a:first b | sent | ignoring a:second a:second b => duplicate 1, unchanged 1, drifted 1 => a delivered first, b delivered
    a:first | sent | a:second | ignoring a:second | ignoring a:second => drifted 1 => a delivered first
    a:first | sent | a:second | ignoring a:second | a:second => drifted 1 => a delivered first but edited second
a row that is gone is neither marked nor listed, until the feed reports it
    a b | sent | ignoring a => unchanged 1 => a delivered, b delivered
    a b | sent | ignoring a | a => unchanged 1, vanished 1 => a delivered, b delivered gone
a changed event is drafted once as a new event, and the earlier one stays on record
    a:x | sent | drafting a:y => new 1, restaged 1, redrafted 1 => a pending draft y anew +1
    a:x | sent | drafting a:y | sent | drafting a:y => unchanged 1 => a delivered draft y anew +1
    a:same | sent | drafting a*:same => new 1, restaged 1, redrafted 1 => a pending draft same anew +1
    a:x | sent | drafting a:y | crash | drafting a:y => unchanged 1 => a pending draft y anew +1
a change of nothing but the status is reported and not drafted
    a:same/draft | sent | drafting a:same => drifted 1 => a delivered draft same but to_publish same
    a:same | sent | drafting a:same/draft => drifted 1 => a delivered same but edited draft same
a row is never drafted as what an earlier event says
    a:x | sent | drafting a:y | drafting a:x => unchanged 1 => a delivered x
    a:x | sent | drafting a:y | refused | drafting a:x => unchanged 1 => a delivered x
    a:x | sent | drafting a:y | sent | drafting a:x => drifted 1 => a delivered draft y anew +1 but edited draft x
    a:x | sent | drafting a:y | sent | drafting a:x | drafting a:x => drifted 1 => a delivered draft y anew +1 but edited draft x
a change after one that was applied is drafted beside the event as the service shows it
    a:x | sent | a:y | --applied a | drafting a:z => new 1, restaged 1, redrafted 1 => a pending draft z anew +1
    a:x | sent | a:y | --applied a | drafting a:z | drafting a:y => unchanged 1 => a delivered y
a draft that was sent without an answer keeps its body until it is answered
    a:x | sent | drafting a:y | uncertain | drafting a:z => drifted 1 => a uncertain draft y anew +1 but edited draft z
    a | sent | drafting a:y | uncertain | a:z | sent | drafting a:z => new 1, restaged 1, redrafted 1 => a pending draft z anew +2
a draft that is withdrawn leaves the delivered event
    a:x | sent | drafting a:y | drafting nothing => vanished 1, withdrawn 1 => a delivered x gone
    a:x | sent | drafting a:y | drafting a:y a:z => rejected 2 => a delivered x
    a:x | sent | drafting a:y | --removed a | nothing => withdrawn 1 => a delivered x over removed
a run of drafts pins drafts, and takes what is delivered for unchanged
    a | sent | drafts a b b => duplicate 1, unchanged 1, new 1 => a delivered, b pending draft
    a | drafts a => new 1, restaged 1 => a pending draft
rows behind a brake are as new to the next read as they were
    a | sent | braked a b => unchanged 1, new 1 => a delivered, b pending
    a | sent | braked a b | braked a b => unchanged 2, waiting 1 => a delivered, b pending
    a | sent | braked a b | a b => unchanged 2, waiting 1 => a delivered, b pending
    a | sent | braked a b | a b | a b => unchanged 2 => a delivered, b pending
    braked accepting a b | braked a b => unchanged 2, waiting 2 => a pending, b pending
what a stopped read misses is marked only where a person accepts the brake or the next read passes
    a b | sent | braked a | braked a => unchanged 1, vanished 1 => a delivered, b delivered
    a b | sent | braked a | braked accepting a => unchanged 1, vanished 1 => a delivered, b delivered gone
    a@over b | sent | braked b => unchanged 1, past 1 => a delivered, b delivered
    a@over b | sent | braked b | b => unchanged 1, past 1 => a delivered over, b delivered
""")
def test_a_read_goes_by_the_terms_of_its_feed_and_its_run(world: World, story: str, numbers: str, ledger: str) -> None:
    report = play(world, story)
    assert (told(report), picture(world)) == (numbers, ledger)


def test_each_change_has_a_key_of_its_own_also_after_the_ledger_is_lost(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = []
    for story in ("a:first | sent | drafting a:second", "sent | drafting a:third"):
        play(world, story)
        keys.append(world.known("a").key)
    other = World(f"sqlite:///{tmp_path_factory.mktemp('other') / 'state.db'}")
    play(other, "a:second | sent | drafting a:third")  # what the source says when the ledger begins anew
    assert (other.known("a").key, len(set(keys))) == (keys[1], 2)
    other.engine.dispose()


def test_a_draft_never_sent_takes_the_rows_next_words_under_its_key(world: World) -> None:
    play(world, "a:first | sent | drafting a:second")
    key = world.known("a").key
    assert told(play(world, "drafting a:third")) == "new 1, restaged 1"
    assert (picture(world), world.known("a").key) == ("a pending draft third anew +1", key)


# what brakes look at


def test_rows_that_a_limit_left_behind_an_open_gate_are_known_and_those_behind_a_brake_are_not(world: World) -> None:
    assert play(world, "a | braked a b | a b").known_before == 1
    world.outbox(limit=1)
    assert play(world, "a b").known_before == 2


def test_what_a_person_accepts_for_one_run_opens_the_gate_for_that_run_alone(world: World) -> None:
    report = play(world, "braked accepting a b")
    assert (report.brakes, report.accepted) == ((), ("new",))
    assert (world.ledger.gate().is_open, world.ledger.gate().brakes) == (False, ("new",))
    assert (world.ledger.open_gate("run 1").is_open, world.ledger.gate().brakes) == (True, ("new",))


def test_a_partial_read_adds_its_brakes_to_those_that_stand(world: World) -> None:
    world.stage([row("a"), row("b")], brakes=["rejected"])
    play(world, "part braked a")
    assert world.ledger.gate().brakes == ("rejected", "new")
