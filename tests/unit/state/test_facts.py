"""The rules of one row, cell by cell, and that SQL names the same lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product

import pytest
import sqlalchemy as sa

from state import facts
from state.enums import Decision, EntryState, GateState, Grant, Observed, Outcome, Waiting
from state.facts import Attempts, Change, Facts, May, Plan, Reading, Tried
from state.ledger.entries import FACTS, MAY_GET_EVENT, MAY_HAVE_EVENT, in_facts
from state.tables import ATTEMPT, ENTRY, METADATA, OBSERVATION, SCOPE

START = datetime(2026, 3, 1, tzinfo=UTC)
ATTEMPTS = {Tried.NO: Attempts(), Tried.LIMITED: Attempts(is_limited=True), Tried.MAYBE: Attempts(requests=1)}
DRIFT = (Observed.EDITED, Observed.TO_PUBLISH, Observed.CANCELLED)


def lines(table: str) -> Iterator[tuple[tuple[Outcome, Tried], list[str]]]:
    """Yield each outcome with each of its attempts, and the cells of its line."""
    for line in table.strip().splitlines():
        outcomes, tried, *cells = (cell.strip() for cell in line.split("|"))
        those = Tried if tried == "any" else map(Tried, tried.split())
        yield from ((of_entry, cells) for of_entry in product(map(Outcome, outcomes.split()), those))


PLANS = """
owed                         | no            | unchanged     | pin    | leave_out | withdraw | withdraw
owed                         | limited maybe | unchanged     | drift  | cancel    | keep     | keep
refused                      | no limited    | still_refused | pin    | leave_out | end      | end
refused                      | maybe         | unchanged     | drift  | cancel    | vanish   | end
denied                       | no            | unchanged     | pin    | leave_out | end      | end
denied                       | limited       | unchanged     | drift  | cancel    | end      | end
denied                       | maybe         | unchanged     | drift  | cancel    | vanish   | end
unclear conflict created used | any          | unchanged     | drift  | cancel    | vanish   | end
removed                      | any           | return        | return | settle    | settle   | settle
held                         | any           | hold          | hold   | leave_out | withdraw | withdraw
moved                        | any           | hold          | hold   | leave_out | keep     | keep
idle                         | any           | pin           | pin    | leave_out | keep     | keep
"""


def test_what_a_read_does_with_a_known_row() -> None:
    found = {}
    for of_entry, cells in lines(PLANS):
        assert [facts.plan(*of_entry, reading) for reading in Reading] == [Plan(cell) for cell in cells], of_entry
        found[of_entry] = cells
    assert set(found) == set(product(Outcome, Tried))


TRUTH = """
owed     | no      | no      | pending               |   | drift   |            |
owed     | limited | limited | pending               |   | drift   |            |
owed     | maybe   | maybe   | pending               |   | drift   | vanished   |
created  | any     | yes     | delivered             |   | drift   | vanished   |
used     | any     | yes     | delivered_unconfirmed | = | = drift | = vanished | =
refused  | no      | no      | refused               | = | = drift |            |
refused  | limited | limited | refused               | = | = drift |            |
refused  | maybe   | maybe   | uncertain             | = | = drift | = vanished | =
denied   | no      | no      | blocked               | = | = drift |            |
denied   | limited | limited | blocked               | = | = drift |            |
denied   | maybe   | maybe   | blocked               | = | = drift | vanished   |
unclear  | any     | maybe   | uncertain             | = | = drift | = vanished | =
conflict | any     | maybe   | conflict              | = | = drift | = vanished | =
removed  | any     | gone    | delivered             |   |         |            |
held     | any     | no      | held                  | = | = drift |            |
moved    | any     | no      | superseded            |   |         |            |
idle     | any     | no      | refused               |   |         |            |
"""
"""Whether an event may exist, the state, and the lists of an entry that is as its source says, drifted, vanished or gone; `=`:
that of its state.
"""


def test_what_people_see_of_an_entry() -> None:
    found = set()
    for of_entry, (may, state, *cells) in lines(TRUTH):
        assert (facts.may_exist(*of_entry), facts.state_of(*of_entry)) == (May(may), EntryState(state)), of_entry
        as_shown, drifted, vanished, gone = (frozenset(map(Waiting, cell.replace("=", state).split())) for cell in cells)
        lists = dict.fromkeys(Observed, as_shown) | dict.fromkeys(DRIFT, drifted)
        lists |= {Observed.VANISHED: vanished, Observed.GONE: gone}
        if of_entry[0] is Outcome.REMOVED:
            lists[Observed.RETURNED] = frozenset({Waiting.DRIFT})
        assert {observed: facts.waits(*of_entry, observed) for observed in Observed} == lists, of_entry
        found.add(of_entry)
    assert found == set(product(Outcome, Tried))
    assert facts.state_of(Outcome.REMOVED, Tried.NO, has_event_id=False) is EntryState.DELIVERED_UNCONFIRMED


ANY = " ".join(Observed)
HERE = " ".join(observed for observed in Observed if observed not in (Observed.VANISHED, Observed.GONE))
TO_SHOW = " ".join(observed for observed in Observed if observed not in (Observed.SAME, Observed.COUNTED, Observed.GONE))
SENT_AGAIN, AGAIN_AT_RISK = Change(Outcome.OWED, grant=Grant.RETRY), Change(Outcome.OWED, grant=Grant.RESEND, has_risk=True)
NEXT_KEY, BODY = Change(Outcome.OWED, is_next_key=True, has_risk=True), Change(Outcome.OWED, takes_wanted=True)
CREATED, OWED = Change(Outcome.CREATED), Change(Outcome.OWED)


Possible = tuple[Decision, str, str, str, Change]


def same(decision: Decision, outcomes: str, observed: str, *, takes_wanted: bool = False) -> list[Possible]:
    return [(decision, one, "any", observed, Change(Outcome(one), takes_wanted=takes_wanted)) for one in outcomes.split()]


DECISIONS: list[Possible] = [
    (Decision.EVENT_ID, "owed created used refused denied unclear conflict", "any", ANY, CREATED),
    (Decision.RECONCILED, "owed created used refused denied unclear conflict", "any", ANY, CREATED),
    (Decision.RESEND, "owed", "maybe", ANY, AGAIN_AT_RISK),
    (Decision.RESEND, "unclear", "any", ANY, AGAIN_AT_RISK),
    (Decision.RESEND, "refused denied", "no", ANY, SENT_AGAIN),
    (Decision.RESEND, "refused denied", "limited maybe", ANY, AGAIN_AT_RISK),
    (Decision.RESEND, "conflict used", "any", ANY, NEXT_KEY),
    (Decision.RESEND, "removed", "any", "returned", Change(Outcome.OWED, is_next_key=True, takes_wanted=True)),
    (Decision.RETRY, "refused", "no limited", HERE, SENT_AGAIN),
    (Decision.RETRY, "refused", "maybe", HERE, OWED),
    (Decision.RETRY, "denied", "any", HERE, OWED),
    (Decision.IGNORE, "owed", "maybe", ANY, Change(Outcome.UNCLEAR)),
    *same(Decision.IGNORE, "used refused denied unclear conflict held", ANY),
    *same(Decision.IGNORE, "created removed", TO_SHOW),
    *same(Decision.APPLIED, "created used", "edited to_publish", takes_wanted=True),
    (Decision.REMOVED, "created used", "any", "vanished cancelled", Change(Outcome.REMOVED)),
    (Decision.RELEASE, "held", "any", ANY, BODY),
]
"""Each decision that is possible: for which outcomes, what was tried, what the source says, and its effect."""


def test_what_a_decision_does() -> None:
    possible: dict[tuple[Decision, Facts], Change] = {}
    for decision, outcomes, tried, observed, change in DECISIONS:
        those = Tried if tried == "any" else map(Tried, tried.split())
        for of_entry in product(map(Outcome, outcomes.split()), those, map(Observed, observed.split())):
            possible[decision, of_entry] = change
    for decision, of_entry in product({decision for decision, *_ in DECISIONS}, facts.combinations()):
        outcome, tried, said = of_entry
        found = facts.decide(decision, outcome, ATTEMPTS[tried], said)
        assert found == possible.get((decision, of_entry)), (decision, of_entry)


@pytest.mark.parametrize(
    ("outcome", "attempts", "change"),
    [
        (Outcome.OWED, Attempts(denied_id="d"), SENT_AGAIN._replace(has_risk=True)),
        (Outcome.DENIED, Attempts(denied_id="d"), SENT_AGAIN._replace(has_risk=True)),
        (Outcome.OWED, Attempts(denied_id="d", granted=Grant.RETRY), None),
        (Outcome.OWED, Attempts(requests=1, granted=Grant.RESEND), None),
        (Outcome.OWED, Attempts(is_limited=True), None),
        (Outcome.OWED, Attempts(is_limited=True, denied_id="d"), AGAIN_AT_RISK),
    ],
)
def test_a_resend_asks_where_access_was_denied_and_once(outcome: Outcome, attempts: Attempts, change: Change | None) -> None:
    assert facts.decide(Decision.RESEND, outcome, attempts, Observed.SAME) == change


@pytest.fixture(scope="module")
def ledger() -> Iterator[sa.Connection]:
    """A ledger with one entry of each combination, and requests under another key of each."""
    engine = sa.create_engine("sqlite://")
    METADATA.create_all(engine)
    with engine.begin() as connection:
        scope = {"id": 1, "destination": "d", "feed": "f", "gate": GateState.OPEN, "created_at": START}
        connection.execute(SCOPE.insert(), scope)
        for number, (outcome, tried, observed) in enumerate(facts.combinations(), 1):
            entry = {"id": number, "scope_id": 1, "row_key": str(number), "outcome": outcome, "revision": 1, "fingerprint": ""}
            entry |= {"row_digest": b"", "twin_digest": b"", "channel_id": 1, "origin": "", "staged_run": 1}
            entry |= {"event_id": number if outcome is Outcome.CREATED else None, "changed_at": START, "created_at": START}
            connection.execute(ENTRY.insert(), entry)
            under = {"entry_id": number, "last_at": START, "run": 1}
            connection.execute(ATTEMPT.insert(), {**under, "revision": 0, "requests": 1, "since": START, "is_limited": True})
            if tried is not Tried.NO:
                requests = ATTEMPTS[tried].requests
                of_key = {"revision": 1, "requests": requests, "since": START if requests else None}
                connection.execute(ATTEMPT.insert(), {**under, **of_key, "is_limited": tried is Tried.LIMITED})
            if observed is not Observed.SAME:
                body = None if observed not in ("edited", "to_publish", "returned", "held") else b"{}"
                fingerprint = "" if body or observed is Observed.COUNTED else None
                said = {"entry_id": number, "scope_id": 1, "kind": observed, "seen_at": START}
                connection.execute(OBSERVATION.insert(), {**said, "body": body, "fingerprint": fingerprint})
        yield connection
    engine.dispose()


def waits_as(kind: Waiting) -> Callable[[Outcome, Tried, Observed], bool]:
    return lambda *of_entry: kind in facts.waits(*of_entry)


@pytest.mark.parametrize("kind", [kind for kind in Waiting if kind is not Waiting.WARNING])
def test_sql_names_the_lists_that_the_rules_name(ledger: sa.Connection, kind: Waiting) -> None:
    holds = waits_as(kind)
    expected = [number for number, of_entry in enumerate(facts.combinations(), 1) if holds(*of_entry)]
    listed = sa.select(ENTRY.c.id).select_from(FACTS).where(in_facts(facts.those(holds))).order_by(ENTRY.c.id)
    assert expected
    assert list(ledger.execute(listed).scalars()) == expected


def test_sql_knows_which_entries_have_or_may_get_an_event(ledger: sa.Connection) -> None:
    for condition, holds in ((MAY_HAVE_EVENT, facts.has_event), (MAY_GET_EVENT, facts.may_get_event)):
        expected = [number for number, (outcome, tried, _) in enumerate(facts.combinations(), 1) if holds(outcome, tried)]
        found = sa.select(ENTRY.c.id).select_from(FACTS).where(condition).order_by(ENTRY.c.id)
        assert list(ledger.execute(found).scalars()) == expected
