"""What a read stages: rows, rows of many events, rejections and what was taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import pytest
from sqlalchemy import select, update
from unit.state.books import CANCELLED, delivered, resolve
from unit.state.world import DESTINATION, FEED, World, answer, body_of, no_brakes, receipt, rejection, row, skipped

from mappings.delivery import Refusal
from mappings.outcome import Absorbed, Absorption, MappedRow, Part, RowLocation, RowOutcome, Silence, Skipped
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey, row_key
from state.database import writing
from state.enums import DriftKind, EntryState, ProblemKind
from state.errors import LeaseLostError
from state.ledger.accounts import ReadAccount, RowShares, StagePolicy
from state.ledger.choices import Instruction, Option
from state.ledger.gate import GateClosedError
from state.ledger.outbox import Settled
from state.ledger.reads import UnreadEvents
from state.ledger.stage import open_stage
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries
from state.tables import ENTRY, SCOPE

BOOK = FeedScope(DESTINATION, FEED)


def test_new_rows_are_pinned_under_their_key_and_counted(world: World) -> None:
    report = world.stage([row("a"), row("b")])
    assert report.account == ReadAccount(read=2, new=2)
    assert world.known("a").body == row("a").body
    assert world.known("a").key != world.known("b").key


def test_a_row_that_was_never_sent_takes_its_new_body_under_the_same_key(world: World) -> None:
    world.stage([row("a", "first")])
    key = world.known("a").key
    report = world.stage([row("a", "second")])
    assert (report.account.new, report.restaged) == (1, 1)
    assert (world.known("a").body, world.known("a").key) == (body_of("second"), key)


def test_a_delivered_row_that_changes_is_drift_until_it_changes_back(world: World) -> None:
    world.stage([row("a", "first", status="draft")])
    world.publish()
    for _ in range(2):
        assert world.stage([row("a", "second", status="draft")]).account.drifted == 1
        entry = world.known("a")
        assert (entry.body, entry.drift_body) == (body_of("first", status="draft"), body_of("second", status="draft"))
        assert entry.drift_kind is DriftKind.EDITED
    world.stage([row("a", "first")])
    assert world.known("a").drift_kind is DriftKind.TO_PUBLISH
    assert LedgerQueries(world.engine).status()[0].to_publish == 1
    assert world.stage([row("a", "first", status="draft")]).account.unchanged == 1
    assert (world.known("a").drift_body, world.known("a").state) == (None, EntryState.DELIVERED)


def test_a_refused_row_is_owed_again_only_when_it_changes(world: World) -> None:
    world.stage([row("a", "first")])
    world.publish(Refusal(answer(400, "req-7")))
    assert world.stage([row("a", "first")]).account == ReadAccount(read=1, still_refused=1)
    assert world.known("a").state is EntryState.REFUSED
    assert world.stage([row("a", "second")]).account.new == 1
    (intent,) = world.outbox().settle_and_claim([], 5)
    assert (intent.body, intent.refused_request_id, intent.is_unanswered) == (body_of("second"), "req-7", False)


def test_identical_rows_of_one_read_are_one_row(world: World) -> None:
    report = world.stage([row("a"), row("a"), row("b")], [row("a")])
    assert report.account == ReadAccount(read=4, new=2, duplicate=2)


@pytest.mark.parametrize("is_in_one_chunk", [True, False])
def test_two_different_rows_of_one_key_are_both_rejected_until_a_person_says_which(world: World, is_in_one_chunk: bool) -> None:
    rows = [row("a", "one", place="agenda.csv:2"), row("a", "two", place="agenda.csv:9"), row("b")]
    report = world.stage(rows) if is_in_one_chunk else world.stage(*([each] for each in rows))
    assert report.account == ReadAccount(read=3, rejected=2, new=1)
    assert world.states() == {"b": "pending"}
    problems = LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED)
    assert {problem.origin: problem.reasons[0].hint for problem in problems} == {
        "agenda.csv:2": "another one is at agenda.csv:9",
        "agenda.csv:9": "the first one is at agenda.csv:2",
    }


def test_a_third_row_of_a_disputed_key_is_rejected_too_and_what_was_staged_and_not_sent_is_withdrawn(world: World) -> None:
    world.stage([row("a", "one")])
    report = world.stage([row("a", "one")], [row("a", "two")], [row("a", "one")])
    assert (report.account, world.entry("a")) == (ReadAccount(read=3, rejected=3), None)


def test_a_delivered_row_stays_delivered_when_a_second_row_claims_its_key(world: World) -> None:
    world.stage([row("a", "one")])
    world.publish()
    report = world.stage([row("a", "one"), row("a", "two")])
    assert report.account == ReadAccount(read=2, unchanged=1, rejected=1)
    assert (world.known("a").state, world.known("a").drift_body) == (EntryState.DELIVERED, None)


def test_a_copy_of_a_known_event_under_a_new_key_is_held_and_listed(world: World) -> None:
    world.stage([row("old", twin="jazz")])
    world.publish()
    report = world.stage([row("old", twin="jazz"), row("new", twin="jazz", place="agenda.csv:7")])
    assert (report.account.held, report.held[0].twin_key) == (1, "old")
    assert (world.known("new").state, world.known("new").candidate_id) == (EntryState.HELD, world.known("old").entry_id)
    (problem,) = LedgerQueries(world.engine).problems(BOOK, ProblemKind.HELD)
    assert (problem.origin, problem.reasons[0].code) == ("agenda.csv:7", ReasonCode.TWIN)


@pytest.mark.parametrize(("holds_copies", "new", "held"), [(True, 1, 1), (False, 2, 0)])
def test_the_second_of_two_copies_in_one_read_is_held_unless_a_person_lets_copies_through(
    world: World, holds_copies: bool, new: int, held: int
) -> None:
    report = world.stage([row("a", twin="jazz"), row("b", twin="jazz")], policy=StagePolicy(holds_copies=holds_copies))
    assert report.account == ReadAccount(read=2, new=new, held=held)


def test_a_copy_of_a_refused_row_is_not_held_for_nothing_was_created(world: World) -> None:
    world.stage([row("a", twin="jazz")])
    world.publish(Refusal(answer(400)))
    assert world.stage([row("b", twin="jazz")]).account.new == 1


def test_rejected_and_skipped_rows_are_counted_with_their_reasons(world: World) -> None:
    report = world.stage([rejection("x"), rejection("", place="agenda.csv:100"), skipped(), row("a")])
    assert report.account == ReadAccount(read=4, rejected=2, filtered=1, new=1)
    assert (report.skipped, report.reasons[0].code, report.reasons[0].count) == ({"online only": 1}, ReasonCode.REQUIRED, 2)
    problems = LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED)
    assert [problem.cells for problem in problems] == [{"REF": "x"}, {"REF": ""}]


def test_a_row_outside_the_window_is_left_out_where_nothing_was_sent_and_compared_where_it_was_delivered(world: World) -> None:
    world.stage([row("sent")])
    world.publish()
    over = [replace(one, outside="already over") for one in (row("sent"), row("new"))]
    report = world.stage(over)
    assert (report.account.unchanged, report.account.filtered, report.skipped) == (1, 1, {"already over": 1})
    assert report.account.imbalance() == 0
    assert world.entry("new") is None
    changed = replace(row("sent", "Another title"), outside="already over")
    account = world.stage([changed], policy=StagePolicy(on_change="create_draft_again")).account
    assert (account.drifted, account.new) == (1, 0), "listed, and not drafted again"


LONG = "é" * 1_000


def test_a_new_row_whose_key_is_longer_than_an_index_holds_is_rejected_and_the_others_go_on(world: World) -> None:
    report = world.stage([row(LONG), row(f"{LONG}x"), row("short")])
    assert (report.account.new, report.account.rejected) == (2, 1)
    assert report.account.imbalance() == 0
    (rejected,) = report.rejections
    assert [reason.code for reason in rejected.reasons] == [ReasonCode.BAD_KEY]
    assert "at most 2,000 bytes would be accepted, and this one has 2,001" in rejected.reasons[0].hint
    assert world.stage([row(LONG), row(f"{LONG}x"), row("short")]).account.rejected == 1


def test_a_long_key_that_the_ledger_holds_stays_usable(world: World) -> None:
    world.stage([row("1")])
    world.publish()
    longer = row(f"{LONG}{LONG}")
    with writing(world.engine) as connection:
        connection.execute(update(ENTRY).values(row_key=longer.row_key, fingerprint=longer.fingerprint))
    account = world.stage([longer]).account
    assert (account.unchanged, account.rejected) == (1, 0)


def test_a_problem_that_stays_the_same_is_kept_once_and_seen_again(world: World) -> None:
    world.stage([rejection("x")])
    world.clock.turn(hours=1)
    world.stage([rejection("x")])
    (problem,) = LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED)
    assert (problem.run_id, (problem.seen_at - problem.first_seen_at).total_seconds()) == ("run-2", 3601)
    assert LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED, run_id="run-1") == ()


def test_cells_that_no_database_takes_as_text_are_kept_legibly(world: World) -> None:
    reason = Reason(ReasonCode.UNDECODABLE, "title", "TITLE", "\udce9\x00", "")
    bad = rejection("k\udce9\x00")
    world.stage([type(bad)(bad.location, bad.row_key, (reason,), {"TITLE": "\udce9\x00"})])
    (problem,) = LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED)
    assert (problem.row_key, problem.cells) == ("k\\udce9\\x00", {"TITLE": "\udce9\x00"})


def test_warnings_are_counted_every_time_and_listed(world: World) -> None:
    warning = Reason(ReasonCode.TOO_LONG, "title", "TITLE", "...", "")
    for _ in range(3):
        assert world.stage([row("a", warnings=(warning,))]).warnings == 1
        assert len(LedgerQueries(world.engine).problems(BOOK, ProblemKind.WARNING)) == 1
        world.publish()


@pytest.mark.parametrize("now_unusable", [rejection("a"), skipped("a")])
def test_a_partial_read_withdraws_an_unsent_row_that_is_unusable_now_and_leaves_alone_what_it_leaves_out(
    world: World, now_unusable: RowOutcome
) -> None:
    world.stage([row("a"), row("b")])
    report = world.stage([now_unusable], is_whole=False)
    assert (report.vanished, report.withdrawn) == (0, 1)
    assert world.states() == {"b": "pending"}


def test_a_drifted_row_has_not_vanished_and_is_not_read_twice(world: World) -> None:
    world.stage([row("a", "first")])
    world.publish()
    report = world.stage([row("a", "second")], [row("a", "second")])
    assert (report.account, report.vanished) == (ReadAccount(read=2, drifted=1, duplicate=1), 0)


@pytest.mark.parametrize("present", [rejection("a"), skipped("a")])
def test_a_delivered_row_that_is_now_rejected_or_skipped_has_not_vanished(world: World, present: RowOutcome) -> None:
    world.stage([row("a")])
    world.publish()
    assert world.stage([present]).vanished == 0
    assert world.known("a").state is EntryState.DELIVERED


@pytest.mark.parametrize("outcomes", [[], [rejection("a")], [skipped("a")], [replace(row("a"), outside="already over")]])
def test_a_row_that_was_never_sent_and_is_no_longer_asked_for_is_withdrawn(world: World, outcomes: list[RowOutcome]) -> None:
    world.stage([row("a"), row("b")])
    report = world.stage([*outcomes, row("b")])
    assert (report.withdrawn, report.vanished) == (1, 0)
    assert world.states() == {"b": "pending"}


def test_a_corrected_row_that_is_withdrawn_goes_back_to_refused_and_keeps_its_past(world: World) -> None:
    world.stage([row("a", "first")])
    world.publish(Refusal(answer(400, "req-7")))
    world.stage([row("a", "second")])
    world.stage([row("b")])
    assert world.known("a").state is EntryState.REFUSED
    world.stage([row("a", "second"), row("b")])
    intents = world.outbox().settle_and_claim([], 5)
    assert [intent.refused_request_id for intent in intents if intent.row_key == "a"] == ["req-7"]


def test_what_is_compared_next_time_is_the_last_read_that_passed_or_was_accepted(world: World) -> None:
    world.stage([row("a"), row("b")], stamp="v1")
    assert world.stage([], brakes=["shrink"], stamp="v2").last_whole_read == 2
    assert (world.stage([], brakes=["shrink"]).last_whole_read, _stamp(world)) == (2, "v1")
    world.ledger.open_gate("ana")
    assert world.stage([]).last_whole_read == 0


def _stamp(world: World) -> str:
    with world.engine.connect() as connection:
        return str(connection.execute(select(SCOPE.c.stamp)).scalar_one())


def test_a_stage_that_was_cut_short_lets_nothing_out(world: World) -> None:
    stage = open_stage(world.ledger.fence(world.run(), world.lease.token), is_whole=True)
    stage.write([row("a")])
    world.crash()
    assert not world.ledger.gate().is_open
    with pytest.raises(GateClosedError, match="cut short"):
        world.outbox()
    with pytest.raises(GateClosedError, match="cut short"):
        world.ledger.open_gate("ana")
    assert world.stage([row("a")]).account == ReadAccount(read=1, unchanged=1)
    assert world.publish().carried_over == 1


def test_a_run_that_lost_its_lease_writes_nothing_more(world: World) -> None:
    stage = open_stage(world.ledger.fence(world.run(), world.lease.token), is_whole=True)
    world.clock.turn(minutes=2)
    world.lease = world.ledger.acquire_lease("another")
    with pytest.raises(LeaseLostError):
        stage.write([row("a")])
    with pytest.raises(LeaseLostError):
        stage.close(no_brakes)
    assert world.states() == {}


def test_the_place_of_a_row_that_waits_for_a_person_follows_the_row(world: World) -> None:
    world.stage([row("a", place="agenda.csv:2"), row("b", place="agenda.csv:3")])
    outbox = world.outbox()
    first, second = outbox.settle_and_claim([], 2)
    outbox.settle_and_claim([Settled(first, Refusal(answer(400))), Settled(second, receipt(second))], 0)
    world.stage([row("a", place="agenda.csv:3"), row("b", place="agenda.csv:4")])
    assert (world.known("a").origin, world.known("b").origin) == ("agenda.csv:3", "agenda.csv:3")


def former_row_digest(mapping: bytes, cells: Sequence[str]) -> bytes:
    """The digest that versions before 0.2 kept in the ledger."""
    return blake2b("\x1f".join(cells).encode(), digest_size=16, key=mapping).digest()


def test_a_ledger_with_digests_of_an_earlier_version_takes_the_new_ones_and_nothing_is_sent(world: World) -> None:
    former = [replace(row(key), row_digest=former_row_digest(b"mapping", (key, "published"))) for key in ("a", "b")]
    assert former[0].row_digest != row("a").row_digest
    world.stage(former)
    world.publish()
    report = world.stage([row("a"), row("b")])
    assert report.account == ReadAccount(read=2, unchanged=2)
    assert not world.outbox().settle_and_claim([], 1)
    with world.engine.connect() as connection:
        digests = set(connection.execute(select(ENTRY.c.row_digest)).scalars())
    assert digests == {row("a").row_digest, row("b").row_digest}


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
