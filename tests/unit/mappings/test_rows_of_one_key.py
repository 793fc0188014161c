"""Rows of one key: made one event, or chosen among; and rules about a row's condition or its times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from unit.mappings.conftest import Build, Mapper, event_of

from mappings.compiler.mapper import compile_feed
from mappings.compiler.rows import TooManyHeldError, row_groups
from mappings.event import Directory
from mappings.outcome import Absorbed, MappedRow, Rejection, RowLocation, RowOutcome, Skipped, SourceRow, if_unknown
from mappings.reasons import ReasonCode
from mappings.row_key import RowKey

GROUP = "rows:\n  - group: {collect: [offers, classifications]%s}\n"
OFFERS = """classifications: {from: KIND, on_empty: omit}
offers:
  - name: {from: OFFER, on_empty: omit}
    url: {from: LINK, do: [url], on_empty: omit}
"""


def rows(*cells: dict[str, str]) -> list[SourceRow]:
    """Rows of a sheet, from its second line on; the key is 1 unless they say otherwise."""
    usual = {"ID": "1", "TITLE": "Jazz", "KIND": "music"}
    return [SourceRow(RowLocation(f"sample.csv:{line}", line), usual | one) for line, one in enumerate(cells, 2)]


def told(outcomes: Iterable[RowOutcome]) -> list[tuple[str, str]]:
    """Each outcome's kind, or how it was absorbed, or why skipped, with its place."""
    said = []
    for outcome in outcomes:
        match outcome:
            case Absorbed():
                what = outcome.into.value
            case Skipped():
                what = outcome.because
            case _:
                what = type(outcome).__name__
        said.append((what, str(outcome.location).removeprefix("sample.csv:")))
    return said


def test_rows_of_one_key_are_one_event_whose_lists_are_gathered_from_all_of_them(mapper: Mapper) -> None:
    cells = [
        {"OFFER": "Child"},
        {"ID": "2"},
        {"TITLE": "", "OFFER": "Adult", "KIND": "art"},
        {"OFFER": "Child", "LINK": "www.a.example"},
    ]
    outcomes = list(mapper(top=GROUP % "", event=OFFERS).over(rows(*cells)))
    assert told(outcomes) == [("MappedRow", "2"), ("grouped", "4"), ("grouped", "5"), ("MappedRow", "3")]
    first = event_of(outcomes[0])
    assert (first["title"], first["classifications"]) == ("Jazz", ["music", "art"])
    assert first["offers"] == [{"name": "Child"}, {"name": "Adult"}, {"name": "Child", "url": "https://www.a.example"}]


def test_what_is_gathered_is_held_against_what_the_service_accepts(mapper: Mapper) -> None:
    grouping = mapper(top="rows:\n  - group: {collect: [timezone]}\n")
    outcome, absorbed = grouping.over(rows({}, {}))
    assert isinstance(outcome, Rejection)
    assert isinstance(absorbed, Absorbed)
    assert [(one.code, one.field) for one in outcome.reasons] == [(ReasonCode.NOT_A_ZONE, "timezone")]


def test_what_any_row_of_a_group_says_counts_for_whether_it_has_changed(mapper: Mapper) -> None:
    grouping = mapper(top=GROUP % "", event=OFFERS)
    digests = set()
    for offer in ("Child", "Adult"):
        (outcome, _) = grouping.over(rows({}, {"OFFER": offer}))
        assert isinstance(outcome, MappedRow)
        digests.add((outcome.row_digest, outcome.fingerprint))
    assert len(digests) == 2


def test_a_bad_part_rejects_the_event_and_names_the_row_that_it_came_from(mapper: Mapper) -> None:
    outcome, absorbed = mapper(top=GROUP % "", event=OFFERS).over(rows({}, {"LINK": "mailto:a@b.example"}))
    assert isinstance(outcome, Rejection)
    assert isinstance(absorbed, Absorbed)
    (reason,) = outcome.reasons
    assert (reason.code, reason.column, reason.field) == (ReasonCode.NOT_A_URL, "LINK", "offers[0].url")
    assert "the row at sample.csv:3" in reason.hint


