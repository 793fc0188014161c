"""What a read stages: rows, changes, rows that are gone, left out or cancelled, rows of many events, and likely copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest
from integration.waiting import DEADLINE_S, until
from ledger_tables import call_tables_empty, count_marks, forget_all_marks, gather_no_statistics, rename_row
from postgres import Postgres
from sqlalchemy import create_engine, text
from sqlalchemy import event as sql_event
from sqlalchemy.pool import NullPool
from unit.state.books import BOOK, CANCELLED, OVER, TO_COME, beside, delivered, event
from unit.state.story import picture, play, stories, told
from unit.state.world import World, answer, no_brakes, receipt, rejection, row, skipped

from mappings.delivery import Refusal
from mappings.outcome import Absorbed, Absorption, MappedRow, Part, RowLocation, RowOutcome, Silence, Skipped
from mappings.reasons import ReasonCode
from mappings.row_key import FeedName, RowKey, row_key
from state.enums import ProblemKind, Waiting
from state.ledger.accounts import ReadAccount, RowShares, StagePolicy, StageReport
from state.ledger.gate import GateClosedError
from state.ledger.outbox import Settled
from state.ledger.stage import Stage, open_stage
from state.queries import LedgerQueries, RowFilter


@stories("""
a row that was never sent is pinned under its key, and takes its new words
    a b => new 2 => a pending, b pending
    a:first | a:second => new 1, restaged 1 => a pending second
identical rows are one row
    a a b / a => duplicate 2, new 2 => a pending, b pending
of a key that two rows dispute nothing is sent, and what was staged is withdrawn
    a:one | a:one / a:two / a:one => rejected 3 =>
    a:one | sent | a:one a:two => rejected 1, unchanged 1 => a delivered one
    a:one | a:two / a:x => rejected 2 =>
a row that looks like a known event, or like a row before it, is held unless a person lets copies through
    old~jazz | sent | old~jazz new~jazz => held 1, unchanged 1 => old delivered, new held like old
    a~jazz b~jazz => held 1, new 1 => a pending, b held like a
    copies a~jazz b~jazz => new 2 => a pending, b pending
    a~jazz | refused | b~jazz => new 1 => a refused over, b pending
    old~jazz | sent | old~jazz new~jazz | --release new | old~jazz new~jazz => unchanged 2 => old delivered, new pending release
a change of a delivered row is drift until it changes back
    a:first/draft | sent | a:second/draft | a:second/draft => drifted 1 => a delivered draft first but edited draft second
    a:first/draft | sent | a:second/draft | a:first => drifted 1 => a delivered draft first but to_publish first
    a:first/draft | sent | a:second/draft | a:first/draft => unchanged 1 => a delivered draft first
    a:first | sent | a:second / a:second => duplicate 1, drifted 1 => a delivered first but edited second
another body takes the place of the one sent only where nothing was created
    a:first | refused | a:first => still_refused 1 => a refused first
    a:first | refused | a:second => new 1, restaged 1 => a pending second
    a:first | blocked | a:second => new 1, restaged 1 => a pending second
    a:first | blocked unanswered | a:second => drifted 1 => a blocked first but edited second
    a:first | uncertain | a:second => drifted 1 => a uncertain first but edited second
    a:first | conflict | a:first => unchanged 1 => a conflict first
    a:first | conflict | a:second => drifted 1 => a conflict first but edited second
    a:first | unconfirmed | a:second => drifted 1 => a delivered_unconfirmed first but edited second
a row outside the window is left out where nothing was sent, and else compared
    a | sent | a> b> => filtered 1, unchanged 1 => a delivered
    a | sent | a>:second => drifted 1 => a delivered but edited second
a row that was never sent and is no longer asked for is withdrawn
    a b | b => unchanged 1, withdrawn 1 => b pending
    a b | !a b => rejected 1, unchanged 1, withdrawn 1 => b pending
    a b | -a b => filtered 1, unchanged 1, withdrawn 1 => b pending
    a b | a> b => filtered 1, unchanged 1, withdrawn 1 => b pending
    a b | part !a => rejected 1, withdrawn 1 => b pending
    a b | part -a => filtered 1, withdrawn 1 => b pending
    a:first | refused | a:second | b => new 1, withdrawn 1 => a refused second, b pending
