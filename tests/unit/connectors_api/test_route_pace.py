"""What a later run makes of the pace that an earlier one has left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.rate_limit_state import Limit, RoutePace

NIGHT_S = 17 * 3_600.0


def left_behind(pause_s: float) -> RoutePace:
    """The pace of a run that was asked to pause by its first answer."""
    pace = RoutePace().granted(0.0, 0.0)
    return pace.met(Limit(wave=0, at=0.0, before=0, heard=0.1, until=pause_s))


@pytest.mark.parametrize("later_s", [NIGHT_S + 60.0, NIGHT_S + 36_000.0])
def test_after_a_pause_of_a_night_a_run_goes_on_as_if_no_limit_were_known(later_s: float) -> None:
    pace = left_behind(NIGHT_S).taken_up(later_s)
    assert not pace.is_known
    assert not pace.is_pause_doubtful
    assert pace.granted(later_s, later_s).slot(later_s) == later_s


def test_within_a_pause_of_a_night_the_first_request_asks() -> None:
    pace = left_behind(NIGHT_S).taken_up(3_600.0)
    assert pace.is_pause_doubtful
    assert pace.slot(3_600.0) == 3_600.0


def test_what_a_short_pause_taught_is_taken_up() -> None:
    taught = left_behind(5.0)
    pace = taught.taken_up(60.0)
    assert pace.is_known
    assert replace(taught, curve=None).taken_up(60.0).is_known is False
