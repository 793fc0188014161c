"""The documents about feeds and their mapping files: `feeds`, `status`, `check`, `init`, `preview`, `explain`, `reload`.

What is told of rows that the ledger has is `rows`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from mappings.compiler.mapper import TracedStep
from mappings.draft.moments import Guessed
from mappings.errors import FileProblem
from mappings.outcome import Absorption, Cover
from mappings.refusals import Reason
from mappings.spec.feed import Schedule
from pipelines.cli.documents.rows import Entry
from pipelines.cli.documents.runs import Run
from pipelines.cli.feed_files import SharedFile
from pipelines.cli.findings import ExampleFindings, LiveFinding
from pipelines.cli.unmapped import Unmapped
from state.enums import EntryState
from state.ledger.gate import Gate
from state.views.views import LeaseHolder

Lists = Literal["live", "offline"]
"""Whether mappings were resolved against the lists of the service, or against none (`why_offline`)."""


class ListedSource(TypedDict):
    """Where rows come from; `path` as the mapping file says it."""

    kind: str
    path: str


class LastRun(TypedDict):
    """How the last run of a feed ended, or that it has not."""

    run_id: str
    started_at: datetime
    outcome: str | None
    exit_code: int | None


class ListedFeed(TypedDict):
    """One feed; of a feed that never ran, `destination`, `counts` and `last_run` are null."""

    feed: str
    path: Path
    owner: str | None
    source: ListedSource
    schedule: Schedule | None
    destination: str | None
    counts: Mapping[EntryState, int] | None
    drifted: int
    vanished: int
    last_run: LastRun | None


class BrokenFile(TypedDict):
    """A mapping file that cannot be used, with every mistake."""

    path: Path
    problems: list[FileProblem]


class Feeds(TypedDict):
    """The feeds of the folder, and the broken files beside them."""

    feeds: list[ListedFeed]
    broken: list[BrokenFile]


class Standing(TypedDict):
    """Where a feed stands. `counts`: rows by state; `waiting`: what waits for a person, by the word of `rows --state`, and what
    would `help`; `set_aside`: entries that a person has
    ignored. `gate`: whether staged rows may be published; `lease`: who holds the feed; `runs`: the last ones;
    `slices_left`: of backfills that are open.
    """

    feed: str
    destination: str
    counts: Mapping[EntryState, int]
    drifted: int
    to_publish: int
    cancelled: int
    returned: int
    vanished: int
    waiting: Mapping[str, int]
    help: Mapping[str, str]
    set_aside: int
    gate: Gate
    lease: LeaseHolder | None
    last_whole_read: int | None
    slices_left: int
    runs: list[Run]


class Status(TypedDict):
    """Where the feeds stand at the configured service, or at all. `elsewhere`: other destinations that the state DB knows;
    `estranged`: sentences about rows that are delivered under a feed's name or a namespace that is not used any more.
    """

    feeds: list[Standing]
    elsewhere: list[str]
    estranged: tuple[str, ...]


class CheckedFile(TypedDict):
    """What was found in one mapping file; `live` is there with --live."""

    feed: str
    path: Path
    problems: list[FileProblem]
    warnings: list[FileProblem]
    examples: ExampleFindings
    live: NotRequired[list[LiveFinding]]


class Check(TypedDict):
    """What was found in all files; `shared`: files that were named, and are there to be included."""

    feeds: list[CheckedFile]
    shared: NotRequired[list[SharedFile]]
    ok: bool


class Drafted(TypedDict):
    """The mapping file that was drafted at `out` from so many sampled `rows`, and how sure each guess is."""

    feed: str
    out: Path
    rows: int
    columns: list[str]
    guesses: list[Guessed]
    problems: list[FileProblem]
    warnings: list[FileProblem]
    is_whole: bool


class Outcome(TypedDict):
    """What becomes of a row; of event, rejected, held (as a copy of that row), skipped, absorbed and gone it has one."""

    place: str
    row_key: str
    warnings: list[Reason]
    event: NotRequired[dict[str, Any]]
    cover: NotRequired[Cover]
    rejected: NotRequired[list[Reason]]
    held: NotRequired[str]
    skipped: NotRequired[str]
    absorbed: NotRequired[Absorption]
    gone: NotRequired[bool]


class PreviewAccount(TypedDict):
    """`read + expanded = events + skipped + duplicate + grouped + rejected + held`; `is_whole`: all of the source was read."""

    read: int
    is_whole: bool
    expanded: int
    events: int
    skipped: Mapping[str, int]
    duplicate: int
    grouped: int
    rejected: int
    held: int
    reasons: Mapping[str, int]
    warned: int
    unmapped: list[Unmapped]


class Preview(TypedDict):
    """The rows asked for, and what a run would make of them. `estranged`: as in the document of `status`."""

    feed: str
    lists: Lists
    why_offline: str
    rows: list[Outcome]
    account: PreviewAccount
    estranged: tuple[str, ...]


class Explained(TypedDict):
    """One row step by step: its raw cells, what each step made of them, what became of it, what the ledger has of it."""

    feed: str
    lists: Lists
    why_offline: str
    place: str
    cells: Mapping[str, str]
    steps: list[TracedStep]
    outcomes: list[Outcome]
    ledger: list[Entry]


class Reloaded(TypedDict):
    """What the Dagster webserver at `url` sees since it has reloaded the mapping files."""

    url: str
    feeds: list[str]
    broken: list[BrokenFile]
