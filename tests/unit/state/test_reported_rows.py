"""What the page for a partner's editor asks of the books: since when a row is as it is, and which event it has by now."""

from __future__ import annotations

from unit.state.world import DESTINATION, FEED, START, World, rejection, row

from mappings.row_key import RowKey
from state.enums import ProblemKind
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries

BOOK = FeedScope(DESTINATION, FEED)


def test_a_row_that_only_moved_in_its_file_is_met_since_it_was_first_met(world: World) -> None:
    world.stage([rejection("a", "agenda.csv:2"), rejection("", "agenda.csv:3")])
    world.clock.turn(days=3)
    world.stage([rejection("a", "agenda.csv:9"), rejection("b", "agenda.csv:10"), rejection("", "agenda.csv:11")])
    books = LedgerQueries(world.engine)
    problems = books.problems(BOOK, ProblemKind.REJECTED)
    met = books.first_met(problems)
    days = {problem.origin: (met[problem.problem_id] - START).days for problem in problems}
    assert days == {"agenda.csv:9": 0, "agenda.csv:10": 3, "agenda.csv:11": 3}
    assert books.first_met(()) == {}


def test_events_are_found_by_their_rows(world: World) -> None:
    world.stage([row("a"), row("b")])
    world.publish()
    world.stage([row("a"), row("b"), row("c")])
    assert set(LedgerQueries(world.engine).event_ids(BOOK, [RowKey(key) for key in "acx"])) == {"a"}
