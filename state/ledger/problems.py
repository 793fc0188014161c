"""The list of rows that people must see: rejected, held, or used with a warning."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey, names_of
from state.database import in_pages, rounded
from state.enums import ProblemKind
from state.ledger.accounts import Candidate, ReadAccount, dump
from state.ledger.lease import FencedTransaction
from state.tables import ENTRY, PROBLEM, RUN, storable


@dataclass(frozen=True, slots=True)
class Problem:
    """One row that people must see, with its reasons and raw cells ({} if they are not available)."""

    kind: ProblemKind
    row_key: RowKey
    place: str
    reasons: tuple[Reason, ...]
    cells: Mapping[str, str]


def rejected(row: Rejection) -> Problem:
    """Return the problem of a rejected row."""
    return Problem(ProblemKind.REJECTED, row.row_key, row.location.place, row.reasons, row.cells)


def claimed_twice(row_key: RowKey, location: RowLocation, hint: str, cells: Mapping[str, str]) -> Rejection:
    """Return the rejection of a row whose key another row has as well."""
    return Rejection(location, row_key, (Reason(ReasonCode.DUPLICATE_KEY, "", "", row_key, hint),), cells)


def warned(row: MappedRow) -> Problem:
    """Return the problem of a row that is used with warnings."""
    return Problem(ProblemKind.WARNING, row.row_key, row.location.place, row.warnings, row.cells)


def held(place: str, row_key: RowKey, candidate: Candidate | None, cells: Mapping[str, str]) -> Problem:
    """Return the problem of a row that resembles a known event under another key."""
    hint, other = (f"the other identifier is {candidate}", {"other": str(candidate)}) if candidate else ("", {})
    reason = Reason(ReasonCode.TWIN, "", "", row_key, hint, particulars=other)
    return Problem(ProblemKind.HELD, row_key, place, (reason,), cells)


_OF_SCOPE = PROBLEM.c.scope_id == bindparam("scope")
_FIND = select(PROBLEM.c.digest).where(_OF_SCOPE, PROBLEM.c.digest.in_(bindparam("digests", expanding=True)))
_SEEN: dict[str, Any] = {"run_id": bindparam("run"), "listed_run": bindparam("run"), "seen_at": bindparam("now")}
_SEE_AGAIN = update(PROBLEM).where(_OF_SCOPE, PROBLEM.c.digest == bindparam("problem")).values(**_SEEN)
_STRIKE_ROWS = update(PROBLEM).where(_OF_SCOPE, PROBLEM.c.kind == bindparam("of_kind")).values(listed_run="")
_STRIKE_ROWS = _STRIKE_ROWS.where(PROBLEM.c.row_key.in_(bindparam("row_keys", expanding=True)))
_STRIKE = update(PROBLEM).where(PROBLEM.c.id.in_(bindparam("problems", expanding=True))).values(listed_run="")


def write_problems(connection: Connection, run: FencedTransaction, problems: Iterable[Problem]) -> None:
    """Record problems; one that is already listed unchanged is marked as seen again."""
    scope_id, run_id, now = run.scope_id, run.run_id, run.now()
    rows = {row["digest"]: row for row in (_as_row(scope_id, run_id, now, problem) for problem in problems)}
    if not rows:
        return
    known = set(connection.execute(_FIND, {"scope": scope_id, "digests": rounded(rows)}).scalars())
    again = [{"scope": scope_id, "problem": digest, "run": run_id, "now": now} for digest in known]
    first = [row for digest, row in rows.items() if digest not in known]
    for statement, written in ((_SEE_AGAIN, again), (insert(PROBLEM), first)):
        if written:
            connection.execute(statement, written)


def strike(connection: Connection, scope_id: int, kind: ProblemKind, row_keys: Collection[str]) -> None:
    """Remove the listed problems of rows."""
    if row_keys:
        listed = {"scope": scope_id, "of_kind": kind.value, "row_keys": rounded([storable(key) for key in row_keys])}
        connection.execute(_STRIKE_ROWS, listed)


def warn_of_image(connection: Connection, run: FencedTransaction, entry_id: int, reason: Reason) -> None:
    """List a row that is sent without its cover image."""
    entry = connection.execute(select(ENTRY.c.row_key, ENTRY.c.origin).where(ENTRY.c.id == entry_id)).one()
    write_problems(connection, run, [Problem(ProblemKind.WARNING, RowKey(entry.row_key), entry.origin, (reason,), {})])


def _as_row(scope_id: int, run_id: str, now: datetime, problem: Problem) -> dict[str, object]:
    reasons = json.dumps([asdict(reason) for reason in problem.reasons])
    cells = json.dumps(dict(problem.cells))
    place, row_key = storable(problem.place), storable(problem.row_key)
    content = f"{problem.kind}\x1f{row_key}\x1f{place}\x1f{reasons}\x1f{cells}"
    digest = hashlib.blake2b(content.encode(), digest_size=16).digest()
    row = {"scope_id": scope_id, "kind": problem.kind.value, "row_key": row_key, "origin": place, "digest": digest}
    seen = {"run_id": run_id, "listed_run": run_id, "first_seen_at": now, "seen_at": now}
    return {**row, **seen, "reasons": reasons, "cells": cells}


def stem_of(row_key: str, row_parts: int | None) -> str:
    """Return the key of the row of an event; the event's own key if a row is an event (`row_parts` is None)."""
    return row_key if row_parts is None else next(names_of(RowKey(row_key), row_parts))


