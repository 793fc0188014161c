"""Rows of one key: made one event, or chosen among; and rules about a row's condition or its times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from unit.mappings.conftest import Build, Mapper, event_of, said

from mappings.compiler.mapper import compile_feed
from mappings.compiler.rows import TooManyHeldError, row_groups
from mappings.event import Directory
from mappings.outcome import Absorbed, MappedRow, Rejection, RowLocation, RowOutcome, Skipped, SourceRow, if_unknown
from mappings.row_key import RowKey

MAY = datetime(2026, 5, 1, tzinfo=UTC)
GROUP = "rows:\n  - group: {collect: [offers, classifications]%s}\n"
OFFERS = """classifications: {from: KIND, on_empty: omit}
offers:
  - name: {from: OFFER, on_empty: omit}
    url: {from: LINK, do: [url], on_empty: omit}
"""
AT_DAY = 'startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}'


def rows(*cells: dict[str, str]) -> list[SourceRow]:
    """Rows of a sheet, from its second line on; the key is 1 unless they say otherwise."""
    usual = {"ID": "1", "TITLE": "Jazz", "KIND": "music"}
    return [SourceRow(RowLocation(f"sample.csv:{line}", line), usual | one) for line, one in enumerate(cells, 2)]


def told(outcomes: Iterable[RowOutcome]) -> str:
    """Return each outcome's line, and what has become of it: its offers, what it was absorbed by, or why it is no event."""
    said_of = [
        (one.location.number, one.into.value if isinstance(one, Absorbed) else said(one, "offers").replace("name: ", ""))
        for one in outcomes
    ]
    return "; ".join(f"{line} {what}".strip() for line, what in said_of)


KEEP_OUT = "  - skip: {column: KIND, equals: online}\n    because: online only\n"
CALLED_OFF = "  - cancelled: {column: STATE, equals: off}\n"
CHOOSE = "rows:\n  - duplicates: {%s}\n  - cancelled: {column: STATE, equals: off}\n    because: postponed\n"
NEWEST = "keep: newest, by: {from: ON, do: [{date: '%Y-%m-%d'}]}"
OLD, NEW = {"ON": "2026-05-01", "OFFER": "a"}, {"ON": "2026-05-10", "OFFER": "b"}
VERSIONS = [OLD, {"ID": "2"}, NEW, {"ON": "2026-04-30", "OFFER": "c"}]


@pytest.mark.parametrize(
    ("top", "cells", "becomes"),
    [
        (
            GROUP % "",
            [{"OFFER": "Child"}, {"ID": "2"}, {"TITLE": "", "OFFER": "Adult"}, {"OFFER": "Child", "LINK": "www.a.example"}],
            "2 Child · Adult · Child, url: https://www.a.example; 4 grouped; 5 grouped; 3",
        ),
        ("rows:\n  - group: {collect: [timezone]}\n", [{}, {}], "2 timezone not_a_zone; 3 grouped"),
        (GROUP % "", [{}, {"LINK": "mailto:a@b.example"}], "2 offers[0].url not_a_url LINK; 3 grouped"),
        (
            GROUP % "" + KEEP_OUT,
            [{"KIND": "online"}, {"ID": "9.18E+11"}, {"OFFER": "Hall"}, {"ID": "", "TITLE": "", "KIND": ""}],
            "2 online only; 3 bad_key ID; 5 blank row; 4 Hall",
        ),
        (GROUP % "" + CALLED_OFF, [{"STATE": "off", "OFFER": "Child"}, {"OFFER": "Adult"}], "3 Adult; 2 grouped"),
        (GROUP % "" + CALLED_OFF, [{"STATE": "off"}, {"STATE": "off"}], "2 cancelled; 3 grouped"),
        (CHOOSE % "keep: first", VERSIONS, "2 a; 3; 4 duplicate; 5 duplicate"),
        (CHOOSE % "keep: last", VERSIONS, "2 duplicate; 4 duplicate; 5 c; 3"),
        (CHOOSE % NEWEST, VERSIONS, "2 duplicate; 4 b; 5 duplicate; 3"),
        *[(CHOOSE % NEWEST, [NEW, NEW | {"OFFER": "c", "ON": on}], "2 b; 3 c") for on in ("2026-05-10", "soon", "")],
        (CHOOSE % NEWEST, [OLD, NEW | {"STATE": "off"}], "2 duplicate; 3 postponed"),
        (CHOOSE % NEWEST, [OLD, NEW | {"TITLE": ""}], "2 duplicate; 3 title required TITLE"),
    ],
)
def test_rows_of_one_key_are_gathered_into_one_event_or_chosen_among(
    top: str, cells: list[dict[str, str]], becomes: str, mapper: Mapper
) -> None:
    outcomes = list(mapper(top=top, event=OFFERS).over(rows(*cells)))
    assert told(outcomes) == becomes
    bad = [reason for one in outcomes if isinstance(one, Rejection) for reason in one.reasons if reason.field == "offers[0].url"]
    assert all("the row at sample.csv:3" in reason.hint for reason in bad)


