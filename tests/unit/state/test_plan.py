from __future__ import annotations

import pytest
from unit.state.world import row

from mappings.vocabulary import RowKey
from state.plan import Drifted, Held, Known, New, Reopen, Repin, Unchanged, plan_known, plan_new
from state.words import EntryState

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
    assert plan_new(RowKey("b")) == Held(RowKey("b"))


@pytest.mark.parametrize("state", EntryState)
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


def test_every_state_has_its_row_in_the_table_of_changes() -> None:
    for state in EntryState:
        assert plan_known(known(state), CHANGED) in (Drifted(), Reopen())


def test_a_drift_that_is_recorded_is_not_written_again() -> None:
    assert plan_known(known(EntryState.DELIVERED, drift=CHANGED.fingerprint), CHANGED) == Drifted(is_recorded=True)


def test_a_drift_is_over_when_the_source_says_again_what_was_delivered() -> None:
    assert plan_known(known(EntryState.DELIVERED, drift=CHANGED.fingerprint), SAID) == Unchanged(
        is_drift_over=True, is_stale=True
    )


def test_an_edited_mapping_that_yields_the_same_payload_only_moves_the_digest() -> None:
    assert plan_known(known(EntryState.DELIVERED, digest=b"older mapping"), SAID) == Unchanged(is_stale=True)