a delivered row that is rejected or left out has not vanished
    a | sent | !a => rejected 1 => a delivered
    a | sent | -a => filtered 1 => a delivered
a row that is cancelled is left out, or drift where it may have been sent
    #a => filtered 1 =>
    a | #a => filtered 1, withdrawn 1 =>
    a | claimed | #a => drifted 1 => a pending but cancelled
    a:first | sent | #a | #a => drifted 1 => a delivered first but cancelled
    a:first | sent | #a | a:second => drifted 1 => a delivered first but edited second
    a:first | sent | #a | a:second | a:first => unchanged 1 => a delivered first
    a | sent | nothing | --removed a | a | #a => unchanged 1 => a delivered removed removed
a cancelled row that a person has ignored is listed once its source says something else
    a | sent | #a | --ignore a | #a => unchanged 1 => a delivered but cancelled ignore
    a | sent | #a | --ignore a | a:second => drifted 1 => a delivered but edited second
    a | sent | #a | --ignore a | a:second | #a => drifted 1 => a delivered but cancelled ignore
only a row that may have an event vanishes, and once
    a b | sent | b => unchanged 1, vanished 1 => a delivered gone, b delivered
    a b | sent | b | b => unchanged 1 => a delivered gone, b delivered
    a b | conflict | b => unchanged 1, vanished 1 => a conflict gone, b delivered
    a b | uncertain | b => unchanged 1, vanished 1 => a uncertain gone, b delivered
    a b | blocked unanswered | b => unchanged 1, vanished 1 => a blocked gone, b delivered
    a b | blocked | b => unchanged 1 => a blocked over, b delivered
    a b | refused | b => unchanged 1 => a refused over, b delivered
a row that a rule leaves out has vanished by that rule, unless rows are picked by hand
    a b | sent | ?a b => filtered 1, unchanged 1, vanished 1 => a delivered gone rule 2: online only, b delivered
    a b | sent | ?a b | ?a b => filtered 1, unchanged 1 => a delivered gone rule 2: online only, b delivered
    a b | sent | ?a b | a b => unchanged 2 => a delivered, b delivered
    a@over b | sent | ?a b => filtered 1, unchanged 1, past 1 => a delivered over, b delivered
    a b | sent | chosen ?a => filtered 1 => a delivered, b delivered
a row whose delivered event is over is over, and is counted once
    a@over b | sent | b | b => unchanged 1 => a delivered over, b delivered
    a@over b | sent | b | a@over b => unchanged 2 => a delivered, b delivered
    a@over b | sent | b | a@over b | b => unchanged 1, past 1 => a delivered over, b delivered
    a@over b | sent | a@to-come b | b => unchanged 1, past 1 => a delivered over, b delivered
an ignored row is listed again when it vanishes or changes
    a b | conflict | --ignore a | b => unchanged 1, vanished 1 => a conflict gone, b delivered
    a:first | conflict | --ignore a | a:first => unchanged 1 => a conflict first ignore
    a:first | conflict | --ignore a | a:second => drifted 1 => a conflict first but edited second
    a:first | uncertain | --ignore a | a:second => drifted 1 => a uncertain first but edited second
    a:first | sent | a:second | nothing | --ignore a | a:second => drifted 1 => a delivered first but edited second
    a:first | sent | a:second | nothing | --ignore a | a:third => drifted 1 => a delivered first but edited third
a row that comes back after its event was removed has returned, and is on no list when it is gone again
    a | sent | nothing | --removed a | a | a => drifted 1 => a delivered but returned removed removed
    a:first | sent | nothing | --removed a | a:second => drifted 1 => a delivered first but returned second removed removed
    a b | sent | b | --removed a | a b | b => unchanged 1 => a delivered removed removed, b delivered
