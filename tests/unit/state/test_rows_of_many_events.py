from __future__ import annotations

from dataclasses import replace

import pytest
from unit.state.books import CANCELLED, delivered, resolve
from unit.state.world import World, rejection, row, skipped

from mappings.outcome import Absorbed, Absorption, MappedRow, Part, RowLocation, Silence, Skipped
from mappings.row_key import RowKey, row_key
from state.enums import DriftKind, EntryState
from state.ledger.accounts import ReadAccount, RowShares, StagePolicy
from state.ledger.choices import Instruction, Option
from state.ledger.reads import UnreadEvents

THE_WEEK = StagePolicy(days=("2026-03-02", "2026-03-31"))
OF_ROWS = StagePolicy(days=("2026-03-02", "2026-03-31"), row_parts=1)


def events(*keys: str, silence: Silence | None = None) -> list[MappedRow]:
    """The events of one row."""
    parts = [Part(len(keys), place > 0, None if place else silence) for place in range(len(keys))]
    return [replace(row(key), part=part) for key, part in zip(keys, parts, strict=True)]


def is_vanished(world: World, key: str) -> bool:
    return world.known(key).vanished_at is not None


def test_events_that_rows_give_beyond_one_and_rows_that_went_into_others_balance_the_account(world: World) -> None:
    grouped = [Absorbed(RowLocation("agenda.csv:8"), RowKey("b"), into) for into in Absorption]
    report = world.stage([*events("a|1", "a|2", "a|3"), row("b"), *grouped, skipped()])
    assert report.account == ReadAccount(read=5, expanded=2, filtered=1, duplicate=1, grouped=1, new=4)
    assert report.account.wanted == 5
    assert world.publish().delivered == 4


def test_a_row_counts_as_one_for_the_share_of_the_rejected_however_many_events_it_gives(world: World) -> None:
    first, *others = events("a|1", "a|2", "a|3", "a|4")
    bad = replace(rejection("a|4"), part=others[-1].part)
    report = world.stage([first, *others[:2], bad, rejection("b")])
    assert report.account.rejected == 2
    assert report.rows == RowShares(wanted=2.0, rejected=1.25)
    assert world.stage([row("b")]).rows is None


def test_a_day_that_is_over_or_out_of_reach_has_not_vanished_and_one_that_was_taken_away_has(world: World) -> None:
    days = [f"a|2026-0{month}-15" for month in (2, 3, 4)]
    world.stage(events(*days), policy=THE_WEEK)
    world.publish()
    world.stage(events("a|2026-03-16"), policy=THE_WEEK)
    assert [is_vanished(world, day) for day in days] == [False, True, False]


def test_the_events_of_a_row_that_cannot_be_used_have_not_vanished(world: World) -> None:
    world.stage([*events("a|2026-03-15", "a|x"), *events("b|2026-03-15"), *events("a\\|b|2026-03-15")], policy=THE_WEEK)
    world.publish()
    unusable = replace(rejection("a"), part=Part(silence=Silence(RowKey("a"))))
    report = world.stage([unusable], policy=THE_WEEK)
    assert report.vanished == 2
    assert not is_vanished(world, "a|2026-03-15")
    assert not is_vanished(world, "a|x")
    assert is_vanished(world, "b|2026-03-15")
    assert is_vanished(world, "a\\|b|2026-03-15")


def test_all_events_of_a_row_that_a_rule_now_leaves_out_have_vanished_by_that_rule(world: World) -> None:
    world.stage([*events("a|2026-03-15", "a|2026-04-15", "a|x"), *events("b|2026-03-15")], policy=OF_ROWS)
    world.publish()
    left_out = replace(skipped("a", "online only"), rule=2, part=Part(silence=Silence(RowKey("a"))))
    report = world.stage([left_out, *events("b|2026-03-15")], policy=OF_ROWS)
    assert report.vanished == 2
    assert [world.known(key).vanished_by for key in ("a|2026-03-15", "a|x")] == ["rule 2: online only"] * 2
    assert not is_vanished(world, "a|2026-04-15"), "no read looks at a day beyond the horizon"
    assert not is_vanished(world, "b|2026-03-15")


def test_days_beyond_what_a_row_may_give_have_not_vanished(world: World) -> None:
    world.stage(events("a|2026-03-15", "a|2026-03-22"), policy=THE_WEEK)
    world.publish()
    world.stage(events("a|2026-03-08", silence=Silence(RowKey("a"), after="2026-03-15")), policy=THE_WEEK)
    assert is_vanished(world, "a|2026-03-15")
    assert not is_vanished(world, "a|2026-03-22")


@pytest.mark.parametrize("parts", [("a", "2026-03-15"), ("a|b", "c\\", "2026-03-15"), ("", "x|y", "2026-03-15")])
def test_a_bar_inside_a_part_of_the_key_does_not_end_its_stem(parts: tuple[str, ...]) -> None:
    key = row_key(parts)
    for count in range(1, len(parts)):
        unspoken = UnreadEvents(None)
        unspoken.note(Skipped(RowLocation("x"), "left out", part=Part(silence=Silence(row_key(parts[:count])))))
        assert unspoken.covers(key)
        assert not unspoken.covers(row_key(("other", *parts[1:])))


def test_a_row_that_is_cancelled_before_it_was_sent_is_left_out_and_withdrawn(world: World) -> None:
    assert world.stage([CANCELLED]).skipped == {"cancelled": 1}
    world.stage([row("a")])
    report = world.stage([CANCELLED])
    assert (report.account, report.withdrawn) == (ReadAccount(read=1, filtered=1), 1)
    assert world.entry("a") is None


def test_a_delivered_row_that_is_cancelled_is_drift_until_it_is_back(world: World) -> None:
    delivered(world, row("a", "first"))
    for _ in range(2):
        report = world.stage([CANCELLED])
        assert (report.account, report.vanished) == (ReadAccount(read=1, drifted=1), 0)
        record = world.known("a")
        assert (record.drift_kind, record.drift_body, record.origin) == (DriftKind.CANCELLED, None, "agenda.csv:7")
    assert world.stage([row("a", "second")]).account.drifted == 1
    assert world.known("a").drift_kind is DriftKind.EDITED
    assert world.stage([row("a", "first")]).account.unchanged == 1
    assert (world.known("a").drift_kind, world.known("a").state) == (None, EntryState.DELIVERED)


def test_a_called_off_event_that_a_person_has_seen_to_is_unchanged(world: World) -> None:
    delivered(world, row("a"))
    world.stage([CANCELLED])
    resolve(world, "a", Instruction(Option.IGNORE))
    assert world.stage([CANCELLED]).account == ReadAccount(read=1, unchanged=1)
    assert world.stage([row("a", "second")]).account.drifted == 1
    assert world.stage([CANCELLED]).account.drifted == 1


def test_a_row_that_may_be_out_is_drift_when_it_is_cancelled(world: World) -> None:
    world.stage([row("a")])
    world.outbox().settle_and_claim([], 1)
    assert world.stage([CANCELLED]).account.drifted == 1
    assert world.known("a").drift_kind is DriftKind.CANCELLED
