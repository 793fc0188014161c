"""Entries whose marks share a byte are told apart, whichever marks they bear."""

from __future__ import annotations

import pytest

from state.ledger.seen import Seen

NEAR = range(1, 13)


@pytest.mark.parametrize("chosen", NEAR)
def test_a_mark_on_an_entry_is_none_on_its_neighbours(chosen: int) -> None:
    met, heard, passed, lost, disputed = (Seen(NEAR[-1]) for _ in range(5))
    met.meet(chosen)
    heard.hear(chosen)
    passed.hear_all([chosen])
    lost.lose(chosen)
    disputed.dispute(chosen)
    only = [entry_id == chosen for entry_id in NEAR]
    assert list(map(met.is_present, NEAR)) == only
    assert not any(map(met.is_said, NEAR))
    for seen in (heard, passed):
        assert list(map(seen.is_present, NEAR)) == list(map(seen.is_said, NEAR)) == only
        assert seen.count_present() == 1
    assert list(map(lost.is_gone, NEAR)) == list(map(disputed.is_disputed, NEAR)) == only


def test_what_is_missed_and_what_is_over_is_told_in_order_across_blocks() -> None:
    seen, every = Seen(200_000), range(1, 200_001)
    for entry_id in every[::3]:
        seen.miss(entry_id, is_over=entry_id % 2 == 0)
    for is_over in (False, True):
        expected = [entry_id for entry_id in every[::3] if (entry_id % 2 == 0) is is_over]
        assert list(seen.missed(is_over=is_over)) == expected
        assert seen.count_missed(is_over=is_over) == len(expected)