a change that the feed ignores is counted once and not listed, until the feed reports changes
    a:first b | sent | ignoring a:second b => unchanged 1, drifted 1 => a delivered first, b delivered
    a:first b | sent | ignoring a:second a:second b => duplicate 1, unchanged 1, drifted 1 => a delivered first, b delivered
    a:first | sent | a:second | ignoring a:second | ignoring a:second => drifted 1 => a delivered first
    a:first | sent | a:second | ignoring a:second | a:second => drifted 1 => a delivered first but edited second
a row that is gone is neither marked nor listed, until the feed reports it
    a b | sent | ignoring a => unchanged 1 => a delivered, b delivered
    a b | sent | ignoring a | a => unchanged 1, vanished 1 => a delivered, b delivered gone
a run of drafts pins drafts, and takes what is delivered for unchanged
    a | sent | drafts a b b => duplicate 1, unchanged 1, new 1 => a delivered, b pending draft
    a | drafts a => new 1, restaged 1 => a pending draft
rows behind a brake are as new to the next read as they were
    a | sent | braked a b => unchanged 1, new 1 => a delivered, b pending
    a | sent | braked a b | braked a b => unchanged 2, waiting 1 => a delivered, b pending
    a | sent | braked a b | a b => unchanged 2, waiting 1 => a delivered, b pending
    a | sent | braked a b | a b | a b => unchanged 2 => a delivered, b pending
    braked accepting a b | braked a b => unchanged 2, waiting 2 => a pending, b pending
what a stopped read misses is marked only where a person accepts the brake or the next read passes
    a b | sent | braked a | braked a => unchanged 1, vanished 1 => a delivered, b delivered
    a b | sent | braked a | braked accepting a => unchanged 1, vanished 1 => a delivered, b delivered gone
    a@over b | sent | braked b => unchanged 1, past 1 => a delivered, b delivered
    a@over b | sent | braked b | b => unchanged 1, past 1 => a delivered over, b delivered
a row that waits unsent is held once what it says now looks like a known event, as one that a brake stopped does
    a~z b | sent | braked n:q~q b | n:x~z b => held 1, unchanged 1, vanished 1 => a delivered gone, b delivered, n held x like a
    a~z b | sent | a~z b n:q~q | n:x~z b => held 1, unchanged 1, vanished 1 => a delivered gone, b delivered, n held x like a
    a~z | sent | a~z n:q~q | a~z n:x~z => held 1, unchanged 1 => a delivered, n held x like a
    a~z | sent | a~z n:q~q | a~z n:x~x => unchanged 1, new 1, restaged 1 => a delivered, n pending x
    a~z n:q~q | a~z n:x~z => held 1, unchanged 1 => a pending, n held x like a
    a~z | sent | a~z n~z | --release n | a~z n:x~z => unchanged 1, new 1, restaged 1 => a delivered, n pending x release
a held row is held for the event that it looks like now
    o:j~o p:j~p|sent|n:j~n m:j~m|n:k~p m:l~o => held 2 => o delivered j gone, p delivered j gone, n held k like p, m held l like o
a held row is sent where the row that it resembled is still there and they differ now
    a~z b | sent | a~z n~z b | a~z n:x~x b => unchanged 2, new 1 => a delivered, b delivered, n pending x
    a~z | sent | a~z n~z | a~z n:x~x | sent | a~z n:x~x => unchanged 2 => a delivered, n delivered x
a held row stays held where the row that it resembled is gone, or a person has ignored it
    a~z b | sent | a~z n~z b | n:x~x b => held 1, unchanged 1, vanished 1 => a delivered gone, b delivered, n held x like a
    a~z | sent | a~z n~z | --ignore n | a~z n:x~x => held 1, unchanged 1, ignored 1 => a delivered, n held x like a ignore
of two held rows that nothing resembles any more but each other one is sent
    a~z | sent | a~z m~z n~z | a~z m:x~x n:x~x => held 1, unchanged 1, new 1 => a delivered, m pending x, n held x like m
a held row is sent once the row that it resembles has no event
    a~z b | a~z n~z b | refused | a~z n~z b => unchanged 1, new 1, still_refused 1 => a refused, b delivered, n pending
    a~z n~z | sent | nothing | --removed a | a~z n~z => drifted 1, new 1 => a delivered but returned removed removed, n pending
