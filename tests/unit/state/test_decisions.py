"""What a person decides, on a real state DB, and as docs/ledger.md says it state by state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.state.books import beside, decisions, problems, resolve
from unit.state.story import goes_out, instruction, picture, play, stories
from unit.state.world import START, World, answer, row

from mappings.delivery import Conflict, Receipt, Uncertain, Unconfirmed
from mappings.row_key import RowKey
from state.enums import Decision, EntryState, ProblemKind
from state.errors import LeaseLostError
from state.ledger.choices import Change, Instruction, NoChange, NotPossibleError, Option
from state.ledger.decisions import EventTakenError, Found, Outcome, propose
from state.ledger.outbox import Settled
from state.ledger.standing import OpenRows, RowRecord

CONFLICT, UNCONFIRMED = Conflict(answer(409)), Unconfirmed(answer(409))
RESEND, APPLIED, REMOVED = map(Instruction, (Option.RESEND, Option.APPLIED, Option.REMOVED))
SAME_AS, UNDO = map(Instruction, (Option.SAME_AS, Option.UNDO))


def records(world: World) -> list[RowRecord]:
    """All that is shown of all entries, but for when it last changed."""
    return [replace(entry, updated_at=START) for each in (world, *world.neighbours) for entry in each.rows()]


@stories(
    """
a retried row goes out again as the very same request
    a | refused | retry => a pending retry => a refused by req-x
    a | blocked => a blocked => a denied by req-x
    a | blocked | retry => a pending retried => a denied by req-x
a stored refusal under another request id leads to the next key once, after a person's word and no cut
    a | refused | retry | refused anew => a refused key 1 retried =>
    a:A | refused | a:B | refused anew => a refused B =>
    a | refused | retry | cut | refused anew => a uncertain retried => a unanswered refused by req-2
a row whose key is used is resent under the next one as its source has it now
    a:A | conflict | a:B | --resend a | a:B => a pending B key 1 resend => a key 1 B
    a:A | unconfirmed | a:B | --resend a | a:B => a pending B key 1 resend => a key 1 B
a refused row that is set aside is a new matter once it is corrected
    a:A | refused | --ignore a | retry => a refused A ignore =>
    a:A | refused | --ignore a | retry | a:B => a pending B => a B refused by req-x
    a:A | refused | --ignore a | retry | a:B | refused => a refused B =>
what was applied by hand is the baseline, and going back is drift again
    a:A | sent | a:B | --applied a => a delivered A shown B applied =>
    a:A | sent | a:B | --applied a | a:B => a delivered A shown B applied =>
    a:A | sent | a:B | --applied a | a:A => a delivered A shown B but edited A applied =>
    a:A | sent | a:B | --applied a | x:A y:B => a delivered A shown B gone applied, x pending A, y held B like a => x A
undo keeps what the source asks for now as drift, and ignored where it was
    a:A | sent | a:B | --applied a | a:C | --undo a => a delivered A but edited C =>
    a:A | sent | a:B | --applied a | a:A | --undo a => a delivered A =>
    a:A | sent | a:B | --ignore a | --applied a | --undo a => a delivered A but edited B ignore =>
    a:A | sent | a:B | --ignore a | --applied a | a:C | --undo a => a delivered A but edited C =>
    a:A | conflict | --resend a | a:B | --undo a => a conflict A but edited B =>
an ignored change stays ignored, also when it comes back, until the row changes otherwise
    a:A | sent | a:B | --ignore a | a:B => a delivered A but edited B ignore =>
    a:A | sent | a:B | --ignore a | a:A => a delivered A =>
    a:A | sent | a:B | --ignore a | a:A | a:B | a:A | a:B => a delivered A but edited B ignore =>
    a:A | sent | a:B | --ignore a | a:A | a:B | a:C => a delivered A but edited C =>
    a:A | sent | a:B | --ignore a | a:C | a:B => a delivered A but edited B ignore =>
what a read ignores once more can be undone
    a:A | sent | a:B | --ignore a | a:C | --ignore a | --undo a | nothing | --removed a | --undo a | a:B \
        => a delivered A but edited B ignore =>
    a:A | sent | a:B | --ignore a | a:C | --ignore a | --undo a | nothing | --removed a | --undo a | a:B | --undo a | a:B \
        => a delivered A but edited B =>
a row whose event was removed is drift once it is back, and can be ignored or created again under the next key
    a:A | sent | #a | --removed a | #a => a delivered A removed removed =>
    a:A | sent | nothing | --removed a | a:A => a delivered A but returned A removed removed =>
    a:A | sent | nothing | --removed a | a:A | --ignore a | a:A => a delivered A but returned A removed ignore =>
    a:A | sent | nothing | --removed a | a:B | --undo a => a delivered A but edited B =>
    a:A | sent | nothing | --removed a | a:A | --undo a => a delivered A =>
    a:A | sent | nothing | --removed a | a:A | --resend a | a:A => a pending A key 1 resend => a key 1 A
