from __future__ import annotations

import pytest
from unit.state.world import row

from mappings.outcome import MappedRow
from mappings.row_key import RowKey
from state.enums import EntryState
from state.ledger.entries import Known
from state.ledger.stage import Plan, plan_known

SAID = row("a", "as pinned")
CHANGED = row("a", "as the source says now")


def known(
    state: EntryState, *, attempts: int = 1, is_unanswered: bool = False, drift: str | None = None, digest: bytes | None = None
) -> Known:
    return Known(
        entry_id=1,
        row_key=RowKey("a"),
        state=state,
        fingerprint=SAID.fingerprint,
        row_digest=SAID.row_digest if digest is None else digest,
        drift_fingerprint=drift,
        attempts=attempts,
        is_unanswered=is_unanswered,
        is_vanished=False,
        origin="agenda.csv:2",
        revision=0,
    )


@pytest.mark.parametrize("state", [state for state in EntryState if state not in ("refused", "held", "superseded")])
@pytest.mark.parametrize("attempts", [0, 1])
@pytest.mark.parametrize("is_unanswered", [False, True])
def test_the_same_payload_changes_nothing_in_any_state(state: EntryState, attempts: int, is_unanswered: bool) -> None:
    assert plan_known(known(state, attempts=attempts, is_unanswered=is_unanswered), SAID) is Plan.UNCHANGED


@pytest.mark.parametrize(
    ("state", "attempts", "is_unanswered", "expected"),
    [
        (EntryState.PENDING, 0, False, Plan.PIN),
        (EntryState.PENDING, 1, False, Plan.DRIFTED),
        (EntryState.PENDING, 1, True, Plan.DRIFTED),
        (EntryState.DELIVERED, 1, False, Plan.DRIFTED),
        (EntryState.DELIVERED_UNCONFIRMED, 2, False, Plan.DRIFTED),
        (EntryState.UNCERTAIN, 1, True, Plan.DRIFTED),
        (EntryState.CONFLICT, 1, False, Plan.DRIFTED),
        (EntryState.CONFLICT, 1, True, Plan.DRIFTED),
        (EntryState.REFUSED, 1, False, Plan.PIN),
        (EntryState.BLOCKED, 1, False, Plan.PIN),
        (EntryState.BLOCKED, 2, True, Plan.DRIFTED),
    ],
)
def test_another_payload_takes_the_pinned_ones_place_only_where_nothing_was_created(
    state: EntryState, attempts: int, is_unanswered: bool, expected: Plan
) -> None:
    assert plan_known(known(state, attempts=attempts, is_unanswered=is_unanswered), CHANGED) is expected


def test_a_refused_row_that_says_the_same_is_still_refused() -> None:
    assert plan_known(known(EntryState.REFUSED), SAID) is Plan.STILL_REFUSED


@pytest.mark.parametrize("says", [SAID, CHANGED])
def test_a_held_row_stays_held_whatever_it_says_until_a_person_releases_it(says: MappedRow) -> None:
    held = known(EntryState.HELD, attempts=0)
    assert plan_known(held, says) is Plan.HOLD
    assert plan_known(held._replace(decision="release"), says) is Plan.PIN


@pytest.mark.parametrize("says", [SAID, CHANGED])
def test_a_row_whose_event_another_key_has_is_held_when_it_returns(says: MappedRow) -> None:
    assert plan_known(known(EntryState.SUPERSEDED, attempts=0), says) is Plan.HOLD


@pytest.mark.parametrize("says", [SAID, CHANGED])
def test_a_row_whose_event_was_removed_by_hand_differs_whatever_it_says(says: MappedRow) -> None:
    assert plan_known(known(EntryState.DELIVERED)._replace(is_removed=True), says) is Plan.DRIFTED


def test_a_row_is_compared_with_what_a_person_applied_not_with_what_was_sent() -> None:
    applied = known(EntryState.DELIVERED, digest=CHANGED.row_digest)._replace(baseline_fingerprint=CHANGED.fingerprint)
    assert (plan_known(applied, CHANGED), plan_known(applied, SAID)) == (Plan.UNCHANGED, Plan.DRIFTED)


def test_a_drift_that_is_recorded_is_not_written_again() -> None:
    assert plan_known(known(EntryState.DELIVERED, drift=CHANGED.fingerprint), CHANGED) is Plan.RECORDED