def test_what_any_row_of_a_group_says_counts_for_whether_it_has_changed(mapper: Mapper) -> None:
    grouping = mapper(top=GROUP % "", event=OFFERS)
    both = [next(iter(grouping.over(rows({}, {"OFFER": offer, "KIND": "art"})))) for offer in ("Child", "Adult")]
    assert [event_of(outcome)["classifications"] for outcome in both] == [["music", "art"]] * 2
    assert len({(outcome.row_digest, outcome.fingerprint) for outcome in both if isinstance(outcome, MappedRow)}) == 2


def test_a_sorted_file_is_grouped_as_it_comes(mapper: Mapper) -> None:
    read: list[str] = []

    def source() -> Iterable[SourceRow]:
        for row in rows({}, {"OFFER": "Adult"}, {"ID": "2"}, {"ID": "3"}):
            read.append(row.cells["ID"])
            yield row

    outcomes = mapper(top=GROUP % ", sorted: true", event=OFFERS).over(source())
    assert event_of(next(outcomes))["offers"] == [{"name": "Adult"}]
    assert read == ["1", "1", "2"]
    assert told(outcomes) == "3 grouped; 4; 5"


def test_more_rows_than_memory_should_hold_are_an_error_that_says_what_helps() -> None:
    with pytest.raises(TooManyHeldError, match="more than 2") as error:
        list(row_groups(rows({}, {}, {}), lambda _row: RowKey("1"), is_sorted=False, held_at_most=2))
    assert "sorted: true" in error.value.hint


def test_a_group_may_recur_and_each_event_of_a_row_that_is_called_off_is(build: Build) -> None:
    recur = '  - recur: {from: {from: DAY, do: [{date: "%Y-%m-%d"}]}, until: "2026-05-05"}\n'
    day = {"DAY": "2026-05-04"}
    mapper = compile_feed(build(top=GROUP % "" + recur, event=OFFERS + AT_DAY), Directory(), MAY)
    assert told(mapper.over(rows(day | {"OFFER": "a"}, day | {"OFFER": "b"}))) == "2 a · b; 2 a · b; 3 grouped"
    mapper = compile_feed(build(top="rows:\n" + CALLED_OFF + recur, event=AT_DAY), Directory(), MAY)
    outcomes = list(mapper.over(rows(day | {"STATE": "off"}, {"ID": "2", "STATE": "off", "DAY": "soon"})))
    assert [(outcome.row_key, outcome.is_cancelled) for outcome in outcomes if isinstance(outcome, Skipped)] == [
        ("1|2026-05-04", True),
        ("1|2026-05-05", True),
        ("2", True),
    ]
    assert outcomes[2].part.silence is not None


def test_a_row_that_is_called_off_is_left_out_under_its_key_and_its_label(mapper: Mapper) -> None:
    cancelling = mapper(top="rows:\n  - cancelled: {column: STATE, in: [cancelled, off]}\n")
    (outcome,) = cancelling.over(rows({"STATE": "off", "TITLE": ""}))
    assert outcome == Skipped(outcome.location, "cancelled", RowKey("1"), is_cancelled=True)


@pytest.mark.parametrize(("severity", "status"), [("reject", None), ("warn", "published"), ("draft", "draft")])
def test_an_assertion_speaks_to_the_editor_and_weighs_what_the_file_says(
    severity: str, status: str | None, mapper: Mapper
) -> None:
    top = f"""rows:
  - assert: {{any: [{{column: PRICE, is: missing}}, {{column: PRICE, less: 500}}]}}
    message: five hundred is a typing error
    severity: {severity}
"""
    fine, dear = mapper(top=top, event="status: published").over(rows({"PRICE": "12"}, {"PRICE": "1200"}))
    assert said(fine, "status") == "published"
    assert isinstance(dear, Rejection if status is None else MappedRow)
    (reason,) = dear.reasons if isinstance(dear, Rejection) else dear.warnings
    assert (reason.code, reason.column, reason.found) == ("assertion", "PRICE", "1200")
    assert reason.hint == "five hundred is a typing error"
    assert status is None or said(dear, "status") == status


def test_an_event_that_lasts_too_long_is_rejected_or_left_out(build: Build) -> None:
    for on_longer, becomes in (("skip", "longer than wanted"), ("reject", "endAt assertion END")):
        window = f"rows:\n  - window: {{longest: 400d, on_longer: {on_longer}}}\n"
        feed = compile_feed(build(top=window, event="endAt: {from: END}"), Directory(), MAY)
        outcome = if_unknown(feed(rows({"END": "2036-07-01T18:00:00+01:00"})[0]))
        assert said(outcome) == becomes
    assert isinstance(outcome, Rejection)
    (reason,) = outcome.reasons
    assert (reason.found, reason.hint) == ("3653 days", "at most 400 days from start to end would be accepted")
