from __future__ import annotations

import pytest
from unit.state.world import row

from mappings.outcome import MappedRow
from mappings.row_key import FeedName, RowKey
from state.enums import EntryState
from state.ledger.entries import Candidate, Known
from state.ledger.stage import (
    Drifted,
    Held,
    New,
    Reopen,
    Repin,
    Returned,
    StillHeld,
    StillRefused,
    Unchanged,
    plan_known,
    plan_new,
)

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
        refused_request_id="",
    )


def test_an_unknown_row_is_new() -> None:
    assert plan_new(None) == New()


def test_an_unknown_row_that_looks_like_a_known_one_is_held() -> None:
    candidate = Candidate(2, RowKey("b"), FeedName(""), "")
    assert plan_new(candidate) == Held(candidate)


@pytest.mark.parametrize("state", [state for state in EntryState if state not in ("refused", "held", "superseded")])
@pytest.mark.parametrize("attempts", [0, 1])
@pytest.mark.parametrize("is_unanswered", [False, True])
def test_the_same_payload_changes_nothing_in_any_state(state: EntryState, attempts: int, is_unanswered: bool) -> None:
    assert plan_known(known(state, attempts=attempts, is_unanswered=is_unanswered), SAID) == Unchanged()


@pytest.mark.parametrize(
    ("state", "attempts", "is_unanswered", "expected"),
    [
        (EntryState.PENDING, 0, False, Repin()),
        (EntryState.PENDING, 1, False, Drifted()),
        (EntryState.PENDING, 1, True, Drifted()),
        (EntryState.DELIVERED, 1, False, Drifted()),
        (EntryState.DELIVERED_UNCONFIRMED, 2, False, Drifted()),
        (EntryState.UNCERTAIN, 1, True, Drifted()),
        (EntryState.CONFLICT, 1, False, Drifted()),
        (EntryState.CONFLICT, 1, True, Drifted()),
        (EntryState.REFUSED, 1, False, Reopen()),
        (EntryState.BLOCKED, 1, False, Reopen()),
        (EntryState.BLOCKED, 2, True, Drifted()),
    ],
)
def test_another_payload_takes_the_pinned_ones_place_only_where_nothing_was_created(
    state: EntryState, attempts: int, is_unanswered: bool, expected: object
) -> None:
    assert plan_known(known(state, attempts=attempts, is_unanswered=is_unanswered), CHANGED) == expected


def test_a_refused_row_that_says_the_same_is_still_refused() -> None:
    assert plan_known(known(EntryState.REFUSED), SAID) == StillRefused()


@pytest.mark.parametrize("says", [SAID, CHANGED])
def test_a_held_row_stays_held_whatever_it_says_until_a_person_releases_it(says: MappedRow) -> None:
    held = known(EntryState.HELD, attempts=0)
    assert plan_known(held, says) == StillHeld()
    assert plan_known(held._replace(decision="release"), says) == Repin()


@pytest.mark.parametrize("says", [SAID, CHANGED])
def test_a_row_whose_event_another_key_has_is_held_when_it_returns(says: MappedRow) -> None:
    assert plan_known(known(EntryState.SUPERSEDED, attempts=0), says) == Returned()


@pytest.mark.parametrize("says", [SAID, CHANGED])
def test_a_row_whose_event_was_removed_by_hand_differs_whatever_it_says(says: MappedRow) -> None:
    assert plan_known(known(EntryState.DELIVERED)._replace(is_removed=True), says) == Drifted()


def test_a_row_is_compared_with_what_a_person_applied_not_with_what_was_sent() -> None:
    applied = known(EntryState.DELIVERED, digest=CHANGED.row_digest)._replace(baseline_fingerprint=CHANGED.fingerprint)
    assert (plan_known(applied, CHANGED), plan_known(applied, SAID)) == (Unchanged(), Drifted())


def test_a_drift_that_is_recorded_is_not_written_again() -> None:
    assert plan_known(known(EntryState.DELIVERED, drift=CHANGED.fingerprint), CHANGED) == Drifted(is_recorded=True)


def test_a_drift_is_over_when_the_source_says_again_what_was_delivered() -> None:
    assert plan_known(known(EntryState.DELIVERED, drift=CHANGED.fingerprint), SAID) == Unchanged(
        is_drift_over=True, is_stale=True
    )


def test_an_edited_mapping_that_yields_the_same_payload_only_moves_the_digest() -> None:
    assert plan_known(known(EntryState.DELIVERED, digest=b"older mapping"), SAID) == Unchanged(is_stale=True)
