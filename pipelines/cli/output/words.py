"""Accounts of a run as equations, rejected rows and brakes as table rows, the exit code of several runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from mappings.outcome import REASON_TEXTS, Reason

REJECTION_COLUMNS = ("place", "column", "found", "problem", "hint")
BRAKE_COLUMNS = ("brake", "verdict", "why")
_READ = ("filtered", "duplicate", "grouped", "rejected", "held", "still_refused", "unchanged", "drifted", "new", "gone")
_OWED = ("new", "carried_over")
_PUBLISHED = ("delivered", "delivered_unconfirmed", "refused", "blocked", "uncertain", "conflict", "pending")
_SPOKEN = {"pending": "still pending"}


class RefusedRow(Protocol):
    """A row that could not be used: its place and the reasons."""

    @property
    def origin(self) -> object:
        """The row's place; as text, a place that a person can open."""
        ...

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Everything that is wrong with it."""
        ...


class Verdict(Protocol):
    """One brake's answer."""

    @property
    def name(self) -> str:
        """As `--accept` takes it."""
        ...

    @property
    def is_tripped(self) -> bool:
        """Whether the limit is passed."""
        ...

    @property
    def is_accepted(self) -> bool:
        """Whether a person accepted that for this run."""
        ...

    @property
    def sentence(self) -> str:
        """What was measured against what."""
        ...


def read_line(counts: Mapping[str, int]) -> str:
    """Return the account of a read as an equation: `read 120 = rejected 2 + unchanged 108 + new 10`. Events that rows gave
    beyond one each stand beside what was read: `read 3 + expanded 7 = new 10`.

    Terms of zero are left out; an equation that does not hold is shown with what is missing.
    """
    return _equation(
        {"read": counts.get("read", 0), "expanded": counts.get("expanded", 0)}, {name: counts.get(name, 0) for name in _READ}
    )


def publish_line(counts: Mapping[str, int]) -> str:
    """Return the account of a publish as an equation: `new 10 + carried over 2 = delivered 11 + refused 1`."""
    owed, ended = ({name: counts.get(name, 0) for name in names} for names in (_OWED, _PUBLISHED))
    return _equation(owed, ended)


def rejection_rows(rows: Iterable[RefusedRow]) -> Iterator[tuple[str, str, str, str, str]]:
    """Return one line per reason, under `REJECTION_COLUMNS`; a row's place stands on its first line only."""
    for row in rows:
        for number, reason in enumerate(row.reasons):
            place = str(row.origin) if number == 0 else ""
            yield place, reason.column or reason.field, reason.found, REASON_TEXTS[reason.code], reason.hint


def brake_rows(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, str, str]]:
    """Return one line per brake, under `BRAKE_COLUMNS`."""
    for verdict in verdicts:
        yield str(verdict.name), _verdict(verdict), verdict.sentence


def _verdict(verdict: Verdict) -> str:
    if not verdict.is_tripped:
        return "free"
    return "accepted for this run" if verdict.is_accepted else "STOPS"


def _equation(left: Mapping[str, int], right: Mapping[str, int]) -> str:
    missing = sum(left.values()) - sum(right.values())
    if missing:
        return f"{_terms(left)} ≠ {_terms(right)}: {abs(missing):,} rows {'unaccounted for' if missing > 0 else 'too many'}"
    return f"{_terms(left)} = {_terms(right)}" if sum(left.values()) else _terms(left)


def _terms(counts: Mapping[str, int]) -> str:
    named = {_SPOKEN.get(name, name.replace("_", " ")): count for name, count in counts.items()}
    shown = [f"{name} {count:,}" for name, count in named.items() if count]
    return " + ".join(shown) or f"{next(iter(named))} 0"


SEVERITY = (130, 2, 3, 5, 1, 4, 6, 0)
"""The first of these that occurred is the command's."""


def worst(codes: Collection[int]) -> int:
    """Return the gravest of several exit codes, 0 if there are none."""
    return next((code for code in SEVERITY if code in codes), 0)
