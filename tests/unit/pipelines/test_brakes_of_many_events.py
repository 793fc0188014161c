"""What the brakes make of rows that stand for many events: a bad row is a bad row, however many events the others give."""

from __future__ import annotations

import pytest

from mappings.spec.feed import Brakes
from pipelines.run.brakes import BrakeResult, check_brakes
from state.ledger.accounts import ReadAccount, RowShares, StageReport


def verdicts(account: ReadAccount, rows: RowShares, known: int = 0) -> dict[str, BrakeResult]:
    report = StageReport("run-1", is_whole=True, account=account, rows=rows, known_before=known, met=known, last_whole_read=100)
    return {verdict.name: verdict for verdict in check_brakes(report, Brakes(), ())}


@pytest.mark.parametrize(("bad", "is_tripped"), [(5, False), (6, True)])
def test_rejected_rows_are_a_share_of_rows_not_of_events(bad: int, is_tripped: bool) -> None:
    good = 100 - bad
    account = ReadAccount(read=100, expanded=good * 59, rejected=bad, unchanged=good * 60)
    verdict = verdicts(account, RowShares(100.0, float(bad)), known=good * 60)["rejected"]
    assert verdict.is_tripped is is_tripped
    assert f"{bad} of 100 rows rejected" in verdict.sentence


def test_a_few_bad_days_of_many_rows_weigh_what_they_are() -> None:
    account = ReadAccount(read=100, expanded=5900, rejected=100, unchanged=5900)
    verdict = verdicts(account, RowShares(100.0, 100 / 60), known=5900)["rejected"]
    assert (verdict.is_tripped, round(verdict.measured, 3)) == (False, 0.017)


def test_rows_that_begin_to_recur_are_a_flood_of_new_events() -> None:
    account = ReadAccount(read=100, expanded=5900, new=6000)
    assert verdicts(account, RowShares(100.0, 0.0), known=100)["new"].is_tripped
    rolling = ReadAccount(read=100, expanded=1200, unchanged=1200, new=100)
    assert not verdicts(rolling, RowShares(100.0, 0.0), known=6000)["new"].is_tripped
