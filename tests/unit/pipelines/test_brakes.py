"""The brakes: which finished stages may be published, and what is said of those that may not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mappings.row_key import RowKey
from mappings.spec.feed import Brakes
from pipelines.run.brakes import BrakeResult, check_brakes
from state.ledger.accounts import Alongside, HeldRow, ReadAccount, RowShares, StageReport

DEFAULTS = Brakes()


def _report(
    *, is_whole: bool = True, known: int = 0, before: int | None = None, vanished: int = 0, restaged: int = 0, **counts: int
) -> StageReport:
    account = ReadAccount(read=sum(counts.values()), **counts)
    report = StageReport("run", is_whole, account, vanished=vanished, restaged=restaged, known_before=known)
    return replace(report, last_whole_read=before, met=account.unchanged + account.drifted + restaged)


def _with(report: StageReport, **facts: Any) -> StageReport:
    return replace(report, **facts)


def _tripped(report: StageReport, limits: Brakes = DEFAULTS) -> set[str]:
    return {verdict.name for verdict in check_brakes(report, limits, ()) if verdict.is_tripped}


@pytest.mark.parametrize(
    ("report", "tripped"),
    [
        (_report(new=95, rejected=5), set()),
        (_report(new=94, rejected=6), {"rejected"}),
        (_report(new=1, rejected=2), set()),  # two bad rows are always tolerated
        (_report(new=1, rejected=3), {"rejected"}),
        (_report(new=40, filtered=960, rejected=3), {"rejected"}),  # what is filtered out does not dilute
        (_report(unchanged=50, known=100, before=100), set()),
        (_report(unchanged=49, known=100, before=100), {"shrink"}),
        (_report(known=2, before=2), {"shrink"}),  # suddenly empty
        (_with(_report(unchanged=20, known=100, before=100), past_rows=60), set()),  # what is over is pruned
        (_with(_report(unchanged=20, known=100, before=100), past_rows=20), {"shrink"}),
        (_with(_report(known=2, before=2), past=2, past_rows=2), {"shrink"}),  # all of it was over, and nothing is left
        (_with(_report(new=100, known=100, before=100), past=100, past_rows=100), set()),  # last week's programme made room
        (_report(is_whole=False, unchanged=1, known=100, before=100), set()),  # a few rows picked by hand are no loss
        (_report(new=5), set()),  # a first read has nothing to compare with
        (_report(), set()),
        (_report(new=60, unchanged=100, known=100, before=100), set()),  # growth
        (_report(new=100, known=100, before=100, vanished=100), {"new"}),  # every row under another key
        (_report(new=201, unchanged=100, known=100, before=100), {"new"}),
        (_report(new=30, known=19, before=19, vanished=19), set()),  # too short a history to judge by
        (_report(new=100, known=100, before=100, restaged=100), set()),  # known rows, corrected
        (_with(_report(unchanged=100, known=100, before=100), waiting=51, vanished=51), {"new"}),  # staged behind a brake
        (_with(_report(unchanged=100, known=100, before=100), waiting=51), set()),  # staged, and the stage was cut short
        (_with(_report(unchanged=100, known=100, before=100), waiting=51, stood=("new",)), {"new"}),  # passed for one run
        (_with(_report(unchanged=100, known=100, before=100), waiting=50, stood=("new",)), set()),
        (_with(_report(new=51, restaged=51, unchanged=49, known=100, before=100), redrafted=51), {"new"}),
        (_with(_report(new=50, restaged=50, unchanged=50, known=100, before=100), redrafted=50), set()),
        (_with(_report(new=60, unchanged=40, known=100, before=100), is_marking=False), {"new"}),  # nobody marks what vanished
        (_with(_report(new=60, unchanged=100, known=100, before=100), is_marking=False), set()),
        (_report(known=2), {"shrink"}),  # known from rows picked by hand, and nothing is left of them
        (_report(unchanged=1, known=2), set()),
        (_with(_report(held=40, new=19, unchanged=60, known=60, before=60), ignored=21), set()),
        (_with(_report(held=40, new=19, unchanged=60, known=60, before=60), ignored=20), {"copies"}),
        (_report(held=20, new=19, unchanged=60, known=60, before=60), {"copies"}),
        (_report(held=19, new=0, unchanged=60, known=60, before=60), set()),
        (_report(held=20, new=20, unchanged=60, known=60, before=60), set()),
    ],
)
def test_a_brake_trips_where_the_numbers_say_so(report: StageReport, tripped: set[str]) -> None:
    assert _tripped(report) == tripped


def _named(count: int) -> tuple[HeldRow, ...]:
    return tuple(HeldRow(f"a.csv:{number}", RowKey(f"n{number}"), RowKey(f"o{number}")) for number in range(count))


NEW_IDS = {
    "all ids changed, as many rows": (
        _report(new=100, known=100, before=100, vanished=100),
        "100 of 100 rows never seen before, none of the 100 known ones is still in the source (100 since the last read are not)",
    ),
    "all ids changed after an accepted shrink to nothing": (
        _report(new=40, known=100, before=0),
        "40 of 40 rows never seen before, none of the 100 known ones is still in the source",
    ),
    "most ids changed after an accepted shrink to ten": (
        _report(new=36, unchanged=4, known=100, before=10, vanished=6),
        "36 of 40 rows never seen before, 4 of the 100 known ones are still in the source (6 since the last read are not)",
    ),
    "all ids changed, nobody marks what vanished": (
        _with(_report(new=100, known=100, before=100), is_marking=False),
        "100 of 100 rows never seen before, none of the 100 known ones is still in the source (100 since the last read are not)",
    ),
    "ten times as many rows": (
        _report(new=900, unchanged=100, known=100, before=100),
        "900 of 1000 rows never seen before, all of the 100 known ones are still in the source",
    ),
    "ten times as many rows as lately": (
        _report(new=900, unchanged=100, known=1000, before=100),
        "900 of 1000 rows never seen before, 100 of the 1000 known ones are still in the source",
    ),
    "the third week of a weekly programme": (
        _with(_report(new=40, known=80, before=40, vanished=40), replaced_before=1),
        "40 of 40 rows never seen before, none of the 80 known ones is still in the source (40 since the last read are not)",
    ),
    "three times as many rows as a weekly programme has": (
        _with(_report(new=120, known=120, before=40, vanished=40), replaced_before=2),
        (
            "120 of 120 rows never seen before, none of the 120 known ones is still in the source"
            " (40 since the last read are not, as many as in earlier reads)"
        ),
    ),
    "a weekly programme that was stopped, read again after its acceptance for a few rows": (
        _with(_report(unchanged=40, known=80, before=40), waiting=35, met=5, stood=("new",), replaced_before=2),
        "35 of 40 rows never seen before, 5 of the 80 known ones are still in the source",
    ),
    "all ids changed, and some rows look like what was delivered": (
        _with(_report(new=80, held=15, known=100, before=100, vanished=100), held=_named(15)),
        (
            "80 of 95 rows never seen before, none of the 100 known ones is still in the source (100 since the last read are not)"
            " (a.csv:0: n0 looks like o0; a.csv:1: n1 looks like o1; a.csv:2: n2 looks like o2; and 12 more)"
        ),
    ),
}


@pytest.mark.parametrize(("report", "sentence"), NEW_IDS.values(), ids=NEW_IDS.keys())
def test_new_rows_that_no_history_explains_stop_the_run_and_the_sentence_says_what_became_of_the_known_ones(
    report: StageReport, sentence: str
) -> None:
    told = {one.name: one for one in check_brakes(report, DEFAULTS, ())}["new"]
    assert (told.stops, told.sentence) == (True, sentence)


EXPLAINED = {
    "the first run": _report(new=1000),
    "three rows, all ids changed": _report(new=3, known=3, before=3, vanished=3),
    "the fourth week of a weekly programme": _with(_report(new=40, known=120, before=40, vanished=40), replaced_before=2),
    "twice as many rows as before, in a long history": _report(new=60, unchanged=50, known=1000, before=50),
    "back after an accepted shrink, with the ids of before": _report(unchanged=100, known=100, before=0),
    "three new rows picked by hand": _report(is_whole=False, new=3, known=100, before=100),
    "the changes of a source that tells only those": _report(is_whole=False, new=150, drifted=5, known=100, before=100),
}


@pytest.mark.parametrize("report", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_new_rows_that_the_history_explains_go_out(report: StageReport) -> None:
    assert "new" not in _tripped(report)


def test_a_feed_may_release_its_brakes() -> None:
    off = Brakes.model_validate({"rejected": "off", "shrink": "off", "new": "off"})
    assert _tripped(_report(rejected=100, known=0), off) == set()
    assert _tripped(_report(unchanged=1, known=100, before=100), off) == set()
    assert _tripped(_report(new=100, known=100, before=100, vanished=100), off) == set()


def test_a_brake_that_a_person_accepts_is_tripped_and_does_not_stop() -> None:
    report = _report(rejected=50, unchanged=10, known=100, before=200)
    verdicts = {verdict.name: verdict for verdict in check_brakes(report, DEFAULTS, ("rejected",))}
    assert (verdicts["rejected"].is_tripped, verdicts["rejected"].stops) == (True, False)
    assert (verdicts["shrink"].is_tripped, verdicts["shrink"].stops) == (True, True)


def test_every_brake_says_what_it_measured() -> None:
    told: dict[str, BrakeResult] = {one.name: one for one in check_brakes(_report(new=93, rejected=7), DEFAULTS, ())}
    assert told["rejected"].sentence == "7 of 100 rows rejected (7.0%; the feed allows 5.0%, and up to 2 rows in any case)"
    assert told["rejected"].measured == pytest.approx(0.07)
    assert told["shrink"].sentence == "100 rows read, no earlier read to compare with"
    assert set(told) == {"rejected", "shrink", "left_out", "new", "copies", "scope", "keys"}


@pytest.mark.parametrize(
    ("facts", "tripped"),
    [
        ({"left_out": {"rule 2: online only": 4}, "to_come": 10}, {"left_out"}),
        ({"left_out": {"rule 2: online only": 2, "rule 3: abroad": 1}, "to_come": 10}, {"left_out"}),
        ({"left_out": {"rule 2: online only": 2}, "to_come": 4}, set()),
        ({"left_out": {"rule 2: online only": 4}, "to_come": 20}, set()),  # exactly 20 %
        ({"alike": 3}, {"new"}),
        ({"alike": 2}, set()),
        ({"alike": 3, "account": ReadAccount(read=6, new=6)}, set()),  # half of the new rows is not more than half
        ({"alongside": Alongside(7, "", "city", 30, 30, 30), "account": ReadAccount(read=30, held=30)}, {"scope"}),
        ({"alike": 3, "alike_before": 2}, set()),
        ({"alike": 3, "replaced_before": 2}, set()),
        ({"alongside": Alongside(7, "town-hall", "", 5, 5, 5)}, {"scope"}),
        ({"has_new_keys": True}, {"keys"}),
    ],
)
def test_what_rules_leave_out_what_resembles_rows_that_are_gone_and_other_names_stop_a_run(
    facts: dict[str, Any], tripped: set[str]
) -> None:
    assert _tripped(_with(_report(new=5), **facts)) == tripped


def test_a_renamed_feed_and_a_lost_namespace_are_named_with_what_helps() -> None:
    def sentence(feed: str, namespace: str) -> str:
        report = _with(_report(new=5), alongside=Alongside(7, feed, namespace, 5, 6, 0))
        return next(one.sentence for one in check_brakes(report, DEFAULTS, ()) if one.name == "scope")

    assert sentence("town-hall", "") == (
        "5 of 6 rows are known to feed town-hall: put `feed: town-hall` back, or both would deliver them"
    )
    assert sentence("", "city") == (
        "5 of 6 rows are known in namespace city: set EVENTSYNC_NAMESPACE=city, or both would deliver them"
    )


def test_a_row_that_resembles_one_of_another_feed_is_named_with_the_feed() -> None:
    held = (HeldRow("agenda.csv:3", RowKey("90"), RowKey("7"), "cinema", "city"),)
    (verdict,) = [one for one in check_brakes(_with(_report(held=1), held=held), DEFAULTS, ()) if one.name == "copies"]
    assert "agenda.csv:3: 90 looks like 7 of feed cinema in namespace city" in verdict.sentence


@given(rows=st.integers(1, 2000), rejected=st.integers(0, 2000), percent=st.integers(0, 100))
def test_rejected_rows_stop_a_run_at_the_first_row_beyond_the_share(rows: int, rejected: int, percent: int) -> None:
    rejected = min(rejected, rows)
    limits = Brakes.model_validate({"rejected": f"{percent}%", "rejected_at_least": "1"})
    is_beyond = Fraction(rejected, rows) > Fraction(percent, 100)
    assert ("rejected" in _tripped(_report(new=rows - rejected, rejected=rejected), limits)) is is_beyond


@given(before=st.integers(1, 2000), now=st.integers(0, 2000), percent=st.integers(0, 100))
def test_a_source_stops_a_run_at_the_first_row_lost_beyond_the_share(before: int, now: int, percent: int) -> None:
    limits = Brakes.model_validate({"shrink": f"{percent}%"})
    is_beyond = now == 0 or Fraction(before - now, before) > Fraction(percent, 100)
    assert ("shrink" in _tripped(_report(unchanged=now, known=before, before=before), limits)) is is_beyond


def test_likely_copies_are_named_with_what_they_look_like() -> None:
    rows = tuple(HeldRow(f"a.csv:{number}", RowKey(f"n{number}"), RowKey(f"o{number}")) for number in range(20))
    told = {one.name: one.sentence for one in check_brakes(_with(_report(held=30, new=1, known=60), held=rows), DEFAULTS, ())}
    assert told["copies"].endswith(
        "(a.csv:0: n0 looks like o0; a.csv:1: n1 looks like o1; a.csv:2: n2 looks like o2; and 27 more)"
    )
    assert "n0 looks like o0" in told["new"]


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