def test_rows_that_are_left_out_and_rows_without_a_usable_key_join_nothing(mapper: Mapper) -> None:
    top = GROUP % "" + "  - skip: {column: KIND, equals: online}\n    because: online only\n"
    cells = [{"KIND": "online", "OFFER": "Stream"}, {"ID": "9.18E+11"}, {"OFFER": "Hall"}, {"ID": "", "TITLE": "", "KIND": ""}]
    outcomes = list(mapper(top=top, event=OFFERS).over(rows(*cells)))
    assert told(outcomes) == [("online only", "2"), ("Rejection", "3"), ("blank row", "5"), ("MappedRow", "4")]
    assert event_of(outcomes[-1])["offers"] == [{"name": "Hall"}]


def test_a_group_is_called_off_only_if_all_of_its_rows_are(mapper: Mapper) -> None:
    top = GROUP % "" + "  - cancelled: {column: STATE, equals: off}\n"
    grouping = mapper(top=top, event=OFFERS)
    some = list(grouping.over(rows({"STATE": "off", "OFFER": "Child"}, {"OFFER": "Adult"})))
    assert told(some) == [("MappedRow", "3"), ("grouped", "2")]
    assert event_of(some[0])["offers"] == [{"name": "Adult"}]
    every = list(grouping.over(rows({"STATE": "off"}, {"STATE": "off"})))
    assert told(every) == [("cancelled", "2"), ("grouped", "3")]


def test_a_sorted_file_is_grouped_as_it_comes(mapper: Mapper) -> None:
    read: list[str] = []

    def source() -> Iterable[SourceRow]:
        for row in rows({}, {"OFFER": "Adult"}, {"ID": "2"}, {"ID": "3"}):
            read.append(row.cells["ID"])
            yield row

    outcomes = mapper(top=GROUP % ", sorted: true", event=OFFERS).over(source())
    assert event_of(next(outcomes))["offers"] == [{"name": "Adult"}]
    assert read == ["1", "1", "2"]
    assert told(outcomes) == [("grouped", "3"), ("MappedRow", "4"), ("MappedRow", "5")]


def test_more_rows_than_memory_should_hold_are_an_error_that_says_what_helps() -> None:
    with pytest.raises(TooManyHeldError, match="more than 2") as error:
        list(row_groups(rows({}, {}, {}), lambda _row: RowKey("1"), is_sorted=False, held_at_most=2))
    assert "sorted: true" in error.value.hint


def test_a_group_may_recur(build: Build) -> None:
    top = GROUP % "" + '  - recur: {from: "2026-05-04", until: "2026-05-05"}\n'
    mapping = build(top=top, event=OFFERS + 'startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}')
    outcomes = list(
        compile_feed(mapping, Directory(), datetime(2026, 5, 1, tzinfo=UTC)).over(rows({"OFFER": "a"}, {"OFFER": "b"}))
    )
    assert [outcome.row_key for outcome in outcomes] == ["1|2026-05-04", "1|2026-05-05", "1"]
    assert [len(event_of(outcome)["offers"]) for outcome in outcomes[:2]] == [2, 2]
    assert isinstance(outcomes[2], Absorbed)


CHOOSE = "rows:\n  - duplicates: {%s}\n"
VERSIONS = [
    {"TITLE": "old", "ON": "2026-05-02"},
    {"ID": "2"},
    {"TITLE": "new", "ON": "2026-05-10"},
    {"TITLE": "odd", "ON": "2026-04-30"},
]
NEWEST = "keep: newest, by: {from: ON, do: [{date: '%Y-%m-%d'}]}"


@pytest.mark.parametrize(("keep", "title"), [("keep: first", "old"), ("keep: last", "odd"), (NEWEST, "new")])
def test_of_rows_with_one_key_the_first_the_last_or_the_newest_counts(keep: str, title: str, mapper: Mapper) -> None:
    outcomes = list(mapper(top=CHOOSE % keep).over(rows(*VERSIONS)))
    titles = {outcome.row_key: event_of(outcome)["title"] for outcome in outcomes if isinstance(outcome, MappedRow)}
    assert titles == {"1": title, "2": "Jazz"}
    assert [what for what, _ in told(outcomes)].count("duplicate") == 2


def test_where_the_newest_cannot_be_told_rows_stand_against_each_other(mapper: Mapper) -> None:
    choosing = mapper(top=CHOOSE % NEWEST)
    for on in ("2026-05-10", "soon", ""):
        outcomes = list(choosing.over(rows({"TITLE": "a", "ON": "2026-05-10"}, {"TITLE": "b", "ON": on})))
        assert [what for what, _ in told(outcomes)] == ["MappedRow", "MappedRow"]