a held row that its source does not have is forgotten unless a person has decided on it
    a~z | sent | a~z n~z | a~z => unchanged 1 => a delivered
    a~z | sent | a~z n~z | a~z !n => rejected 1, unchanged 1 => a delivered
    a~z | sent | a~z n~z | --ignore n | a~z => unchanged 1 => a delivered, n held like a ignore
a new row that is like a vanished one is held whatever it says now, until a person decides
    o:j~o b | sent | n:j~n b => held 1, unchanged 1, vanished 1 => o delivered j gone, b delivered, n held j like o
    o:j~o b | sent | b | n:j~n b => held 1, unchanged 1 => o delivered j gone, b delivered, n held j like o
    o:j~o b | sent | b | part n:j~n => held 1 => o delivered j gone, b delivered, n held j like o
    o:j~o b | sent | part b n:j~n => unchanged 1, new 1 => o delivered j, b delivered, n pending j
    o:j~o b | sent | o:j~o n:j~n b => unchanged 2, new 1 => o delivered j, b delivered, n pending j
    o:j~o b | sent | n:j~n b | o:j~o n:j~n b => unchanged 2, new 1 => o delivered j, b delivered, n pending j
    o:j~o | sent | n:j~n | --release n | n:j~n => unchanged 1 => o delivered j gone, n pending j release
    o:j~o | sent | n:j~n | --same-as n | n:j~n => unchanged 1 => o superseded key 1 gone like n, n delivered as 1001 j same_as
    o:j~o | sent | ignoring n:j~n => new 1 => o delivered j, n pending j
two rows that are like one vanished row are both held, and those of which it has a duplicate are not
    o:j~o | sent | n:j~n m:j~m => held 2, vanished 1 => o delivered j gone, n held j like o, m held j like o
    o:j~o | sent | n:j~o m:j~m => held 1, new 1, vanished 1 => o delivered j gone, n held j like o, m pending j
    o:j~o p:j~p|sent|n:j~n m:j~m => held 2, vanished 2 => o delivered j gone, p delivered j gone, n held j like o, m held j like p
two rows that claim one held key are not sent
    a~z | sent | a~z n~z | a~z n:x~x n:y~y => rejected 1, held 1, unchanged 1 => a delivered, n held x like a
an entry is found by what it looks like now
    a:x~x | a:y~y | a:y~y b~y => held 1, unchanged 1 => a pending y, b held like a
    a:x~x | a:y~y | a:y~y c~x => unchanged 1, new 1 => a pending y, c pending