a held row whose decision is taken back is held with what it asks for now
    a:J | sent | n:J | --release n | n:B | --undo n => a delivered J gone, n held B like a =>
    a:J | sent | n:J | --same-as n | n:B | --undo n => a delivered J gone, n held B like a =>
    a:J | sent | n:J | --release n | n:B | --undo n | --release n | n:B o:B \
        => a delivered J gone, n pending B release, o held B like n => n B
    a:J | sent | n:J | --same-as n | n:B | --undo n | --release n | n:B o:B \
        => a delivered J gone, n pending B release, o held B like n => n B
decisions are taken back one by one, the last one first
    a:J | sent | n:J | --same-as n | n:B | --applied n | --undo n | --undo n => a delivered J gone, n held B like a =>
the event of the candidate moves to the held row, and nothing is sent
    a:J | sent | n:J | --same-as n => a superseded key 1 gone like n, n delivered as 1001 J same_as =>
    a:J | sent | n:J | --same-as n | --same-as n | --same-as n a | n:J \
        => a superseded key 1 gone like n, n delivered as 1001 J same_as =>
what the held row asks for is drift against the baseline that it takes over
    a:A | sent | a:J | --applied a | n:J/draft | --same-as n \
        => a superseded key 1 gone like n, n delivered as 1001 J but edited draft J same_as =>
    a:A | sent | a:J | --applied a | n:J/draft | --same-as n | x:J \
        => a superseded key 1 gone like n, n delivered as 1001 J gone same_as, x held J like n =>
    a:J | sent | n:J | --same-as n | n:B => a superseded key 1 gone like n, n delivered as 1001 J but edited B same_as =>
the row whose event was adopted is held when it returns, and goes out under its next key
    a:J | sent | n:J | --same-as n | n:J a:J => a held J key 1 like n, n delivered as 1001 J same_as =>
    a:J | sent | n:J | --same-as n | n:J a:J | --release a \
        => a pending J key 1 release, n delivered as 1001 J same_as => a key 1 J
    a:J b | sent | n:J b | --same-as n | n:J a:J b | n:J b \
        => a superseded key 1 like n, b delivered, n delivered as 1001 J same_as =>
a held row whose candidate was adopted is held by the adopter
    a:J | sent | n:J m:J | --same-as n | n:J m:K \
        => a superseded key 1 gone like n, n delivered as 1001 J same_as, m pending K => m K
    a:J | sent | n:J m:J | --same-as n | n:J | n:J m:J \
        => a superseded key 1 gone like n, n delivered as 1001 J same_as, m held J like n =>
a row takes over the event of the key that a person names, confirmed or not
    b:B a:J | unconfirmed | n:J | --same-as n b \
        => b superseded key 1 gone like n, a delivered J gone, n delivered_unconfirmed B but edited J same_as =>
    b:B a:J | sent | n:J | --same-as n b | x:B \
        => b superseded key 1 gone like n, a delivered J gone, n delivered as 1001 B gone same_as, \
        x held B like n =>
""",
    names=("story", "ledger", "requests"),
)
def test_a_row_stands_and_goes_out_as_its_source_and_a_persons_decisions_say(
    world: World, story: str, ledger: str, requests: str
) -> None:
    play(world, story)
    assert (picture(world), goes_out(world)) == (ledger, requests)


@stories(
    """
an adoption stands once its other row is back
    a:J | sent | n:J | --same-as n | n:J a:J | --undo n => a is back in its source
an entry without an event has none to give up, and one that is not there neither
    a:J | sent | a:J n:J c:C | --same-as n c => run
    a:J | sent | a:J n:J c:C | refused | --same-as n c => --release
    a:J | sent | a:J n:J c:C | blocked | --same-as n c => run
    a:J | sent | a:J n:J c:C | uncertain | --same-as n c => reconcile
    a:J | sent | a:J n:J c:C | conflict | --same-as n c => reconcile
    a:J | sent | n:J | --same-as n x => there is no row x
""",
    names=("story", "complaint"),
)
def test_what_cannot_be_decided_is_said_and_changes_nothing(world: World, story: str, complaint: str) -> None:
    before, _, last = story.rpartition(" | ")
    play(world, before)
    entries = records(world)
    with pytest.raises(NotPossibleError) as caught:
        play(world, last)
    assert complaint in f"{caught.value} {caught.value.hint}"
    assert records(world) == entries


@stories(
    """