class ListedProblems:
    """The rows with listed problems of earlier reads, by key or, without a usable key, by place.

    Memory grows with their number only. A row's own key has `row_parts` parts, None: a row is an event.
    """

    def __init__(self, row_parts: int | None = None) -> None:
        self._row_parts = row_parts
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        self._rejected: set[int] = set()

    @property
    def standing(self) -> int:
        """How many rejected rows of earlier reads are still listed."""
        return len(self._rejected)

    def carry(self, connection: Connection, run: FencedTransaction) -> None:
        """Transfer the list of the last read to this one."""
        reads = select(RUN.c.id).where(RUN.c.scope_id == run.scope_id, RUN.c.read_account.is_not(None))
        last = connection.execute(reads.order_by(RUN.c.started_at.desc(), RUN.c.id).limit(1)).scalar()
        if last != run.run_id:
            if last is not None:
                of_last = (PROBLEM.c.scope_id == run.scope_id, PROBLEM.c.listed_run == last)
                connection.execute(update(PROBLEM).where(*of_last).values(listed_run=run.run_id))
            run.note(connection, read_account=dump(ReadAccount()))  # from now on the list of this run is the feed's
        listed = (PROBLEM.c.scope_id == run.scope_id, PROBLEM.c.listed_run == run.run_id)
        for row in connection.execute(select(PROBLEM).where(*listed, PROBLEM.c.kind != ProblemKind.WARNING.value)):
            self._rows[_name(stem_of(row.row_key, self._row_parts), row.origin)].append(row.id)
            if row.kind == ProblemKind.REJECTED:
                self._rejected.add(row.id)

    def strike(self, connection: Connection, outcomes: Sequence[RowOutcome]) -> None:
        """Remove the rows of this read from the list, before its own problems are listed."""
        if not self._rows:
            return
        places = [storable(outcome.location.place) for outcome in outcomes]
        names = {_name("", place) for place in places}
        for outcome, place in zip(outcomes, places, strict=True):
            names.add(_name(stem_of(storable(outcome.row_key), self._row_parts), place))
        struck = [problem for name in names for problem in self._rows.pop(name, ())]
        self._rejected.difference_update(struck)
        for page in in_pages(struck):
            connection.execute(_STRIKE, {"problems": page})


def _name(stem: str, place: str) -> str:
    return f"key {stem}" if stem else f"place {place}"
