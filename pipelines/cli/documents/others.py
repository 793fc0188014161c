"""The documents that are about no feed in particular: errors, the state DB, monitors, the language's own pages, the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from mappings.errors import FileProblem
from pipelines.telemetry.metrics import Gauge
from state.archive.entry_checks import Finding


class Error(TypedDict):
    """Why a command could not do what it was asked for, and what would help. `problems`: every mistake of a mapping file;
    `retry_after_s`: how long the other side asked to wait, if it did.
    """

    type: str
    message: str
    hint: str
    problems: NotRequired[list[FileProblem]]
    retry_after_s: NotRequired[float | None]


class ErrorDocument(TypedDict):
    """What any verb prints in place of its own document where it fails; the exit code says the same in short."""

    error: Error


class Metrics(TypedDict):
    """The numbers that monitors watch; `out`: the file they were written to."""

    metrics: list[Gauge]
    out: NotRequired[Path]


class Serving(TypedDict):
    """Where the numbers are served, and the process to signal."""

    url: str
    pid: int


class SandboxAnnouncement(TypedDict):
    """Where the sandbox listens, the secret of its default key, and the process to signal."""

    base_url: str
    api_key: str
    pid: int


class Verified(TypedDict):
    """What was looked at, and everything that is not as it must be."""

    state_db: str
    schema: str | None
    entries: int
    runs: int
    findings: list[Finding]


class PrunedCounts(TypedDict):
    """How many went: raw cells of old problems, accounts of old runs, answers of delivered rows, backfills that are done or
    cancelled, and notices that something is over which reached nobody.
    """

    problems: int
    runs: int
    answers: int
    backfills: int
    notices: int


class KeptCounts(TypedDict):
    """How many stayed though as old: on a feed's present list, needed by its next run or its brakes, with slices left."""

    problems: int
    runs: int
    backfills: int


class Pruned(TypedDict):
    """What was taken out that is older than `before`, or would be (`is_dry`)."""

    state_db: str
    before: datetime
    is_dry: bool
    removed: PrunedCounts
    kept: KeptCounts


class Exported(TypedDict):
    """The file that the state DB was written to, with the number of rows of each table."""

    state_db: str
    file: Path
    bytes: int
    rows: Mapping[str, int]


class Imported(TypedDict):
    """The file that the state DB was filled from."""

    state_db: str
    file: Path
    rows: Mapping[str, int]


class Migrated(TypedDict):
    """From where to where the state DB was moved."""

    from_: Annotated[str, Field(serialization_alias="from")]
    to: str
    rows: Mapping[str, int]


class Renamed(TypedDict):
    """From where to where a service has moved, the feeds that moved with it, and how many rows of each table."""

    state_db: str
    from_: Annotated[str, Field(serialization_alias="from")]
    to: str
    feeds: tuple[str, ...]
    rows: Mapping[str, int]


class SchemaFile(TypedDict):
    """The file that a JSON Schema was written to; printed, the schema itself is the document."""

    schema: Path


class Section(TypedDict):
    """A part of the language's reference, in plain words."""

    chapter: str
    heading: str
    words: list[str]
    meaning: str
    tables: list[list[Mapping[str, str]]]


class Vocabulary(TypedDict):
    """What a word of the language means; without a word, all there is."""

    word: str | None
    sections: list[Section]


AnySchema = dict[str, Any]
"""A JSON Schema, as draft 2020-12 tells what that is."""