def test_the_newest_row_counts_also_where_it_is_called_off_or_cannot_be_used(mapper: Mapper) -> None:
    choosing = mapper(top=CHOOSE % NEWEST + "  - cancelled: {column: STATE, equals: off}\n    because: postponed\n")
    old, new = {"ON": "2026-05-01"}, {"ON": "2026-05-10"}
    assert told(choosing.over(rows(old, new | {"STATE": "off"}))) == [("duplicate", "2"), ("postponed", "3")]
    assert told(choosing.over(rows(old, new | {"TITLE": ""}))) == [("duplicate", "2"), ("Rejection", "3")]


def test_a_row_that_is_called_off_is_left_out_under_its_key_and_its_label(mapper: Mapper) -> None:
    cancelling = mapper(top="rows:\n  - cancelled: {column: STATE, in: [cancelled, off]}\n")
    (outcome,) = cancelling.over(rows({"STATE": "off", "TITLE": ""}))
    assert outcome == Skipped(outcome.location, "cancelled", RowKey("1"), is_cancelled=True)


def test_each_event_of_a_row_that_is_called_off_is(build: Build) -> None:
    top = """rows:
  - cancelled: {column: STATE, equals: "off"}
  - recur: {from: {from: DAY, do: [{date: "%Y-%m-%d"}]}, until: "2026-05-05"}
"""
    mapping = build(top=top, event='startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}')
    mapper = compile_feed(mapping, Directory(), datetime(2026, 5, 1, tzinfo=UTC))
    outcomes = list(mapper.over(rows({"STATE": "off", "DAY": "2026-05-04"}, {"ID": "2", "STATE": "off", "DAY": "soon"})))
    assert [(outcome.row_key, outcome.is_cancelled) for outcome in outcomes if isinstance(outcome, Skipped)] == [
        ("1|2026-05-04", True),
        ("1|2026-05-05", True),
        ("2", True),
    ]
    assert outcomes[2].part.silence is not None


@pytest.mark.parametrize(
    ("severity", "kind", "status"),
    [("reject", "Rejection", None), ("warn", "MappedRow", "published"), ("draft", "MappedRow", "draft")],
)
def test_an_assertion_speaks_to_the_editor_and_weighs_what_the_file_says(
    severity: str, kind: str, status: str | None, mapper: Mapper
) -> None:
    top = f"""rows:
  - assert: {{any: [{{column: PRICE, is: missing}}, {{column: PRICE, less: 500}}]}}
    message: five hundred is a typing error
    severity: {severity}
"""
    demanding = mapper(top=top, event="status: published")
    fine, dear = demanding.over(rows({"PRICE": "12"}, {"PRICE": "1200"}))
    assert event_of(fine)["status"] == "published"
    assert type(dear).__name__ == kind
    reasons = dear.reasons if isinstance(dear, Rejection) else dear.warnings  # type: ignore[union-attr] # an event_of then
    assert [(reason.code, reason.column, reason.found, reason.hint) for reason in reasons] == [
        (ReasonCode.ASSERTION, "PRICE", "1200", "five hundred is a typing error")
    ]
    assert status is None or event_of(dear)["status"] == status


def test_an_event_that_lasts_too_long_is_rejected_or_left_out(build: Build) -> None:
    def outcome(on_longer: str) -> RowOutcome:
        window = f"rows:\n  - window: {{longest: 400d, on_longer: {on_longer}}}\n"
        mapping = build(top=window, event="endAt: {from: END}")
        return compile_feed(mapping, Directory(), datetime(2026, 5, 1, tzinfo=UTC))(rows({"END": "2036-07-01T18:00:00+01:00"})[0])

    left_out, rejected = if_unknown(outcome("skip")), outcome("reject")
    assert isinstance(left_out, Skipped)
    assert left_out.because == "longer than wanted"
    assert isinstance(rejected, Rejection)
    (reason,) = rejected.reasons
    assert (reason.code, reason.field, reason.column) == (ReasonCode.ASSERTION, "endAt", "END")
    assert (reason.found, reason.hint) == ("3653 days", "at most 400 days from start to end would be accepted")