what changes nothing at the service can be taken back
    a:A | sent | a:B => --applied a => nothing
    a:A | conflict => --event-id a 11 => nothing
    a:A | denied => --resend a => nothing
    a:A | cut | 25 hours => --resend a => nothing
    a:A | cut => --ignore a => nothing
    a:J | sent | n:J => --same-as n => nothing
    a:J | sent | n:J => --ignore n => nothing
    a:A | sent | nothing => --removed a => nothing
    a:A | sent | nothing | --removed a | a:B => --resend a => nothing
and what lets a row out until it is sent
    a:A | conflict => --resend a => a
    a:A | unconfirmed => --resend a => a
    a:A | refused => --resend a => a
    a:A | blocked => --resend a => a
    a:J | sent | n:J => --release n => n
""",
    names=("story", "decision", "sent"),
)
def test_a_decision_that_is_taken_back_leaves_all_as_it_was_and_one_that_was_acted_on_stands(
    world: World, story: str, decision: str, sent: str
) -> None:
    option, key, *other = decision.split()
    play(world, story)
    before = records(world)
    assert isinstance(resolve(world, key, instruction(option, *other)), Change)
    resolve(world, key, UNDO)
    assert records(world) == before
    if sent != "nothing":
        resolve(world, key, instruction(option))
        assert isinstance(resolve(world, key, instruction(option)), NoChange)
        world.clock.turn(minutes=5)
        assert goes_out(world).split()[0] == sent
        with pytest.raises(NotPossibleError, match="sent since"):
            resolve(world, key, UNDO)


@pytest.mark.parametrize(
    ("story", "because"),
    [
        ("a | sent", "it is delivered"),
        ("a | refused | nothing", "the source no longer asks for it"),
        ("a | denied", "it is pending: the next run sends it; if the service only repeats a denial that it has stored: "),
    ],
)
def test_a_retry_says_of_a_row_why_it_is_left_alone(world: World, story: str, because: str) -> None:
    play(world, story)
    (left_alone,) = decisions(world).retry(row_keys=[RowKey("a")]).left_alone
    assert left_alone.because == because + "`eventsync resolve FEED KEY --resend`" * because.endswith(": ")
    assert decisions(world).retry().refused == 0


def test_an_event_of_a_row_of_another_feed_cannot_be_named(world: World) -> None:
    play(world, "b | delivered as 2000")
    other = beside(world)
    other.stage([row("x")])
    with pytest.raises(EventTakenError, match="event 2000 belongs to row b of agenda already"):
        resolve(other, "x", Instruction(Option.EVENT_ID, event_id=2_000))


def test_a_forgotten_row_is_resent_as_it_was_and_from_then_on_the_services_memory_counts_anew(world: World) -> None:
    play(world, "a:A | cut | 25 hours")
    change = resolve(world, "a", RESEND)
    assert isinstance(change, Change)
    assert "there will be two" in change.risk
    assert isinstance(resolve(world, "a", RESEND), NoChange)
    world.clock.turn(days=6)  # the feed's next run is a week away
    for hours, request in ((0, "a A unanswered"), (23, "a A unanswered"), (2, "")):
        world.clock.turn(hours=hours)
        world.crash()
        assert goes_out(world) == request
    assert picture(world) == "a uncertain A resent"


def test_a_warning_alone_can_be_ignored_until_the_row_changes(world: World) -> None:
    play(world, "a!:A | sent")
    for steps, listed in (("--ignore a | a!:A", []), ("--undo a", ["a"]), ("--ignore a | a!:B", ["a"])):
        play(world, steps)
        assert problems(world, ProblemKind.WARNING) == listed


def test_two_rows_cannot_take_over_one_event_and_neither_does(world: World) -> None:
    play(world, "a:J | sent | n:J o:J")
    with pytest.raises(NotPossibleError, match="cannot become 2 rows"):
        decisions(world).resolve([RowKey("n"), RowKey("o")], SAME_AS)
    assert world.states() == {"a": "delivered", "n": "held", "o": "held"}


def test_an_event_of_another_feed_is_taken_over_under_the_leases_of_both(world: World) -> None:
    play(world, "a:J | sent")
    other = beside(world)
    other.stage([row("n", "J")])
    with pytest.raises(LeaseLostError):
        resolve(other, "n", SAME_AS)
    before = records(world)
    of_both = decisions(other, world.lease)
    of_both.resolve([RowKey("n")], SAME_AS)
    assert world.states() == {"a": "superseded", "n": "delivered"}
    assert world.known("a").revision == 1
    of_both.resolve([RowKey("n")], UNDO)
    assert records(world) == before


def test_several_rows_are_decided_all_or_none_with_all_problems_in_one_error(world: World) -> None:
    play(world, "c:A b:B a:C | sent | c:A2 b:B #a")
    before = records(world)
    with pytest.raises(NotPossibleError, match="cancelled a"):
        decisions(world).resolve([RowKey("c"), RowKey("a")], APPLIED)
    assert records(world) == before
    done = decisions(world).resolve([RowKey("c"), RowKey("b")], APPLIED)
    assert [isinstance(one.outcome, Change) for one in done] == [True, False]


def test_uncertain_rows_stand_beside_those_whose_keys_may_be_forgotten(world: World) -> None:
    play(world, "a | uncertain")
    assert world.outbox().standing().forgotten.count == 0
    play(world, "25 hours | a b")
    outbox = world.outbox()
    (intent,) = outbox.settle_and_claim([], 8)
    outbox.settle_and_claim([Settled(intent, Uncertain(answer(503)))], 0)
    standing = outbox.standing()
    assert (standing.uncertain, standing.forgotten) == (OpenRows(1, (RowKey("b"),)), OpenRows(1, (RowKey("a"),)))


def test_what_a_list_has_shown_is_written_unless_the_entry_has_moved_on(world: World) -> None:
    world.stage([row(key) for key in "abcd"])
    world.publish(UNCONFIRMED, CONFLICT, CONFLICT, Receipt(14, answer(201)))
    ids = [world.known(key).entry_id for key in "abcd"]
    resolve(world, "b", RESEND)
    found = [Found(entry, 0, event_id, "title and start agree") for entry, event_id in zip(ids, (11, 12, 14, 14), strict=True)]
    assert decisions(world).record_found(found) == (found[0],)
    assert world.known("a").decision is Decision.RECONCILED
    assert picture(world) == "a delivered as 11 reconciled, b pending key 1 resend, c conflict, d delivered as 14"


PAGE = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text("utf-8")
BEGINNINGS = {
    "pending": "a:A",
    "pending, unanswered": "a:A | cut",
    "pending, access denied": "a:A | denied",
    "delivered": "a:A | sent",
    "delivered_unconfirmed": "a:A | unconfirmed",
    "held": "b~x | sent | a~x",
    "superseded": "a~x | sent | b~x | --same-as b",
}
"""Stories of an entry that is not called as the word that leads to it."""
ENDINGS = {
    "": "",
    "drifted": " | a:B",
    "cancelled": " | #a",
    "vanished": " | nothing",
    "removed": " | nothing | --removed a",
    "removed and back in its source": " | nothing | --removed a | a:A",
}


def _said() -> Iterator[tuple[str, str, str]]:
    """Yield the page's tables: the entry, the decision, what comes of it."""
    for table in PAGE.split("| the entry is |")[1:]:
        head, _, *lines = table.partition("\n\n")[0].splitlines()
        choices = [cell.strip().strip("`") for cell in head.strip("|").split("|") if cell.strip()]
        for line in lines:
            entries, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            for entry in entries.split(" / "):
                for choice, cell in zip(choices, cells, strict=True):
                    yield entry, choice, cell


