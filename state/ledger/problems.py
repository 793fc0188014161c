"""The list of rows that people must see: rejected, held, or used with a warning."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey, names_of
from state.database import in_pages, put_all, rounded
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


def last_read(scope_id: int | sa.ColumnElement[int]) -> sa.Select[Any]:
    """Return the query for the feed's last run that read its source; its list of problems is the feed's."""
    reads = sa.select(RUN.c.id, RUN.c.is_whole, RUN.c.read_account).where(RUN.c.scope_id == scope_id)
    return reads.where(RUN.c.read_account.is_not(None)).order_by(RUN.c.started_at.desc(), RUN.c.id).limit(1)


def is_listed_warning(scope_id: int, problem: sa.FromClause = PROBLEM) -> sa.ColumnElement[bool]:
    """Return the condition for the listed warnings of a feed."""
    listed = (problem.c.kind == ProblemKind.WARNING.value, problem.c.listed_run != "")
    return sa.and_(problem.c.scope_id == scope_id, *listed)


def write_problems(connection: sa.Connection, run: FencedTransaction, problems: Iterable[Problem]) -> None:
    """Record problems; one that is already listed unchanged is marked as seen again."""
    if rows := {row["digest"]: row for row in (_as_row(run, problem) for problem in problems)}:
        put_all(connection, PROBLEM, list(rows.values()), "scope_id", "digest", keeps="first_seen_at")


def strike(connection: sa.Connection, scope_id: int, kind: ProblemKind, row_keys: Collection[str]) -> None:
    """Remove the listed problems of rows."""
    of_kind = (PROBLEM.c.scope_id == scope_id, PROBLEM.c.kind == kind.value)
    for page in in_pages(map(storable, row_keys)):
        _unlist(connection, *of_kind, PROBLEM.c.row_key.in_(rounded(page)))


def _unlist(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> None:
    connection.execute(sa.update(PROBLEM).where(*which).values(listed_run=""))


def warn_of_image(connection: sa.Connection, run: FencedTransaction, entry_id: int, reason: Reason) -> None:
    """List a row that is sent without its cover image."""
    entry = connection.execute(sa.select(ENTRY.c.row_key, ENTRY.c.origin).where(ENTRY.c.id == entry_id)).one()
    write_problems(connection, run, [Problem(ProblemKind.WARNING, RowKey(entry.row_key), entry.origin, (reason,), {})])


def _as_row(run: FencedTransaction, problem: Problem) -> dict[str, object]:
    said = {"kind": problem.kind.value, "row_key": storable(problem.row_key), "origin": storable(problem.place)}
    said |= {"reasons": json.dumps([asdict(reason) for reason in problem.reasons]), "cells": json.dumps(dict(problem.cells))}
    digest = hashlib.blake2b("\x1f".join(said.values()).encode(), digest_size=16).digest()
    seen = {"run_id": run.run_id, "listed_run": run.run_id, "first_seen_at": run.now(), "seen_at": run.now()}
    return {"scope_id": run.scope_id, "digest": digest, **said, **seen}


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

    def carry(self, connection: sa.Connection, run: FencedTransaction) -> None:
        """Transfer the list of the last read to this one."""
        last = connection.execute(last_read(run.scope_id)).scalar()
        if last != run.run_id:
            of_last = (PROBLEM.c.scope_id == run.scope_id, PROBLEM.c.listed_run == last)
            connection.execute(sa.update(PROBLEM).where(*of_last).values(listed_run=run.run_id))
            run.note(connection, read_account=dump(ReadAccount()))  # from now on the list of this run is the feed's
        listed = (PROBLEM.c.scope_id == run.scope_id, PROBLEM.c.listed_run == run.run_id)
        for row in connection.execute(sa.select(PROBLEM).where(*listed, PROBLEM.c.kind != ProblemKind.WARNING.value)):
            self._rows[_name(stem_of(row.row_key, self._row_parts), row.origin)].append(row.id)
            if row.kind == ProblemKind.REJECTED:
                self._rejected.add(row.id)

    def strike(self, connection: sa.Connection, outcomes: Sequence[RowOutcome]) -> None:
        """Remove the rows of this read from the list, before its own problems are listed."""
        if not self._rows:
            return
        names = set[str]()
        for outcome in outcomes:
            place = storable(outcome.location.place)
            names |= {_name("", place), _name(stem_of(storable(outcome.row_key), self._row_parts), place)}
        struck = [problem for name in names for problem in self._rows.pop(name, ())]
        self._rejected.difference_update(struck)
        for page in in_pages(struck):
            _unlist(connection, PROBLEM.c.id.in_(rounded(page)))


def _name(stem: str, place: str) -> str:
    return f"key {stem}" if stem else f"place {place}"
