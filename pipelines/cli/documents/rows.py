"""The documents about single rows: `rows`, `diff`, `retry`, `resolve`, `reconcile`, `report`. Rows not yet read are `feeds`'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from mappings.delivery import Answer
from mappings.refusals import Reason
from pipelines.cli.output.partner_page import SectionName
from pipelines.cli.payload_diff import FieldDiff
from pipelines.cli.resolve import Told
from pipelines.cli.unmapped import Unmapped
from pipelines.run.reconcile import ListRead, Verdict
from state.enums import Decision, DriftKind, EntryState, ProblemKind
from state.ledger.row_record import OtherEntry
from state.ledger.turned_away import LeftAlone


class Problem(TypedDict):
    """A row that could not be used, is held, or was used with a warning, with its raw cells. `event_id`: the event that an
    earlier version of the row has; `candidate`: the entry that a held row resembles.
    """

    state: ProblemKind
    place: str
    row_key: str
    event_id: int | None
    candidate: OtherEntry | None
    problem: str
    hint: str
    reasons: list[Reason]
    cells: Mapping[str, str]
    run_id: str
    first_seen_at: datetime
    seen_at: datetime


class Drifted(TypedDict):
    """What the source asks for now, where that is another event than was delivered."""

    kind: DriftKind
    event: dict[str, Any] | None


class Decided(TypedDict):
    """What a person has decided about a row."""

    what: Decision
    by: str
    at: datetime | None
    is_set_aside: bool


class Entry(TypedDict):
    """A row as the ledger has it. `state`: the word it was asked for by; `entry_state`: where it stands with the service;
    `event`: the payload that the service shows, or that is to be delivered; `answer`: what the service said last; `candidate`:
    the entry that a held row resembles, or that has the event of a superseded one; `vanished_by`: the rule that leaves it out.
    `copies`: how many events of the row may exist where the service ignores idempotency keys, counted over all runs.
    """

    state: str
    place: str
    row_key: str
    entry_state: EntryState
    event_id: int | None
    earlier_event_ids: list[int]
    idempotency_key: str
    attempts: int
    copies: int
    problem: str
    hint: str
    answer: Answer | None
    event: dict[str, Any]
    candidate: OtherEntry | None
    drift: Drifted | None
    vanished_at: datetime | None
    vanished_by: str
    removed_at: datetime | None
    decision: Decided | None
    updated_at: datetime


class Rows(TypedDict):
    """The rows asked for; `is_more`: there are more than were asked for. `csv`: the file they were written to."""

    feed: str
    state: str
    rows: list[Problem | Entry]
    is_more: bool
    csv: Path | None


class UnmappedValues(TypedDict):
    """Values that no lookup knows, each once, the commonest first."""

    feed: str
    unmapped: list[Unmapped]


class AsOf(TypedDict):
    """The read of the source that differences are told from."""

    run_id: str
    read_at: datetime
    is_whole: bool


class Differing(TypedDict):
    """A row whose source says something else than the service shows, and in which fields. `earlier_event_ids`: events of the row
    to be removed by hand; `is_set_aside`: a person has ignored it.
    """

    row_key: str
    kind: str
    state: EntryState
    event_id: int | None
    place: str
    vanished_at: datetime | None
    vanished_by: str
    earlier_event_ids: list[int]
    is_set_aside: bool
    changed: list[FieldDiff]


class DifferingWhole(Differing):
    """The same with every field, also those that are alike."""

    fields: list[FieldDiff]


class Differences(TypedDict):
    """All rows that differ, with their number by kind."""

    feed: str
    as_of: AsOf | None
    counts: Mapping[str, int]
    rows: list[Differing]
    is_more: bool


class OneDifference(TypedDict):
    """One row in full."""

    feed: str
    as_of: AsOf | None
    row: DifferingWhole


class RetriedCounts(TypedDict):
    """How many rows are pending again, by the state that they were in."""

    refused: int
    blocked: int


class Retried(TypedDict):
    """What is to be sent again, what of the rows named is not, and the command that sends at once, null where nothing is."""

    feed: str
    retried: RetriedCounts
    left_alone: list[LeftAlone]
    to_send: str | None


class Resolved(TypedDict):
    """What was decided, row by row. `warning`: what speaks against it; `is_confirmed` false: nothing was changed."""

    feed: str
    rows: list[Told]
    warning: str
    is_confirmed: bool


class SoughtCounts(TypedDict):
    """`sought = found + candidates + absent`."""

    sought: int
    found: int
    candidates: int
    absent: int


class Sought(TypedDict):
    """A row that was looked for in the service's list of events, and what came of it."""

    row_key: str
    state: EntryState
    place: str
    verdict: Verdict
    event_ids: list[int]
    why: str
    help: str


class Reconciliation(TypedDict):
    """What the service's `list` says of the rows whose event is not known; null where there was nothing to look for."""

    feed: str
    counts: SoughtCounts
    list: ListRead | None
    rows: list[Sought]
    is_dry: bool


class SectionCounts(TypedDict):
    """How many rows a section of the page tells of, how many of them since the last one, how many are shown."""

    rows: int
    new: int
    shown: int


class Report(TypedDict):
    """The page for a partner's editor: where it was written (`html`), as of which read, and what is on it."""

    feed: str
    service: str
    made_at: datetime
    read_at: datetime | None
    is_whole: bool
    rows_read: int | None
    since: datetime | None
    stopped_by: Sequence[str]
    sections: Mapping[SectionName, SectionCounts]
    html: Path | None
    bytes: int | None