""")
def test_a_read_leaves_the_ledger_as_it_should(world: World, story: str, numbers: str, ledger: str) -> None:
    report = play(world, story)
    assert (told(report), picture(world)) == (numbers, ledger)


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


def test_rows_that_a_limit_left_behind_an_open_gate_are_known_and_those_behind_a_brake_are_not(world: World) -> None:
    assert play(world, "a | braked a b | a b").known_before == 1
    world.outbox(limit=1)
    assert play(world, "a b").known_before == 2


def test_a_partial_read_adds_its_brakes_to_those_that_stand(world: World) -> None:
    world.stage([row("a"), row("b")], brakes=["rejected"])
    play(world, "part braked a")
    assert world.ledger.gate().brakes == ("rejected", "new")


LONG = "é" * 1_000


def test_a_new_row_whose_key_is_longer_than_an_index_holds_is_rejected_and_the_others_go_on(world: World) -> None:
    report = world.stage([row(LONG), row(f"{LONG}x"), row("short")])
    assert (report.account.new, report.account.rejected) == (2, 1)
    (rejected,) = report.rejections
    assert [reason.code for reason in rejected.reasons] == [ReasonCode.BAD_KEY]
    assert "at most 2,000 bytes, and this one has 2,001" in rejected.reasons[0].hint
    longer = row(f"{LONG}{LONG}")
    rename_row(world.engine, LONG, longer.row_key, longer.fingerprint)
    account = world.stage([longer, row(f"{LONG}x"), row("short")]).account
    assert (account.unchanged, account.rejected) == (2, 1), "a long key that the ledger holds stays usable"


def test_a_problem_that_stays_the_same_is_kept_once_and_seen_again(world: World) -> None:
    world.stage([rejection("x")])
    world.clock.turn(hours=1)
    world.stage([rejection("x")])
    (problem,) = LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED)
    assert (problem.run_id, (problem.seen_at - problem.first_seen_at).total_seconds()) == ("run-2", 3601)
    assert LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED, run_id="run-1") == ()


def test_what_is_compared_next_time_is_the_last_read_that_passed_or_was_accepted(world: World) -> None:
    world.stage([row("a"), row("b")], stamp="v1")
    assert world.stage([], brakes=["shrink"], stamp="v2").last_whole_read == 2
    assert world.stage([], brakes=["shrink"]).last_whole_read == 2
    assert world.ledger.stamp() == "v1"
    world.ledger.open_gate("ana")
    assert world.stage([]).last_whole_read == 0


def test_a_stage_that_was_cut_short_lets_nothing_out(world: World) -> None:
    stage = open_stage(world.ledger.fence(world.run(), world.lease.token), is_whole=True)
    stage.write([row("a")])
    world.crash()
    assert not world.ledger.gate().is_open
    for go_on in (world.outbox, lambda: world.ledger.open_gate("ana")):
        with pytest.raises(GateClosedError, match="cut short"):
            go_on()
    assert world.stage([row("a")]).account == ReadAccount(read=1, unchanged=1)
    assert world.publish().carried_over == 1


def test_the_place_of_a_row_that_waits_for_a_person_follows_the_row(world: World) -> None:
    world.stage([row("a", place="agenda.csv:2"), row("b", place="agenda.csv:3")])
    outbox = world.outbox()
    first, second = outbox.settle_and_claim([], 2)
    outbox.settle_and_claim([Settled(first, receipt(first)), Settled(second, Refusal(answer(400)))], 0)
    for there, origins in (([row("a", place="agenda.csv:3"), row("b", place="agenda.csv:4")], "24"), ([CANCELLED], "74")):
        world.stage(there)
        assert [world.known(key).origin[-1] for key in "ab"] == [*origins], "delivered rows may move about freely"


@pytest.mark.parametrize(
    ("start", "end", "vanished"),
    [(OVER, "", 0), (TO_COME, "", 1), (OVER, TO_COME, 1), (OVER, OVER, 0), ("2026-02-01T20:00:00Z", "", 0)],
)
def test_a_row_whose_event_is_over_is_past_and_any_other_has_vanished(world: World, start: str, end: str, vanished: int) -> None:
    delivered(world, event("a", start, end), row("b"))
    report = world.stage([row("b")])
    assert (report.vanished, report.past, report.past_rows) == (vanished, 1 - vanished, 1 - vanished)
    books = LedgerQueries(world.engine)
    assert books.status()[0].vanished == len(books.rows(BOOK, RowFilter(waiting=Waiting.VANISHED))) == vanished


THE_WEEK = StagePolicy(days=("2026-03-02", "2026-03-31"))
OF_ROWS = replace(THE_WEEK, row_parts=1)


def events(*keys: str, silence: Silence | None = None) -> list[MappedRow]:
    """The events of one row."""
    parts = [Part(len(keys), place > 0, None if place else silence) for place in range(len(keys))]
    return [replace(row(key), part=part) for key, part in zip(keys, parts, strict=True)]


def test_events_that_rows_give_beyond_one_and_rows_that_went_into_others_balance_the_account(world: World) -> None:
    grouped = [Absorbed(RowLocation("agenda.csv:8"), RowKey("b"), into) for into in Absorption]
    report = world.stage([*events("a|1", "a|2", "a|3"), row("b"), *grouped, skipped()])
    assert report.account == ReadAccount(read=5, expanded=2, filtered=1, duplicate=1, grouped=1, new=4)
    assert (report.account.wanted, world.publish().delivered) == (5, 4)


def test_a_row_counts_as_one_for_the_share_of_the_rejected_however_many_events_it_gives(world: World) -> None:
    first, *others = events("a|1", "a|2", "a|3", "a|4")
    bad = replace(rejection("a|4"), part=others[-1].part)
    report = world.stage([first, *others[:2], bad, rejection("b")])
    assert (report.account.rejected, report.rows) == (2, RowShares(wanted=2.0, rejected=1.25))
    assert world.stage([row("b")]).rows is None


SILENT = Part(silence=Silence(RowKey("a")))
UNUSABLE, LEFT_OUT = replace(rejection("a"), part=SILENT), replace(skipped("a"), rule=2, part=SILENT)
UP_TO_THE_15TH = Silence(RowKey("a"), after="2026-03-15")


@pytest.mark.parametrize(
    ("before", "policy", "now", "gone"),
    [
        ("a|2026-02-15 a|2026-03-15 a|2026-04-15", THE_WEEK, events("a|2026-03-16"), "a|2026-03-15"),
        ("a|2026-03-15 a|x b|2026-03-15 a\\|b|2026-03-15", THE_WEEK, [UNUSABLE], "b|2026-03-15 a\\|b|2026-03-15"),
        ("a|2026-03-15 a|2026-03-22", THE_WEEK, events("a|2026-03-08", silence=UP_TO_THE_15TH), "a|2026-03-15"),
        ("a|2026-03-15 a|2026-04-15 a|x b|2026-03-15", OF_ROWS, [LEFT_OUT, *events("b|2026-03-15")], "a|2026-03-15 a|x"),
    ],
    ids=[
        "but for a day that is over or out of reach",
        "but for the events of a row that cannot be used",
        "but for days beyond what a row may give",
        "and those of a row that a rule leaves out, but for a day that no read looks at",
    ],
)
def test_events_have_vanished_where_a_read_looked_for_them(
    world: World, before: str, policy: StagePolicy, now: list[RowOutcome], gone: str
) -> None:
    world.stage(events(*before.split()), policy=policy)
    world.publish()
    report = world.stage(now, policy=policy)
    entries = [entry for key in before.split() if (entry := world.known(key)).vanished_at is not None]
    assert ([entry.row_key for entry in entries], report.vanished) == (gone.split(), len(gone.split()))
    assert {entry.vanished_by for entry in entries} == {"rule 2: online only" if policy is OF_ROWS else ""}


def test_a_new_day_of_a_row_is_not_taken_for_one_that_has_vanished(world: World) -> None:
    first, second, third, of_other = (
        row(key, "yoga", twin=key) for key in ("a|2026-03-15", "a|2026-03-22", "a|2026-03-29", "b|2026-03-29")
    )
    world.stage([first, second], policy=OF_ROWS)
    world.publish()
    assert told(world.stage([second, third], policy=OF_ROWS)) == "unchanged 1, new 1, vanished 1"
    assert told(world.stage([second, third, of_other], policy=OF_ROWS)) == "held 1, unchanged 2"


def test_an_event_that_moves_to_another_row_is_held_though_its_old_row_has_a_new_one(world: World) -> None:
    moved, stays, comes, there = (
        row(key, title, twin=key) for key, title in (("a|1", "yoga"), ("a|2", "fado"), ("a|3", "jazz"), ("b|1", "yoga"))
    )
    world.stage([moved, stays], policy=OF_ROWS)
    world.publish()
    report = world.stage([stays, comes, there], policy=OF_ROWS)
    assert [(one.row_key, one.twin_key) for one in report.held] == [("b|1", "a|1")]


@pytest.mark.parametrize("parts", [("a", "2026-03-15"), ("a|b", "c\\", "2026-03-15"), ("", "x|y", "2026-03-15")])
def test_a_bar_inside_a_part_of_the_key_does_not_end_its_stem(world: World, parts: tuple[str, ...]) -> None:
    key, other = row_key(parts), row_key(("other", *parts[1:]))
    for number in range(1, len(parts)):
        delivered(world, row(key), row(other))
        world.stage([Skipped(RowLocation("x"), "left out", part=Part(silence=Silence(row_key(parts[:number]))))])
        assert {entry.row_key for entry in world.rows() if entry.vanished_at} == {other}


def test_a_row_of_another_feed_whose_source_was_not_read_again_holds_whatever_the_row_says(world: World) -> None:
    delivered(world, row("a", twin="jazz"))
    other = beside(world)
    (found,) = other.stage([row("x", twin="jazz")]).held
    assert (found.feed, found.twin_key) == (world.feed, "a")
    assert other.stage([row("x", "Blues", twin="blues")]).account.held == 1
    world.stage([row("a", twin="jazz")])
    assert other.stage([row("x", "Blues", twin="blues")]).account.new == 1


def test_a_stage_that_began_before_another_ended_sees_its_rows(world: World) -> None:
    other = beside(world)
    second = open_stage(other.ledger.fence(other.run(), other.lease.token), is_whole=True)
    second.write([row("x", twin="jazz")])
    assert world.stage([row("b")]).account.new == 1
    world.stage([row("b"), row("a", "late", twin="late")])
    second.write([row("y", "late", twin="late")])
    report = second.close(no_brakes)
    assert (report.account.held, report.account.new) == (1, 1)
    assert report.held[0].row_key == "y"


def test_a_stage_takes_no_statement_more_for_each_other_feed_of_the_service(world: World) -> None:
    def statements(*keys: str) -> int:
        seen: list[str] = []
        sql_event.listen(world.engine, "before_cursor_execute", lambda _c, _cursor, statement, *_rest: seen.append(statement))
        world.stage([row(key, key, twin=key) for key in keys])
        return len(seen)

    statements("a")
    alone = statements("a", "b")
    for number in range(5):
        beside(world, f"other-{number}").stage([row("x", f"X{number}", twin=f"x{number}")])
    assert statements("a", "b", "c") == alone


def test_a_state_db_without_marks_gets_them_with_the_next_read(world: World) -> None:
    delivered(world, row("a", twin="jazz"))
    forget_all_marks(world.engine)
    assert play(world, "a~jazz n~jazz").account.held == 1


def test_marks_go_with_their_entries(world: World) -> None:
    play(world, "a b c d e | a b")
    assert (picture(world), count_marks(world.engine)) == ("a pending, b pending", 2)


def test_the_second_of_two_equal_rows_of_a_long_first_read_is_held(world: World) -> None:
    chunks = [[row(f"{chunk}-{number}") for number in range(2_000)] for chunk in range(9)]
    report = world.stage(*chunks, [row("copy", twin="0-1"), row("young", twin="8-1")])
    assert (report.account.held, report.account.new) == (2, 18_000)


ROWS = [row(key) for key in "abcde"]


def closed_by_scope(world: World, rows: list[MappedRow], *accepted: str) -> StageReport:
    """Read rows as a run that asks the brake `scope`."""
    fence, policy = world.ledger.fence(world.run(), world.lease.token), StagePolicy(accepted=accepted)
    stage = open_stage(fence, is_whole=True, policy=policy)
    stage.write(rows)
    return stage.close(lambda report: ["scope"] if report.alongside else [])


def test_a_renamed_feed_is_known_by_its_rows_and_sends_nothing_until_a_person_lets_both_deliver(world: World) -> None:
    delivered(world, *ROWS)
    renamed = beside(world, "agenda-2026")
    found = closed_by_scope(renamed, ROWS).alongside
    assert found is not None
    assert (found.feed, found.namespace, found.known, found.rows, found.held) == (world.feed, "", 5, 5, 5)
    report = closed_by_scope(renamed, ROWS, "scope")
    assert (report.account.held, report.account.new, report.accepted) == (0, 5, ("scope",))
    assert closed_by_scope(renamed, ROWS).alongside is not None, "what one run was allowed is asked again"
    assert not renamed.ledger.gate().is_open
    assert closed_by_scope(renamed, ROWS, "scope").accepted == ("scope",)
    renamed.ledger.open_gate("ann")
    assert renamed.publish().delivered == 5
    assert closed_by_scope(renamed, [*ROWS, row("f")]).alongside is None
    assert world.stage([*ROWS, row("f")]).account.held == 0


def test_two_stages_that_close_at_the_same_moment_see_each_other(world: World) -> None:
    other = beside(world)
    stages = [open_stage(each.ledger.fence(each.run(), each.lease.token), is_whole=True) for each in (world, other)]
    for stage in stages:
        stage.write([row(f"{key}", twin=key) for key in "abcdef"])
    with ThreadPoolExecutor(2) as pool:
        accounts = [report.account for report in pool.map(lambda stage: stage.close(no_brakes), stages)]
    assert sorted((account.held, account.new) for account in accounts) == [(0, 6), (6, 0)]


ROWS_BESIDE = 2_000


@pytest.fixture
def pair(postgres: Postgres) -> Iterator[tuple[World, World]]:
    """Two feeds in a PostgreSQL database that has no statistics, whose statements wait 200 ms for a lock."""
    url = postgres.fresh_url() + "&options=-c%20lock_timeout%3D200ms"
    worlds = World(url), World(url, feed=FeedName("cinema"))
    gather_no_statistics(worlds[0].engine)
    yield worlds
    for each in worlds:
        each.engine.dispose()


def begun(world: World, *chunks: list[MappedRow]) -> Stage:
    stage = open_stage(world.ledger.fence(world.run(), world.lease.token), is_whole=True)
    for chunk in chunks:
        stage.write(chunk)
    return stage


def test_a_stage_waits_for_the_end_of_another_beyond_the_lock_timeout_and_keeps_its_lease(pair: tuple[World, World]) -> None:
    first, second = (begun(world, [row(key, twin=key) for key in "ab"]) for world in pair)
    is_inside, is_let_go = Event(), Event()

    def hold(_report: StageReport) -> list[str]:
        is_inside.set()
        is_let_go.wait(DEADLINE_S)
        return []

    waiting = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event = 'advisory' AND clock_timestamp() - query_start > interval '500 ms'"
    )
    with ThreadPoolExecutor(2) as pool:
        try:
            ends = [pool.submit(first.close, hold)]
            until(is_inside.is_set)
            ends.append(pool.submit(second.close, no_brakes))
            with pair[0].engine.connect() as connection:
                until(lambda: connection.execute(waiting).scalar_one() or ends[1].done())
            pair[1].lease.renew()
        finally:
            is_let_go.set()
    assert [(end.result().account.held, end.result().account.new) for end in ends] == [(2, 0), (0, 2)]


def work_done(worlds: Iterable[World]) -> int:
    """How many rows and index entries PostgreSQL has fetched for these worlds, and how often it has searched an index."""
    for world in worlds:
        world.engine.dispose()  # the server counts what a session did at its end, at the latest
    of_database = "WHERE datname = current_database()"
    with create_engine(world.url, isolation_level="AUTOCOMMIT", poolclass=NullPool).connect() as connection:
        sessions = text(f"SELECT count(*) FROM pg_stat_activity {of_database} AND backend_type = 'client backend'")
        until(lambda: connection.execute(sessions).scalar_one() == 1)
        fetched = f"SELECT tup_fetched + tup_returned FROM pg_stat_database {of_database}"
        searched = "SELECT sum(idx_scan) FROM pg_stat_user_indexes"
        return int(connection.execute(text(f"SELECT ({fetched}) + ({searched})")).scalar_one())


def test_stages_that_end_beside_each_other_fetch_each_row_a_few_times(pair: tuple[World, World]) -> None:
    stages = [begun(world, [row(f"{world.feed}-{number}") for number in range(ROWS_BESIDE)]) for world in pair]
    for stage in stages:
        assert stage.close(no_brakes).account.new == ROWS_BESIDE
    assert work_done(pair) < 200 * 2 * ROWS_BESIDE


def test_reads_on_statistics_of_empty_tables_fetch_each_row_a_few_times(pair: tuple[World, World]) -> None:
    agenda, cinema = pair
    call_tables_empty(agenda.engine)
    same, others = ([row(f"{number}") for number in range(start, start + ROWS_BESIDE)] for start in (0, ROWS_BESIDE))
    reports = [begun(world, rows).close(no_brakes) for world, rows in ((agenda, same), (cinema, same), (agenda, others))]
    assert [(report.account.new, report.account.held) for report in reports] == [(2_000, 0), (0, 2_000), (2_000, 0)]
    assert work_done(pair) < 200 * 3 * ROWS_BESIDE
