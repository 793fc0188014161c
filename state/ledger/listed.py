"""The problems that earlier reads have listed, on the list of a read that is not full, until it comes to their rows.

How a problem is written down is `problems`'; showing the list is `books`'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, select, update

from mappings.outcome import RowOutcome
from mappings.row_key import RowKey, names_of
from state.enums import ProblemKind
from state.ledger.accounts import ReadAccount
from state.ledger.lease import Turn
from state.ledger.records import dump
from state.tables import PROBLEM, RUN, storable

_FEW = 500
_LAST = (
    select(RUN.c.id)
    .where(RUN.c.scope_id == bindparam("scope"), RUN.c.read_account.is_not(None))
    .order_by(RUN.c.started_at.desc(), RUN.c.id)
    .limit(1)
)
_OF_RUN = (PROBLEM.c.scope_id == bindparam("scope"), PROBLEM.c.listed_run == bindparam("run"))
_TAKE_OVER = update(PROBLEM).where(*_OF_RUN).values(listed_run=bindparam("new_run"))
_ON_THE_LIST = select(PROBLEM.c.id, PROBLEM.c.kind, PROBLEM.c.row_key, PROBLEM.c.origin).where(
    *_OF_RUN, PROBLEM.c.kind != ProblemKind.WARNING.value
)
_STRIKE = update(PROBLEM).where(PROBLEM.c.id.in_(bindparam("problems", expanding=True))).values(listed_run="")


def stem_of(row_key: str, row_parts: int | None) -> str:
    """Return the key of the row that an event came of; its own, where a row is an event (`row_parts` is None)."""
    return row_key if row_parts is None else next(names_of(RowKey(row_key), row_parts))


class Listed:
    """Problems of earlier reads that stand, by their row: its key or, where it had none that could be used, its place.

    Memory grows with their number, and with nothing else.
    """

    def __init__(self, problems: Iterable[tuple[int, str, str, str]], row_parts: int | None) -> None:
        """Take the id, kind, row key and place of each; a row's own key has `row_parts` parts, None: a row is an event."""
        self._row_parts = row_parts
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        self._rejected: set[int] = set()
        for problem_id, kind, row_key, place in problems:
            self._rows[_name(stem_of(row_key, row_parts), place)].append(problem_id)
            if kind == ProblemKind.REJECTED:
                self._rejected.add(problem_id)

    @property
    def standing(self) -> int:
        """How many rejections stand."""
        return len(self._rejected)

    def strike(self, connection: Connection, outcomes: Sequence[RowOutcome]) -> None:
        """Take rows from the list that this read has come to, before it lists what it makes of them itself."""
        if not self._rows:
            return
        names = {_name(stem_of(storable(one.row_key), self._row_parts), storable(one.origin.place)) for one in outcomes}
        places = {_name("", storable(one.origin.place)) for one in outcomes}
        struck = [problem for name in names | places for problem in self._rows.pop(name, ())]
        self._rejected.difference_update(struck)
        for start in range(0, len(struck), _FEW):
            connection.execute(_STRIKE, {"problems": struck[start : start + _FEW]})


def no_list() -> Listed:
    """Return the list of a read that begins anew: nothing of earlier reads stands on it."""
    return Listed((), None)


def carry_list(connection: Connection, turn: Turn, row_parts: int | None) -> Listed:
    """Put what the last read had on its list on the list of this one, and return it."""
    last = connection.execute(_LAST, {"scope": turn.scope_id}).scalar()
    ours = {"scope": turn.scope_id, "run": turn.run_id}
    if last != turn.run_id:
        if last is not None:
            connection.execute(_TAKE_OVER, {**ours, "run": last, "new_run": turn.run_id})
        turn.note(connection, read_account=dump(ReadAccount()))  # from now on the list of this run is the feed's
    on_the_list = connection.execute(_ON_THE_LIST, ours)
    return Listed(((row.id, row.kind, row.row_key, row.origin) for row in on_the_list), row_parts)


def _name(stem: str, place: str) -> str:
    return f"key {stem}" if stem else f"place {place}"
