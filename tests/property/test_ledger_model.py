"""The rules of one row under every order of events, up to a bound, and faults put in on purpose, which the checker finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from property.ledger_model import CHARACTERS, Character, Rules, check

from mappings.delivery import DENYING, Refusal, Superseded, Uncertain, Verdict
from state import facts
from state.enums import Decision, Outcome
from state.facts import NO_ATTEMPTS, Attempts, Change, Effect, Plan, Reading, Tried

STEPS, WORLDS = 7, 40
Mutant = Callable[..., Any]


@pytest.mark.parametrize("character", CHARACTERS, ids=str)
def test_no_order_of_events_breaks_a_promise(character: Character) -> None:
    assert check(character, STEPS, WORLDS).broken == {}


def a_refusal_clears_the_attempts(verdict: Verdict, before: Attempts, **known: bool) -> Effect:
    effect = facts.effect_of(verdict, before, **known)
    is_cleared = isinstance(verdict, Refusal) and effect.outcome is Outcome.REFUSED
    return effect._replace(attempts=NO_ATTEMPTS._replace(refused_id=effect.attempts.refused_id)) if is_cleared else effect


def lost_counts_as_not_sent(verdict: Verdict, before: Attempts, **known: bool) -> Effect:
    is_lost = isinstance(verdict, Uncertain)
    return Effect(Outcome.OWED, before) if is_lost else facts.effect_of(verdict, before, **known)


def a_repeated_denial_proves_that_nothing_was_created(verdict: Verdict, before: Attempts, **known: bool) -> Effect:
    is_repeated = isinstance(verdict, Superseded) and verdict.answer.status in DENYING
    return Effect(Outcome.OWED, before, is_next_key=True) if is_repeated else facts.effect_of(verdict, before, **known)


def a_resend_covers_its_own_requests(verdict: Verdict, before: Attempts, **known: bool) -> Effect:
    is_granted = isinstance(verdict, Superseded) and before.granted is not None and before.denied_id is not None
    return Effect(Outcome.OWED, before, is_next_key=True) if is_granted else facts.effect_of(verdict, before, **known)


def a_refusal_after_lost_attempts_keeps_the_key_for_ever(verdict: Verdict, before: Attempts, **known: bool) -> Effect:
    effect = facts.effect_of(verdict, before, **known)
    return effect._replace(is_next_key=False) if isinstance(verdict, Refusal | Superseded) else effect


def an_edit_of_a_delivered_row_is_not_recorded(outcome: Outcome, tried: Tried, reading: Reading) -> Plan:
    return Plan.UNCHANGED if outcome is Outcome.CREATED else facts.plan(outcome, tried, reading)


def an_edit_is_pinned_while_refused(outcome: Outcome, tried: Tried, reading: Reading) -> Plan:
    is_edited = outcome is Outcome.REFUSED and reading is Reading.OTHER
    return Plan.PIN if is_edited else facts.plan(outcome, tried, reading)


def a_resend_of_a_used_key_is_free(decision: Decision, *known: Any) -> Change | None:
    change = facts.decide(decision, *known)
    return change._replace(has_risk=False) if isinstance(change, Change) else change


_KEY, _BODY = "the key changes without a person while its event exists", "the body changes under a key while its event exists"
_FIRST = Character(validates_first=True, other_body_409=True)
_ONE_ID = Character(checks_access_first=True, has_one_denial_id=True)


@pytest.mark.parametrize(
    ("mutant", "character", "broken"),
    [
        (Rules(effect_of=a_refusal_clears_the_attempts), _FIRST, _BODY),
        (Rules(effect_of=lost_counts_as_not_sent), _FIRST, _BODY),
        (Rules(effect_of=a_repeated_denial_proves_that_nothing_was_created), _ONE_ID, _KEY),
        (Rules(effect_of=a_resend_covers_its_own_requests), _ONE_ID, "the key changes although a request of this call may"),
        (Rules(effect_of=a_refusal_after_lost_attempts_keeps_the_key_for_ever), _FIRST, "a person is stuck"),
        (Rules(plan=an_edit_of_a_delivered_row_is_not_recorded), _FIRST, "the row is left silently"),
        (Rules(plan=an_edit_is_pinned_while_refused), _FIRST, _BODY),
        (Rules(decide=a_resend_of_a_used_key_is_free), _FIRST, "more events than one and those that a person has risked"),
    ],
    ids=lambda value: next((rule.__name__ for rule in value if rule.__module__ == __name__), "") if type(value) is Rules else "",
)
def test_a_fault_put_in_on_purpose_is_found(mutant: Rules, character: Character, broken: str) -> None:
    found = check(character, 6, 100, mutant).broken
    assert any(what.startswith(broken) for what in found), found.keys()
