"""What is found in one mapping file offline: mistakes, unwise settings, failing examples, misfits with a local source."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from connectors.event_api.contract_check import Drift
from connectors.sources.catalogue import open_source
from connectors.sources.errors import MissingColumnsError, SourceRefusedError
from mappings.compiler.mapper import Directory, RowMapper, compile_with_problems
from mappings.errors import FileProblem, MappingFileError, SyncError
from mappings.examples import ExampleFailure, run_examples
from mappings.lint.lookups import LookupUse, has_lists
from mappings.lint.mistakes import find_missing_columns
from mappings.outcome import MappedRow, Rejection, SourceRow
from mappings.positions import MappingProblem
from mappings.refusals import REASON_TEXTS
from mappings.spec.feed import FeedMapping
from mappings.yaml.includes import included_by, including, is_shared
from mappings.yaml.loader import SUFFIXES, at_places, document_of
from pipelines.cli.feed_files import shown_path
from pipelines.clock import now

_MOST_ROWS = 50_000
"""A longer source is not examined: rows that were not read may use the entry."""


def find_unasked(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield what no row of a source of 50,000 rows at most asks for in the lookups; nothing of a longer source.

    Raises:
        SyncError: the source cannot be read.
    """
    document = document_of(mapping.path)
    if not has_lists(mapping, document):
        return
    noting = LookupUse(mapping)
    mapper, _ = compile_with_problems(noting.mapping, Directory(), now(), noting.watch)
    count = _Count()
    with open_source(mapping.source, mapping.path.parent, mapper.columns).read() as reading:
        deque(mapper.over(count.of(islice(reading.rows, _MOST_ROWS + 1))), maxlen=0)
    if count.rows <= _MOST_ROWS:
        name = mapping.source.place.rpartition("/")[2]
        yield from noting.find_unasked(document, name, count.rows, _shared(mapping))


class _Count:
    """How many rows have gone by."""

    rows = 0

    def of(self, rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
        """Pass the rows on."""
        for row in rows:
            self.rows += 1
            yield row


def _shared(mapping: FeedMapping) -> Collection[str]:
    """Return those of a feed's lookup files, and of the files that it includes, that another feed of its folder needs as well."""
    files = [path for path in mapping.path.parent.glob("*") if path.suffix in SUFFIXES and path.name != mapping.path.name]
    texts = [_text(path) for path in files if not is_shared(path) or including(path, files)]
    tables = {name for name in mapping.tables if any(Path(name).name in text for text in texts)}
    return tables | {str(path) for path in included_by(mapping.path) if including(path, files)}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


LOOKED_AT = 200
"""So many rows are mapped."""


@dataclass(frozen=True, slots=True)
class SourceFindings:
    """What does not go together with the source (`problems`), and what looks odd (`warnings`)."""

    problems: tuple[FileProblem, ...] = ()
    warnings: tuple[FileProblem, ...] = ()


def look_at_source(mapping: FeedMapping) -> SourceFindings:
    """Read the first rows of a source that is at hand; nothing is found where it is not."""
    if not all(source.is_at_hand for source in (mapping.source, *(join.source for join in mapping.source.join))):
        return SourceFindings()
    mapper, _ = compile_with_problems(mapping, Directory(), now())
    try:
        return SourceFindings(warnings=at_places(mapping.path, _odd(mapping, mapper)))
    except MissingColumnsError as error:
        document = document_of(mapping.path)
        name = mapping.source.place.rpartition("/")[2]
        return SourceFindings(at_places(mapping.path, find_missing_columns(document, error.missing, error.nearest, name)))
    except SourceRefusedError:
        return SourceFindings()
    except SyncError as error:
        return SourceFindings(warnings=at_places(mapping.path, [MappingProblem(("source", "path"), str(error), error.hint)]))


def _odd(mapping: FeedMapping, mapper: RowMapper) -> Iterator[MappingProblem]:
    """Yield what the rows show; where all rows are rejected, lookups are not examined."""
    none = tuple(_none_of(mapping, mapper))
    yield from none or find_unasked(mapping)


def _none_of(mapping: FeedMapping, mapper: RowMapper) -> Iterator[MappingProblem]:
    """Say so if every row of the sample is rejected: then it is the mapping that is wrong, not the rows."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    with open_source(mapping.source, mapping.path.parent, mapper.columns).read() as reading:
        for outcome in map(mapper, islice(reading.rows, LOOKED_AT)):
            outcomes[type(outcome).__name__] += 1
            if isinstance(outcome, Rejection):
                reasons.update({f"{reason.field or 'the row'}: {REASON_TEXTS[reason.code]}" for reason in outcome.reasons})
    rejected = outcomes[Rejection.__name__]
    if rejected and not outcomes[MappedRow.__name__]:
        told = "; ".join(f"{text} ({count})" for text, count in reasons.most_common(3))
        message = f"none of the first {outcomes.total()} rows becomes an event, {rejected} are rejected: {told}"
        yield MappingProblem(("event",), message, f"`eventsync explain {mapping.feed} ROW` shows each step of a row")


Severity = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class ExampleFindings:
    """How many examples were run, and those parts that did not come true."""

    run: int = 0
    failed: tuple[ExampleFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """One question that was asked for a feed: of whom, whether all is well, and the answer for people.

    `severity`: ok, warning (nothing fails yet) or error. `difference`: where the service's page says otherwise than we do.
    """

    asked: str
    ok: bool
    told: str
    exit_code: int = 0
    severity: Severity = "ok"
    difference: Drift | None = None


def well(asked: str, told: str) -> LiveFinding:
    """All is well."""
    return LiveFinding(asked, ok=True, told=told)


def unwise(asked: str, told: str, difference: Drift | None = None) -> LiveFinding:
    """Nothing fails yet, but a person should look."""
    return LiveFinding(asked, ok=True, told=told, severity="warning", difference=difference)


def wrong(asked: str, told: str, exit_code: int, difference: Drift | None = None) -> LiveFinding:
    """Rows or runs would fail."""
    return LiveFinding(asked, ok=False, told=told, exit_code=exit_code, severity="error", difference=difference)


@dataclass(frozen=True, slots=True)
class FeedFindings:
    """All that was found in one mapping file. `feed` is the file's stem where the file cannot be read as a feed."""

    feed: str
    path: Path
    problems: tuple[FileProblem, ...] = ()
    warnings: tuple[FileProblem, ...] = ()
    examples: ExampleFindings = field(default=ExampleFindings())
    live: tuple[LiveFinding, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether the file may be used: no mistake, and every example came true."""
        return not self.problems and not self.examples.failed


def find(loaded: FeedMapping | MappingFileError) -> FeedFindings:
    """Check one file offline; paths are relative to the working folder."""
    path = shown_path(loaded.path)
    if isinstance(loaded, MappingFileError):
        return FeedFindings(loaded.path.stem, path, problems=_placed(loaded.problems), warnings=_placed(loaded.warnings))
    source = look_at_source(loaded)
    return FeedFindings(
        loaded.feed,
        path,
        problems=_placed(source.problems),
        warnings=_placed((*loaded.warnings, *source.warnings)),
        examples=ExampleFindings(len(loaded.examples), run_examples(loaded)),
    )


def _placed(problems: tuple[FileProblem, ...]) -> tuple[FileProblem, ...]:
    """Name the file of each problem: the feed's own, or one that it includes."""
    return tuple(replace(problem, path=shown_path(problem.path)) for problem in problems)
