"""What is found in one mapping file offline: mistakes, unwise settings, failing examples, misfits with a local source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from connectors.sources.catalogue import open_source
from connectors.sources.contract import MissingColumnsError, SourceRefusedError
from mappings.compiler.mapper import RowMapper, compile_with_problems
from mappings.errors import FileProblem, MappingFileError, SyncError
from mappings.event import Directory
from mappings.examples import ExampleFailure, run_examples
from mappings.lint.mistakes import find_missing_columns
from mappings.lint.warnings import LookupUse, has_lists
from mappings.outcome import MappedRow, Rejection
from mappings.outgoing import Drift
from mappings.positions import MappingProblem
from mappings.reasons import REASON_TEXTS
from mappings.spec.feed import FeedMapping
from mappings.yaml.includes import included_by, including, is_shared
from mappings.yaml.loader import SUFFIXES, at_places, document_of
from pipelines.cli.feed_files import file_text, shown_path
from pipelines.clock import now

_MOST_ROWS = 50_000
"""A longer source is not examined: rows that were not read may use the entry."""
_SAMPLE = 200
"""So many rows are mapped."""


def _find_unasked(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield what no row of a source of 50,000 rows at most asks for in the lookups; nothing of a longer source.

    Raises:
        SyncError: the source cannot be read.
    """
    document = document_of(mapping.path)
    if not has_lists(mapping, document):
        return
    noting = LookupUse(mapping)
    mapper, _ = compile_with_problems(noting.mapping, Directory(), now(), noting.watch)
    with open_source(mapping.source, mapping.path.parent, mapper.columns).read() as reading:
        outcomes = mapper.over(islice(reading.rows, _MOST_ROWS + 1))
        count = sum(not outcome.part.is_further for outcome in outcomes)
    if count <= _MOST_ROWS:
        yield from noting.find_unasked(document, _file_name(mapping), count, _shared(mapping))


def _file_name(mapping: FeedMapping) -> str:
    return mapping.source.place.rpartition("/")[2]


def _shared(mapping: FeedMapping) -> Collection[str]:
    """Return those of a feed's lookup files, and of the files that it includes, that another feed of its folder needs as well."""
    files = [path for path in mapping.path.parent.glob("*") if path.suffix in SUFFIXES and path.name != mapping.path.name]
    texts = [file_text(path) for path in files if not is_shared(path) or including(path, files)]
    tables = {name for name in mapping.tables if any(Path(name).name in text for text in texts)}
    return tables | {str(path) for path in included_by(mapping.path) if including(path, files)}


def _look_at_source(mapping: FeedMapping) -> tuple[tuple[FileProblem, ...], tuple[FileProblem, ...]]:
    """Read the first rows of a source that is at hand; return what does not fit it, and what looks odd."""
    if not all(source.is_at_hand for source in (mapping.source, *(join.source for join in mapping.source.join))):
        return (), ()
    mapper, _ = compile_with_problems(mapping, Directory(), now())
    try:
        # Where all rows are rejected, lookups are not examined.
        odd = list(_none_of(mapping, mapper)) or _find_unasked(mapping)
        return (), at_places(mapping.path, odd)
    except MissingColumnsError as error:
        missing = find_missing_columns(document_of(mapping.path), error.missing, error.nearest, _file_name(mapping))
        return at_places(mapping.path, missing), ()
    except SourceRefusedError:
        return (), ()
    except SyncError as error:
        return (), at_places(mapping.path, [MappingProblem(("source", "path"), str(error), error.hint)])


def _none_of(mapping: FeedMapping, mapper: RowMapper) -> Iterator[MappingProblem]:
    """Yield a problem if every row of the sample is rejected: then it is the mapping that is wrong, not the rows."""
    with open_source(mapping.source, mapping.path.parent, mapper.columns).read() as reading:
        outcomes = [mapper(row) for row in islice(reading.rows, _SAMPLE)]
    rejected = [one for one in outcomes if isinstance(one, Rejection)]
    if rejected and not any(isinstance(one, MappedRow) for one in outcomes):
        reasons = Counter[str]()
        for one in rejected:
            reasons.update({f"{reason.field or 'the row'}: {REASON_TEXTS[reason.code]}" for reason in one.reasons})
        commonest = "; ".join(f"{text} ({count})" for text, count in reasons.most_common(3))
        message = f"none of the first {len(outcomes)} rows becomes an event, {len(rejected)} are rejected: {commonest}"
        yield MappingProblem(("event",), message, f"`eventsync explain {mapping.feed} ROW` shows each step of a row")


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
    severity: Literal["ok", "warning", "error"] = "ok"
    difference: Drift | None = None


class CheckedFile(TypedDict):
    """What was found in one mapping file; `live` is there with --live."""

    feed: str
    path: Path
    problems: Sequence[FileProblem]
    warnings: Sequence[FileProblem]
    examples: ExampleFindings
    live: NotRequired[Sequence[LiveFinding]]


def find(loaded: FeedMapping | MappingFileError) -> CheckedFile:
    """Check one file offline; paths are relative to the working folder. A file that is no feed is called by its stem."""
    if isinstance(loaded, MappingFileError):
        feed, problems, warnings, examples = loaded.path.stem, loaded.problems, loaded.warnings, ExampleFindings()
    else:
        feed, (problems, odd) = loaded.feed, _look_at_source(loaded)
        warnings, examples = (*loaded.warnings, *odd), ExampleFindings(len(loaded.examples), run_examples(loaded))
    path, problems, warnings = shown_path(loaded.path), _placed(problems), _placed(warnings)
    return CheckedFile(feed=feed, path=path, problems=problems, warnings=warnings, examples=examples)


def is_sound(one: CheckedFile) -> bool:
    """Whether the file may be used: no mistake, and every example came true."""
    return not one["problems"] and not one["examples"].failed


def _placed(problems: tuple[FileProblem, ...]) -> tuple[FileProblem, ...]:
    """Name the file of each problem: the feed's own, or one that it includes."""
    return tuple(replace(problem, path=shown_path(problem.path)) for problem in problems)
