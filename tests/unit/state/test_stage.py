"""What a read stages: rows, changes, rows that are gone, left out or cancelled, and rows of many events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select, update
from unit.state.books import BOOK, CANCELLED, OVER, TO_COME, delivered, event
from unit.state.story import picture, play, stories, told
from unit.state.world import World, answer, no_brakes, receipt, rejection, row, skipped

from mappings.delivery import Refusal
from mappings.outcome import Absorbed, Absorption, MappedRow, Part, RowLocation, RowOutcome, Silence, Skipped
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey, row_key
from state.database import writing
from state.enums import ProblemKind, Waiting
from state.errors import LeaseLostError
from state.ledger.accounts import ReadAccount, RowShares, StagePolicy
from state.ledger.gate import GateClosedError
from state.ledger.outbox import Settled
from state.ledger.reads import UnreadEvents
from state.ledger.stage import open_stage
from state.queries import LedgerQueries, RowFilter
from state.tables import ENTRY, SCOPE


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
a row outside the window is left out where nothing was sent, and else compared, and not drafted again
    a | sent | a> b> => filtered 1, unchanged 1 => a delivered
    a | sent | drafting a>:second => drifted 1 => a delivered but edited second
a row that was never sent and is no longer asked for is withdrawn
    a b | b => unchanged 1, withdrawn 1 => b pending
    a b | !a b => rejected 1, unchanged 1, withdrawn 1 => b pending
    a b | -a b => filtered 1, unchanged 1, withdrawn 1 => b pending
    a b | a> b => filtered 1, unchanged 1, withdrawn 1 => b pending
    a b | part !a => rejected 1, withdrawn 1 => b pending
    a b | part -a => filtered 1, withdrawn 1 => b pending
    a:first | refused | a:second | b => new 1, withdrawn 1 => a refused second over, b pending
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
    a@over b | sent | a@to-come b | b => unchanged 1, past 1 => a delivered but edited over, b delivered
an ignored row is listed again when it vanishes or changes
    a b | conflict | --ignore a | b => unchanged 1, vanished 1 => a conflict gone, b delivered
    a:first | conflict | --ignore a | a:first => unchanged 1 => a conflict first ignore
    a:first | conflict | --ignore a | a:second => drifted 1 => a conflict first but edited second
    a:first | uncertain | --ignore a | a:second => drifted 1 => a uncertain first but edited second
    a:first | sent | a:second | nothing | --ignore a | a:second => unchanged 1 => a delivered first but edited second ignore
    a:first | sent | a:second | nothing | --ignore a | a:third => drifted 1 => a delivered first but edited third
a row that comes back after its event was removed has returned, and is on no list when it is gone again
    a | sent | nothing | --removed a | a | a => drifted 1 => a delivered but returned removed removed
    a:first | sent | nothing | --removed a | a:second => drifted 1 => a delivered first but returned second removed removed
    a b | sent | b | --removed a | a b | b => unchanged 1 => a delivered over removed removed, b delivered
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


LONG = "é" * 1_000


def test_a_new_row_whose_key_is_longer_than_an_index_holds_is_rejected_and_the_others_go_on(world: World) -> None:
    report = world.stage([row(LONG), row(f"{LONG}x"), row("short")])
    assert (report.account.new, report.account.rejected) == (2, 1)
    (rejected,) = report.rejections
    assert [reason.code for reason in rejected.reasons] == [ReasonCode.BAD_KEY]
    assert "at most 2,000 bytes would be accepted, and this one has 2,001" in rejected.reasons[0].hint
    longer = row(f"{LONG}{LONG}")
    with writing(world.engine) as connection:
        kept = {"row_key": longer.row_key, "fingerprint": longer.fingerprint}
        connection.execute(update(ENTRY).where(ENTRY.c.row_key == LONG).values(**kept))
    account = world.stage([longer, row(f"{LONG}x"), row("short")]).account
    assert (account.unchanged, account.rejected) == (2, 1), "a long key that the ledger holds stays usable"


def test_a_problem_that_stays_the_same_is_kept_once_and_seen_again(world: World) -> None:
    world.stage([rejection("x")])
    world.clock.turn(hours=1)
    world.stage([rejection("x")])
    (problem,) = LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED)
    assert (problem.run_id, (problem.seen_at - problem.first_seen_at).total_seconds()) == ("run-2", 3601)
    assert LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED, run_id="run-1") == ()


def test_cells_that_no_database_takes_as_text_are_kept_legibly(world: World) -> None:
    reason = Reason(ReasonCode.UNDECODABLE, "title", "TITLE", "\udce9\x00", "")
    world.stage([replace(rejection("k\udce9\x00"), reasons=(reason,), cells={"TITLE": "\udce9\x00"})])
    (problem,) = LedgerQueries(world.engine).problems(BOOK, ProblemKind.REJECTED)
    assert (problem.row_key, problem.cells) == ("k\\udce9\\x00", {"TITLE": "\udce9\x00"})


def test_warnings_are_counted_every_time_and_listed(world: World) -> None:
    warning = Reason(ReasonCode.TOO_LONG, "title", "TITLE", "...", "")
    for _ in range(3):
        assert world.stage([row("a", warnings=(warning,))]).warnings == 1
        assert len(LedgerQueries(world.engine).problems(BOOK, ProblemKind.WARNING)) == 1
        world.publish()


def test_what_is_compared_next_time_is_the_last_read_that_passed_or_was_accepted(world: World) -> None:
    world.stage([row("a"), row("b")], stamp="v1")
    assert world.stage([], brakes=["shrink"], stamp="v2").last_whole_read == 2
    assert world.stage([], brakes=["shrink"]).last_whole_read == 2
    with world.engine.connect() as connection:
        assert connection.execute(select(SCOPE.c.stamp)).scalar_one() == "v1"
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


def vanished(world: World, *keys: str) -> list[bool]:
    return [world.known(key).vanished_at is not None for key in keys]


SILENT = Part(silence=Silence(RowKey("a")))


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


@pytest.mark.parametrize(
    ("before", "policy", "now", "are_gone"),
    [
        pytest.param(
            events("a|2026-02-15", "a|2026-03-15", "a|2026-04-15"),
            THE_WEEK,
            events("a|2026-03-16"),
            [False, True, False],
            id="a day that is over or out of reach has not vanished",
        ),
        pytest.param(
            [*events("a|2026-03-15", "a|x"), *events("b|2026-03-15"), *events("a\\|b|2026-03-15")],
            THE_WEEK,
            [replace(rejection("a"), part=SILENT)],
            [False, False, True, True],
            id="the events of a row that cannot be used have not vanished",
        ),
        pytest.param(
            events("a|2026-03-15", "a|2026-03-22"),
            THE_WEEK,
            events("a|2026-03-08", silence=Silence(RowKey("a"), after="2026-03-15")),
            [True, False],
            id="days beyond what a row may give have not vanished",
        ),
        pytest.param(
            [*events("a|2026-03-15", "a|2026-04-15", "a|x"), *events("b|2026-03-15")],
            OF_ROWS,
            [replace(skipped("a"), rule=2, part=SILENT), *events("b|2026-03-15")],
            [True, False, True, False],
            id="events of a row that a rule leaves out have vanished, but for a day that no read looks at",
        ),
    ],
)
def test_events_have_vanished_where_a_read_looked_for_them(
    world: World, before: list[MappedRow], policy: StagePolicy, now: list[RowOutcome], are_gone: list[bool]
) -> None:
    world.stage(before, policy=policy)
    world.publish()
    report = world.stage(now, policy=policy)
    keys = [each.row_key for each in before]
    assert (vanished(world, *keys), report.vanished) == (are_gone, sum(are_gone))
    by_rule = {world.known(key).vanished_by for key, is_gone in zip(keys, are_gone, strict=True) if is_gone}
    assert by_rule == {"rule 2: online only" if policy is OF_ROWS else ""}


@pytest.mark.parametrize("parts", [("a", "2026-03-15"), ("a|b", "c\\", "2026-03-15"), ("", "x|y", "2026-03-15")])
def test_a_bar_inside_a_part_of_the_key_does_not_end_its_stem(parts: tuple[str, ...]) -> None:
    key = row_key(parts)
    for count in range(1, len(parts)):
        unspoken = UnreadEvents(None)
        unspoken.note(Skipped(RowLocation("x"), "left out", part=Part(silence=Silence(row_key(parts[:count])))))
        assert unspoken.covers(key)
        assert not unspoken.covers(row_key(("other", *parts[1:])))