def _lead_to(world: World, name: str) -> RowRecord:
    """Lead the row a to the entry that the page names."""
    state, _, more = name.partition(", ")
    play(world, BEGINNINGS.get(name) or BEGINNINGS.get(state, f"a:A | {state}") + ENDINGS[more])
    return world.known("a")


def _in_words(record: RowRecord, choice: Instruction, outcome: Outcome) -> str:  # noqa: PLR0911  # one arm per choice
    if isinstance(outcome, NoChange):
        return "no change"
    if not isinstance(outcome, Change):
        return "–"
    match choice.option:
        case Option.IGNORE:
            return "ignored" if outcome.state is record.state else f"{outcome.state.value}, ignored"
        case Option.APPLIED:
            return "new baseline"
        case Option.REMOVED:
            return "removed"
        case Option.SAME_AS:
            return "takes over the event"
        case _ if outcome.state is EntryState.PENDING:
            asks = " (asks)" if outcome.risk else ""
            return f"{'next' if outcome.is_next_revision else 'same'} key{asks}"
        case _:
            return outcome.state.value


@pytest.mark.parametrize(("entry", "choice", "said"), [pytest.param(*one, id=f"{one[0]} {one[1]}") for one in _said()])
def test_the_page_says_what_each_decision_does(world: World, entry: str, choice: str, said: str) -> None:
    record, chosen = _lead_to(world, entry), instruction(*choice.replace("N", "4711").split())
    (outcome,) = propose(world.engine, world.book, [RowKey("a")], chosen).values()
    assert _in_words(record, chosen, outcome) == said


def test_the_page_has_every_state_and_every_choice() -> None:
    states = PAGE.partition("## States")[2].partition("\n\nAn entry")[0]
    assert set(re.findall(r"^\| (\w+) \|", states, re.MULTILINE)) - {"state"} == {state.value for state in EntryState}
    assert {entry.partition(",")[0] for entry, _, _ in _said()} == {state.value for state in EntryState}
    assert {choice.removesuffix(" N") for _, choice, _ in _said()} == {*Option} - {Option.UNDO}
