"""docs/ledger.md says what a person's decisions do, state by state: as the code does it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.state.story import play
from unit.state.world import World

from mappings.row_key import FeedName
from state.enums import EntryState
from state.ledger.choices import Instruction, NoChange, NotPossibleError, Option, Other, decide, may_be_removed
from state.ledger.standing import RowRecord

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
    "with earlier events": " | drafting a:B | sent",
    "removed": " | nothing | --removed a",
    "removed and back in its source": " | nothing | --removed a | a:A",
}
CHOICES: dict[str, Instruction] = {
    "--event-id N": Instruction(Option.EVENT_ID, event_id=4711),
    "--resend": Instruction(Option.RESEND),
    "--ignore": Instruction(Option.IGNORE),
    "--applied": Instruction(Option.APPLIED),
    "--removed": Instruction(Option.REMOVED),
    "--same-as": Instruction(Option.SAME_AS),
    "--release": Instruction(Option.RELEASE),
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


def _entry(world: World, name: str) -> RowRecord:
    state, _, more = name.partition(", ")
    play(world, BEGINNINGS.get(name) or BEGINNINGS.get(state, f"a:A | {state}") + ENDINGS[more])
    return world.known("a")


def _other(world: World) -> Other | None:
    entry = world.entry("b")
    return None if entry is None else Other(entry, FeedName(""), "")


def _done(record: RowRecord, choice: Instruction, other: Other | None) -> str:  # noqa: PLR0911  # one arm per choice
    try:
        outcome = decide(record, choice, other=other)
    except NotPossibleError:
        return "–"
    if isinstance(outcome, NoChange):
        return "no change"
    match choice.option:
        case Option.IGNORE:
            return "ignored" if outcome.state is record.state else f"{outcome.state.value}, ignored"
        case Option.APPLIED:
            return "new baseline"
        case Option.REMOVED:
            return "removed" if may_be_removed(record) else "earlier events removed"
        case Option.SAME_AS:
            return "takes over the event"
        case _ if outcome.state is EntryState.PENDING:
            asks = " (asks)" if outcome.risk else ""
            return f"{'next' if outcome.is_next_revision else 'same'} key{asks}"
        case _:
            return outcome.state.value


@pytest.mark.parametrize(("entry", "choice", "said"), [pytest.param(*one, id=f"{one[0]} {one[1]}") for one in _said()])
def test_the_page_says_what_each_decision_does(world: World, entry: str, choice: str, said: str) -> None:
    assert _done(_entry(world, entry), CHOICES[choice], _other(world)) == said


def test_the_page_has_every_state_and_every_choice() -> None:
    states = PAGE.partition("## States")[2].partition("\n\nAn entry")[0]
    assert set(re.findall(r"^\| (\w+) \|", states, re.MULTILINE)) - {"state"} == {state.value for state in EntryState}
    assert {entry.partition(",")[0] for entry, _, _ in _said()} == {state.value for state in EntryState}
    assert {choice for _, choice, _ in _said()} == set(CHOICES)
