"""Which finished stages may be published, and from errors and accounts to the one word and the exit code of scripts."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.pipelines.feed_files import feed

from connectors import errors
from connectors.errors import PausedError
from connectors.sources.contract import MissingColumnsError, SourceRefusedError, SourceUnavailableError
from mappings.errors import ConfigError, MappingFileError, SyncError
from mappings.row_key import RowKey
from mappings.spec.feed import Brakes, FeedMapping
from pipelines.run.brakes import BrakeResult, check_brakes
from pipelines.run.outcome import BrakeError, ExitCode, outcome_of
from pipelines.run.publish import PublishReport, outcome_of_publish
from pipelines.run.signals import InterruptedRunError
from state.enums import DriftKind
from state.errors import HeldByAnotherError, LeaseLostError
from state.ledger.accounts import Alongside, HeldRow, ImbalanceError, PublishAccount, ReadAccount, RowShares, StageReport
from state.ledger.gate import GateClosedError
from state.ledger.standing import OpenRows, Standing

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ERRORS: list[tuple[SyncError, int]] = [
    (ConfigError("x"), 2),
    (MappingFileError(Path("feed.yaml"), ()), 2),
    (errors.BaseUrlError("x"), 2),
    (errors.KeyFormatError("x"), 2),
    (errors.NotTheServiceError("x"), 2),
    (errors.RedirectRefusedError("x"), 2),
    (SourceRefusedError("x"), 2),
    (MissingColumnsError("events.csv", ["GENRE"], ["GENRES"]), 5),
    (errors.KeyRefusedError("x"), 3),
    (errors.ScopeMissingError("x"), 3),
    (HeldByAnotherError(holder="run 1", since=NOW, host="here", pid=1), 4),
    (BrakeError("x", brakes=("rejected",)), 5),
    (PausedError("x", resume_at=NOW), 6),
    (errors.ServiceUnavailableError("x"), 6),
    (SourceUnavailableError("x"), 6),
    (LeaseLostError("x"), 4),
    (InterruptedRunError("x"), 130),
    (GateClosedError("x"), 2),
    (ImbalanceError("x"), 1),
    (SyncError("x"), 1),
]
README = (Path(__file__).parents[3] / "README.md").read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    ("error", "code"), ERRORS, ids=lambda value: type(value).__name__ if isinstance(value, SyncError) else ""
)
def test_every_error_has_its_exit_code_and_its_outcome_beside_it_in_the_readme(error: SyncError, code: int) -> None:
    outcome = outcome_of(error)
    assert (outcome.exit_code, outcome.message, outcome.hint) == (code, str(error), error.hint)
    (line,) = (line for line in README if line.startswith(f"| {code} | `"))
    assert f"`{outcome.name}`" in line


@pytest.fixture
def mapping(tmp_path: Path) -> FeedMapping:
    return feed(tmp_path)


def rows(count: int, *first: str) -> OpenRows:
    return OpenRows(count, tuple(map(RowKey, first)))


@pytest.mark.parametrize(
    ("standing", "code", "words"),
    [
        (Standing(), 0, []),
        (Standing(refused=rows(2), asked=4), 0, ["2 refused", "within"]),
        (Standing(refused=rows(5), asked=100), 0, ["5 refused", "within"]),
        (Standing(refused=rows(6), asked=100), 1, ["6 refused", "more than the feed allows"]),
        (Standing(refused=rows(3), asked=3), 1, ["3 refused"]),
        (Standing(refused=rows(60, "a", "b", "c"), asked=60), 1, ["60 (a, b, c, …) refused"]),
        (Standing(conflict=rows(1)), 1, ["1 in conflict"]),
        (Standing(blocked=rows(1)), 1, ["1 blocked"]),
        (Standing(uncertain=rows(1)), 1, ["1 uncertain"]),
        (Standing(conflict=rows(1), blocked=rows(2), held=rows(1, "x")), 1, ["1 in conflict", "2 blocked", "1 (x) held as"]),
        (Standing(held=rows(1, "x")), 0, ["1 (x) held as"]),
        (Standing(drift=rows(2, "x", "y"), drifts={DriftKind.CANCELLED: 1}), 0, ["2 (x, y) changed", "1 cancelled"]),
        (Standing(vanished=rows(4, "x", "y", "z")), 0, ["4 (x, y, z, …) gone"]),
        (Standing(warning=rows(1, "x")), 0, ["1 (x) used with a warning"]),
        (Standing(faults=rows(1, "a")), 1, ["1 (a) rejected because of a bug in eventsync", "stack trace in the log"]),
        (Standing(unconfirmed=rows(1, "a")), 0, ["eventsync reconcile town-hall"]),
        (Standing(conflict=rows(1, "a b")), 1, ["1 (a b) in conflict", "eventsync resolve town-hall 'a b'"]),
        (
            Standing(forgotten=rows(5, "c", "d", "e")),
            1,
            ["5 (c, d, e, …) uncertain for so long", "eventsync reconcile town-hall"],
        ),
    ],
)
def test_the_exit_code_follows_from_what_stands_at_the_end_of_a_run(
    mapping: FeedMapping, standing: Standing, code: int, words: list[str]
) -> None:
    outcome = outcome_of_publish(PublishReport(PublishAccount(new=9, delivered=9), None, 1.0, standing=standing), mapping)
    assert outcome.exit_code == code
    assert [word for word in words if word not in outcome.text] == []
    assert bool(outcome.hint) == bool(standing.rows or standing.faults.count)


def test_the_cause_of_an_early_end_goes_before_what_it_left_behind(mapping: FeedMapping) -> None:
    account = PublishAccount(new=2, conflict=1, pending=1)
    outcome = outcome_of_publish(PublishReport(account, PausedError("come back later", resume_at=NOW), 1.0), mapping)
    assert (outcome.exit_code, outcome.message) == (ExitCode.LATER, "come back later")


DEFAULTS, OFF = Brakes(), Brakes.model_validate({"rejected": "off", "shrink": "off", "new": "off"})
COUNTS = {one.name for one in fields(ReadAccount)}
ALIKE = {"held": tuple(HeldRow(f"a.csv:{number}", RowKey(f"n{number}"), RowKey(f"o{number}")) for number in range(20))}


def _read(known: int = 0, before: int | None = None, named: dict[str, Any] | None = None, **facts: Any) -> StageReport:
    """A stage after a feed of so many known rows, of which the last whole read had so many; `named`: `held` as rows."""
    counts = {name: facts.pop(name) for name in COUNTS & facts.keys()}
    account = ReadAccount(**{"read": sum(counts.values()), **counts})
    met = account.unchanged + account.drifted + facts.get("restaged", 0)
    report = StageReport(run_id="run", is_whole=facts.pop("is_whole", True), account=account, known_before=known)
    return replace(report, **{"last_whole_read": before, "met": met, **facts, **(named or {})})


def _results(report: StageReport, limits: Brakes = DEFAULTS) -> dict[str, BrakeResult]:
    return {verdict.name: verdict for verdict in check_brakes(report, limits, (), "town-hall")}


def _tripped(report: StageReport, limits: Brakes = DEFAULTS) -> set[str]:
    return {name for name, verdict in _results(report, limits).items() if verdict.is_tripped}


FULL = {"known": 100, "before": 100}


@pytest.mark.parametrize(
    ("report", "tripped"),
    [
        (_read(), set()),
        (_read(new=1000), set()),  # a first read has nothing to compare with
        (_read(new=95, rejected=5), set()),
        (_read(new=94, rejected=6), {"rejected"}),
        (_read(new=1, rejected=2), set()),  # two bad rows are always tolerated
        (_read(new=1, rejected=3), {"rejected"}),
        (_read(new=40, filtered=960, rejected=3), {"rejected"}),  # what is filtered out does not dilute
        (_read(unchanged=50, **FULL), set()),
        (_read(unchanged=49, **FULL), {"shrink"}),
        (_read(known=2, before=2), {"shrink"}),  # suddenly empty
        (_read(unchanged=20, past_rows=60, **FULL), set()),  # what is over is pruned
        (_read(unchanged=20, past_rows=20, **FULL), {"shrink"}),
        (_read(known=2, before=2, past=2, past_rows=2), {"shrink"}),  # all of it was over, and nothing is left
        (_read(new=100, past=100, past_rows=100, **FULL), set()),  # last week's programme made room
        (_read(is_whole=False, unchanged=1, **FULL), set()),  # a few rows picked by hand are no loss
        (_read(known=2), {"shrink"}),  # known from rows picked by hand, and nothing is left of them
        (_read(unchanged=1, known=2), set()),
        (_read(unchanged=100, known=100, before=0), set()),  # back after an accepted shrink, with the ids of before
        (_read(new=60, unchanged=100, **FULL), set()),  # growth
        (_read(new=60, unchanged=50, known=1000, before=50), set()),  # of a feed with a long history
        (_read(new=100, vanished=100, **FULL), {"new"}),  # every row under another key
        (_read(new=201, unchanged=100, **FULL), {"new"}),
        (_read(new=40, known=100, before=0), {"new"}),  # all ids changed after an accepted shrink to nothing
        (_read(new=30, known=19, before=19, vanished=19), set()),  # too short a history to judge by
        (_read(new=3, known=3, before=3, vanished=3), set()),
        (_read(new=100, restaged=100, **FULL), set()),  # known rows, corrected
        (_read(unchanged=100, waiting=51, vanished=51, **FULL), {"new"}),  # staged behind a brake
        (_read(unchanged=100, waiting=51, **FULL), set()),  # staged, and the stage was cut short
        (_read(unchanged=100, waiting=51, stood=("new",), **FULL), {"new"}),  # passed for one run
        (_read(unchanged=100, waiting=50, stood=("new",), **FULL), set()),
        (_read(new=60, unchanged=40, is_marking=False, **FULL), {"new"}),  # what vanished is marked by no one
        (_read(new=60, unchanged=100, is_marking=False, **FULL), set()),
        (_read(new=40, known=80, before=40, vanished=40, replaced_before=1), {"new"}),  # the third week of a programme
        (_read(new=40, known=120, before=40, vanished=40, replaced_before=2), set()),  # the fourth
        (_read(is_whole=False, new=3, **FULL), set()),  # picked by hand
        (_read(is_whole=False, new=150, drifted=5, **FULL), set()),  # of a source that gives only changes
        (_read(held=40, new=19, unchanged=60, known=60, before=60, ignored=21), set()),
        (_read(held=40, new=19, unchanged=60, known=60, before=60, ignored=20), {"copies"}),
        (_read(held=20, new=19, unchanged=60, known=60, before=60), {"copies"}),
        (_read(held=19, new=0, unchanged=60, known=60, before=60), set()),
        (_read(held=20, new=20, unchanged=60, known=60, before=60), set()),
        (_read(new=5, left_out={"rule 2": 4}, to_come=10), {"left_out"}),
        (_read(new=5, left_out={"rule 2": 2, "rule 3": 1}, to_come=10), {"left_out"}),
        (_read(new=5, left_out={"rule 2": 2}, to_come=4), set()),
        (_read(new=5, left_out={"rule 2": 4}, to_come=20), set()),  # exactly 20 %
        (_read(new=5, alike=3), {"new"}),
        (_read(new=5, alike=2), set()),
        (_read(new=6, alike=3), set()),  # half of the new rows is not more than half
        (_read(new=5, alike=3, alike_before=2), set()),
        (_read(new=5, alike=3, replaced_before=2), set()),
        (_read(held=30, alongside=Alongside(7, "", "city", 30, 30, 30)), {"scope"}),
        (_read(new=5, has_new_keys=True), {"keys"}),
        (_read(drifted=25, changed={"startAt": 25, "title": 20}, to_come=30), {"changed"}),
        (_read(drifted=24, changed={"startAt": 24}, to_come=30), set()),  # exactly 80 %
        (_read(drifted=19, changed={"startAt": 19}, to_come=19), set()),
    ],
)
def test_a_brake_trips_where_the_numbers_say_so(report: StageReport, tripped: set[str]) -> None:
    assert _tripped(report) == tripped


NONE_IS_LEFT = "none of the 100 known ones is still in the source (100 removed since the last read"
BOTH, STILL = "and would be delivered twice", "known ones are still in the source"


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (_read(new=93, rejected=7), "rejected: 100 rows rejected (7.0%; the feed allows 5.0%, and up to 2 rows in any case)"),
        (_read(new=100, vanished=100, **FULL), f"new: 100 of 100 rows never seen before, {NONE_IS_LEFT})"),
        (_read(new=100, is_marking=False, **FULL), f"new: 100 of 100 rows never seen before, {NONE_IS_LEFT})"),
        (_read(new=300, vanished=100, replaced_before=2, **FULL), f"new: , {NONE_IS_LEFT}, as many as in earlier reads)"),
        (
            _read(new=36, unchanged=4, known=100, before=10, vanished=6),
            f"new: 36 of 40 rows never seen before, 4 of the 100 {STILL} (6 removed since the last read)",
        ),
        (_read(new=900, unchanged=100, **FULL), f"new: , all of the 100 {STILL}"),
        (
            _read(unchanged=40, known=80, before=40, waiting=35, met=5, stood=("new",), replaced_before=2),
            f"new: 35 of 40 rows never seen before, 5 of the 80 {STILL}",
        ),
        (
            _read(held=30, new=1, known=60, named=ALIKE),
            "copies: 1 does not (a.csv:0: n0 looks like o0; a.csv:1: n1 looks like o1; a.csv:2: n2 looks like o2; and 27 more)",
        ),
        (
            _read(new=5, alongside=Alongside(7, "town-hall", "", 5, 6, 0)),
            f"scope: 5 of 6 rows are known to feed town-hall, {BOTH}",
        ),
        (
            _read(new=5, alongside=Alongside(7, "", "city", 5, 6, 0)),
            f"scope: 5 of 6 rows are known to namespace city, {BOTH}",
        ),
    ],
)
def test_a_brake_that_stops_a_run_says_why(report: StageReport, says: str) -> None:
    brake, _, ending = says.partition(": ")
    result = _results(report)[brake]
    assert result.stops
    assert result.sentence.endswith(ending)


CORRECT = "correct the source or the mapping and run again"


@pytest.mark.parametrize(
    ("report", "brake", "says"),
    [
        (_read(rejected=4), "rejected", f"{CORRECT}; `eventsync run town-hall --accept rejected` would send nothing new"),
        (
            _read(new=1, rejected=3),
            "rejected",
            "send the good rows anyway: `eventsync run town-hall --accept rejected` (1 row will",
        ),
        (_read(new=1400, rejected=300), "rejected", "--accept rejected` (1,400 rows will be sent)"),
        (
            _read(unchanged=49, **FULL),
            "shrink",
            "or, if this is all: `eventsync run town-hall --accept shrink` (nothing new will be sent, and the next read is",
        ),
        (_read(new=1, unchanged=9, **FULL), "shrink", "(1 row will be sent, and the next read is compared with this one)"),
        (_read(left_out={"rule 2": 4}, to_come=10), "left_out", "(nothing new will be sent, 4 rows listed as vanished)"),
        (
            _read(held=20, named=ALIKE),
            "copies",
            "or leave them held: `eventsync run town-hall --accept copies` (nothing new will be sent)",
        ),
        (_read(held=5, has_new_keys=True), "keys", "--accept keys` (nothing new will be sent)"),
        (_read(new=5, has_new_keys=True), "keys", "--accept keys` (5 rows will be sent under new keys)"),
        (_read(drifted=25, changed={"startAt": 25}, to_come=30), "changed", "--accept changed` (nothing new will be sent)"),
    ],
)
def test_a_brake_says_what_accepting_it_would_send(report: StageReport, brake: str, says: str) -> None:
    result = _results(report)[brake]
    assert result.stops
    assert says in result.step


@pytest.mark.parametrize(
    ("report", "limits", "says"),
    [
        (_read(new=1, held=1), DEFAULTS, "copies: 1 row looks like a copy of an event sent under another key, 1 does not"),
        (_read(new=8), DEFAULTS, "copies: no row looks like a copy of an event sent under another key"),
        (
            _read(unchanged=1, past_rows=1, **FULL),
            DEFAULTS,
            "shrink: 1 row read, 100 in the read before, 1 of them over by now",
        ),
        (
            _read(unchanged=1, known=1, before=1),
            DEFAULTS,
            "new: 0 of 1 rows never seen before, the one known row is still in the source",
        ),
        (_read(new=1, rejected=1), Brakes.model_validate({"rejected_at_least": "1"}), "rejected: (50.0%; the feed allows 5.0%)"),
        (_read(new=1, rejected=1), Brakes.model_validate({"rejected_at_least": "2"}), "rejected: and up to 1 row in any case)"),
    ],
)
def test_a_brake_counts_one_row_and_none_as_people_do(report: StageReport, limits: Brakes, says: str) -> None:
    brake, _, ending = says.partition(": ")
    assert _results(report, limits)[brake].sentence.endswith(ending)


def test_a_row_that_resembles_one_of_another_feed_is_named_with_the_feed_also_among_new_rows() -> None:
    held = (HeldRow("agenda.csv:3", RowKey("90"), RowKey("7"), "cinema", "city"),)
    results = _results(_read(new=1, named={"held": held}, known=60))
    assert "agenda.csv:3: 90 looks like 7 of feed cinema in namespace city" in results["new"].sentence


def test_a_feed_may_release_its_brakes() -> None:
    for report in (_read(rejected=100), _read(unchanged=1, **FULL), _read(new=100, vanished=100, **FULL)):
        assert (len(_tripped(report)), _tripped(report, OFF)) == (1, set())


def test_a_brake_that_a_person_accepts_is_tripped_and_does_not_stop() -> None:
    report = _read(rejected=50, unchanged=10, known=100, before=200)
    verdicts = {one.name: (one.is_tripped, one.stops) for one in check_brakes(report, DEFAULTS, ("rejected",), "town-hall")}
    assert (verdicts["rejected"], verdicts["shrink"]) == ((True, False), (True, True))
    assert set(verdicts) == {"rejected", "shrink", "left_out", "new", "copies", "scope", "keys", "changed"}


@given(rows=st.integers(1, 2000), rejected=st.integers(0, 2000), percent=st.integers(0, 100))
def test_rejected_rows_stop_a_run_at_the_first_row_beyond_the_share(rows: int, rejected: int, percent: int) -> None:
    rejected = min(rejected, rows)
    limits = Brakes.model_validate({"rejected": f"{percent}%", "rejected_at_least": "1"})
    is_beyond = Fraction(rejected, rows) > Fraction(percent, 100)
    assert ("rejected" in _tripped(_read(new=rows - rejected, rejected=rejected), limits)) is is_beyond


@given(before=st.integers(1, 2000), now=st.integers(0, 2000), percent=st.integers(0, 100))
def test_a_source_stops_a_run_at_the_first_row_lost_beyond_the_share(before: int, now: int, percent: int) -> None:
    limits = Brakes.model_validate({"shrink": f"{percent}%"})
    is_beyond = now == 0 or Fraction(before - now, before) > Fraction(percent, 100)
    assert ("shrink" in _tripped(_read(unchanged=now, known=before, before=before), limits)) is is_beyond


def test_rejected_rows_are_a_share_of_rows_not_of_events() -> None:
    for bad, rows, is_tripped, words in ((5, 5.0, False, "5 of 100"), (6, 6.0, True, "6 of 100"), (100, 5 / 3, False, "(1.7%;")):
        report = _read(read=100, expanded=5900, rejected=bad, unchanged=6000 - bad, rows=RowShares(100.0, rows))
        result = _results(report)["rejected"]
        assert (result.is_tripped, words in result.sentence) == (is_tripped, True)


def test_rows_that_begin_to_recur_are_a_flood_of_new_events() -> None:
    flood, rolling = {"expanded": 5900, "new": 6000}, {"expanded": 1200, "unchanged": 1200, "new": 100}
    reports = [_read(read=100, known=known, before=100, met=known, **counts) for known, counts in ((100, flood), (6000, rolling))]
    assert ["new" in _tripped(report) for report in reports] == [True, False]
