"""The words by which somebody asks for rows, and which of them wait for a person. What each finds is `row_choices`'."""

from __future__ import annotations

from state.words import EntryState, ProblemKind

DRIFT = "drift"
VANISHED = "vanished"
RESENT = "resent"
WAITING = ("rejected", "held", "conflict", "refused", "blocked", "uncertain", "delivered_unconfirmed", DRIFT, VANISHED)
"""What waits for a person, in the order in which it is listed."""
ALL = (*EntryState, *ProblemKind, DRIFT, VANISHED, RESENT)
