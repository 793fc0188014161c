"""Writing down the rows that people must see: rejected, held, used with a warning. Reading them back is `books`'."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, select, update

from mappings.outcome import MappedRow, Rejection
from mappings.refusals import Reason, ReasonCode
from mappings.row_key import RowKey
from state.database import rounded
from state.enums import ProblemKind
from state.ledger.duplicates import Candidate
from state.tables import ENTRY, PROBLEM, storable


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
    place = rejection.origin.place
    return Problem(ProblemKind.REJECTED, rejection.row_key, place, rejection.reasons, rejection.cells)


def warned(row: MappedRow) -> Problem:
    """List a row that is used all the same."""
    return Problem(ProblemKind.WARNING, row.row_key, row.origin.place, row.warnings, row.cells)


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
