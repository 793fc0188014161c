"""docs/ledger.md tells what a person's decisions do, state by state: as the code does it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.state.world import World, answer, row

from connectors.errors import KeyRefusedError
from mappings.delivery import Blocked, Conflict, Postponed, Receipt, Refusal, Uncertain, Unconfirmed, Verdict
from state.deciding import AsItIs, Choice, NotPossibleError, Resend, SetAside, TakeEvent, decide
from state.views import RowRecord
from state.words import EntryState

PAGE = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text("utf-8")
VERDICTS: dict[str, Verdict] = {
    "delivered": Receipt(7, answer(201)),
    "delivered, drifted": Receipt(7, answer(201)),
    "delivered_unconfirmed": Unconfirmed(answer(409)),
    "refused": Refusal(answer(400)),
    "pending, access denied": Postponed(answer(401), KeyRefusedError("the key is revoked")),
    "blocked": Blocked(answer(403)),
    "uncertain": Uncertain(answer(503)),
    "conflict": Conflict(answer(409)),
}
CHOICES: dict[str, Choice] = {"--event-id N": TakeEvent(4711), "--resend": Resend(), "--ignore": SetAside()}


def _told() -> Iterator[tuple[str, str, str]]:
    """Yield the page's table: the entry, the decision, what comes of it."""
    table = PAGE.partition("| the entry is |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        entry, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for choice, cell in zip(CHOICES, cells, strict=True):
            yield entry, choice, cell


def _entry(world: World, name: str) -> RowRecord:
    world.stage([row("a")])
    if name in VERDICTS:
        world.publish(VERDICTS[name])
    elif name == "pending, unanswered":
        world.outbox().settle_and_claim([], 1)
    if name == "delivered, drifted":
        world.stage([row("a", "edited")])
    return world.known("a")


def _done(record: RowRecord, choice: Choice) -> str:
    try:
        outcome = decide(record, choice)
    except NotPossibleError:
        return "not possible"
    if isinstance(outcome, AsItIs):
        return "as it is"
    if isinstance(choice, SetAside):
        return "set aside" if outcome.state is record.state else f"{outcome.state.value}, set aside"
    if outcome.state is EntryState.PENDING:
        asks = " (asks)" if outcome.risk else ""
        return f"pending, {'next' if outcome.is_next_revision else 'same'} key{asks}"
    return outcome.state.value


@pytest.mark.parametrize(("entry", "choice", "told"), [pytest.param(*one, id=f"{one[0]} {one[1]}") for one in _told()])
def test_the_page_tells_what_each_decision_does(world: World, entry: str, choice: str, told: str) -> None:
    assert _done(_entry(world, entry), CHOICES[choice]) == told


def test_the_page_has_every_state() -> None:
    states = PAGE.partition("## States")[2].partition("\n\n**Nothing")[0]
    assert set(re.findall(r"^\| (\w+) \|", states, re.MULTILINE)) - {"state"} == {state.value for state in EntryState}
    assert {entry.partition(",")[0] for entry, _, _ in _told()} == {state.value for state in EntryState}
