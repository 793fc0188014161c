"""The list of rows that people must see: rejected, held, used with a warning; and what of it an incremental read keeps."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, select, update

from mappings.outcome import MappedRow, Rejection, RowOutcome
from mappings.refusals import Reason, ReasonCode
from mappings.row_key import RowKey, names_of
from state.database import rounded
from state.enums import ProblemKind
from state.ledger.accounts import ReadAccount, dump
from state.ledger.duplicates import Candidate
from state.ledger.lease import FencedTransaction
from state.tables import ENTRY, PROBLEM, RUN, storable


@dataclass(frozen=True, slots=True)
class Problem:
    """One row that people must see, with its reasons and its raw cells ({} where they are no longer at hand)."""

    kind: ProblemKind
    row_key: RowKey
    place: str
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]


def rejected(rejection: Rejection) -> Problem:
    """List a row that cannot be used."""
    place = rejection.location.place
    return Problem(ProblemKind.REJECTED, rejection.row_key, place, rejection.reasons, rejection.cells)


def warned(row: MappedRow) -> Problem:
    """List a row that is used all the same."""
    return Problem(ProblemKind.WARNING, row.row_key, row.location.place, row.warnings, row.cells)


def held(place: str, row_key: RowKey, candidate: Candidate | None, cells: Mapping[str, str]) -> Problem:
    """List a row that looks like a known event under another key."""
    reason = Reason(ReasonCode.TWIN, "", "", row_key, f"the other identifier is {candidate}" if candidate else "")
    return Problem(ProblemKind.HELD, row_key, place, (reason,), cells)


_FIND = select(PROBLEM.c.digest).where(
    PROBLEM.c.scope_id == bindparam("scope"), PROBLEM.c.digest.in_(bindparam("digests", expanding=True))
)
_SEE_AGAIN = (
    update(PROBLEM)
    .where(PROBLEM.c.scope_id == bindparam("scope"), PROBLEM.c.digest == bindparam("problem"))
    .values(run_id=bindparam("run"), listed_run=bindparam("run"), seen_at=bindparam("now"))
)
_STRIKE = (
    update(PROBLEM)
    .where(
        PROBLEM.c.scope_id == bindparam("scope"),
        PROBLEM.c.kind == bindparam("of_kind"),
        PROBLEM.c.row_key.in_(bindparam("row_keys", expanding=True)),
    )
    .values(listed_run="")
)


def write_problems(connection: Connection, scope_id: int, run_id: str, now: datetime, problems: Iterable[Problem]) -> None:
    """Write problems down; one that is exactly as it was is marked as seen again, not written twice."""
    rows = {row["digest"]: row for row in (_as_row(scope_id, run_id, now, problem) for problem in problems)}
    if not rows:
        return
    known = set(connection.execute(_FIND, {"scope": scope_id, "digests": rounded(rows)}).scalars())
    again = [{"scope": scope_id, "problem": digest, "run": run_id, "now": now} for digest in known]
    first = [row for digest, row in rows.items() if digest not in known]
    if again:
        connection.execute(_SEE_AGAIN, again)
    if first:
        connection.execute(insert(PROBLEM), first)


def strike_warnings(connection: Connection, scope_id: int, row_keys: Collection[RowKey]) -> None:
    """Take the warnings of rows from the list: the rows or the mapping have changed."""
    strike(connection, scope_id, ProblemKind.WARNING, row_keys)


def strike(connection: Connection, scope_id: int, kind: ProblemKind, row_keys: Collection[RowKey]) -> None:
    """Take what is listed of rows from the list."""
    if row_keys:
        listed = {"scope": scope_id, "of_kind": kind.value, "row_keys": rounded([storable(key) for key in row_keys])}
        connection.execute(_STRIKE, listed)


def warn_of_image(connection: Connection, scope_id: int, run_id: str, entry_id: int, reason: Reason, now: datetime) -> None:
    """List a row that goes out without the cover image that it asked for."""
    entry = connection.execute(select(ENTRY.c.row_key, ENTRY.c.origin).where(ENTRY.c.id == entry_id)).one()
    problem = Problem(ProblemKind.WARNING, RowKey(entry.row_key), entry.origin, (reason,), {})
    write_problems(connection, scope_id, run_id, now, [problem])


def _as_row(scope_id: int, run_id: str, now: datetime, problem: Problem) -> dict[str, object]:
    reasons = json.dumps([asdict(reason) for reason in problem.reasons])
    cells = json.dumps(dict(problem.cells))
    place, row_key = storable(problem.place), storable(problem.row_key)
    content = f"{problem.kind}\x1f{row_key}\x1f{place}\x1f{reasons}\x1f{cells}"
    return {
        "scope_id": scope_id,
        "run_id": run_id,
        "listed_run": run_id,
        "kind": problem.kind.value,
        "row_key": row_key,
        "origin": place,
        "reasons": reasons,
        "cells": cells,
        "digest": hashlib.blake2b(content.encode(), digest_size=16).digest(),
        "first_seen_at": now,
        "seen_at": now,
    }


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
_STRIKE_LISTED = update(PROBLEM).where(PROBLEM.c.id.in_(bindparam("problems", expanding=True))).values(listed_run="")


def stem_of(row_key: str, row_parts: int | None) -> str:
    """Return the key of the row that an event came of; its own, where a row is an event (`row_parts` is None)."""
    return row_key if row_parts is None else next(names_of(RowKey(row_key), row_parts))


class ListedProblems:
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
        """Take rows off the list that this read has met, before it lists their new problems."""
        if not self._rows:
            return
        names = {_name(stem_of(storable(one.row_key), self._row_parts), storable(one.location.place)) for one in outcomes}
        places = {_name("", storable(one.location.place)) for one in outcomes}
        struck = [problem for name in names | places for problem in self._rows.pop(name, ())]
        self._rejected.difference_update(struck)
        for start in range(0, len(struck), _FEW):
            connection.execute(_STRIKE_LISTED, {"problems": struck[start : start + _FEW]})


def no_list() -> ListedProblems:
    """Return the list of a read that begins anew: nothing of earlier reads stands on it."""
    return ListedProblems((), None)


def carry_list(connection: Connection, turn: FencedTransaction, row_parts: int | None) -> ListedProblems:
    """Move the list of the last read to this one, and return it."""
    last = connection.execute(_LAST, {"scope": turn.scope_id}).scalar()
    ours = {"scope": turn.scope_id, "run": turn.run_id}
    if last != turn.run_id:
        if last is not None:
            connection.execute(_TAKE_OVER, {**ours, "run": last, "new_run": turn.run_id})
        turn.note(connection, read_account=dump(ReadAccount()))  # from now on the list of this run is the feed's
    on_the_list = connection.execute(_ON_THE_LIST, ours)
    return ListedProblems(((row.id, row.kind, row.row_key, row.origin) for row in on_the_list), row_parts)


def _name(stem: str, place: str) -> str:
    return f"key {stem}" if stem else f"place {place}"
