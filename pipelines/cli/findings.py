"""Check one mapping file offline: mistakes, doubtful settings, failing examples, and mismatches with a local source."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from connectors.sources.catalogue import open_source
from connectors.sources.contract import (
    NO_ACCESS,
    REAL_CLOCK,
    Access,
    BadSourceError,
    ColumnsError,
    MissingColumnsError,
    RepeatedColumnsError,
    SourceRefusedError,
)
from connectors.sources.files.opened_file import opened
from connectors.sources.files.source import choice_of
from mappings.compiler.mapper import compile_with_problems
from mappings.delivery import Drift
from mappings.errors import FileProblem, MappingFileError, SyncError
from mappings.event import Directory
from mappings.examples import ExampleFailure, run_examples
from mappings.lint.mistakes import find_missing_columns, places_of_column
from mappings.lint.warnings import FILL_IN, OPEN_ZONE, count_fill_ins
from mappings.outcome import MappedRow, Rejection, RowOutcome
from mappings.positions import MappingProblem, locate
from mappings.reasons import REASON_TEXTS, ReasonCode
from mappings.spec.command import ALLOW, NOT_ALLOWED
from mappings.spec.feed import FeedMapping
from mappings.spec.source import CommandSource, DelimitedSource
from mappings.yaml.loader import at_places, document_of, readable_document
from pipelines.cli.feed_files import shown_path
from pipelines.clock import now

_SAMPLE = 200
"""Number of rows that are mapped to check the mapping against its source."""


def _file_name(mapping: FeedMapping) -> str:
    return mapping.source.place.rpartition("/")[2]


def _look_at_source(mapping: FeedMapping) -> tuple[tuple[FileProblem, ...], tuple[FileProblem, ...]]:
    """Read the first rows of a local source; return the mapping's mistakes and the warnings that they show."""
    if not all(source.is_at_hand for source in (mapping.source, *(join.source for join in mapping.source.join))):
        return (), ()
    problems: list[MappingProblem] = []
    odd: Iterable[MappingProblem] = ()
    try:
        outcomes = _sample_of(mapping)
        problems = _garbled_rows(mapping, outcomes)
        odd = () if problems else _none_of(mapping, outcomes)
    except ColumnsError as error:
        problems = _columns_at_fault(mapping, error) or [MappingProblem(("source",), str(error), error.hint)]
    except SourceRefusedError:
        pass
    except SyncError as error:
        problems = _wrong_delimiter(mapping, error.delimiter) if isinstance(error, BadSourceError) else []
        odd = () if problems else [MappingProblem(("source", "path"), str(error), error.hint)]
    return at_places(mapping, problems), at_places(mapping, odd)


def _columns_at_fault(mapping: FeedMapping, error: ColumnsError) -> list[MappingProblem]:
    """Return a problem for each place that names a column with a fault, or the one cause of all."""
    document = document_of(mapping.path, mapping.folders)
    if isinstance(error, MissingColumnsError):
        missing = find_missing_columns(document, error.missing, error.nearest, _file_name(mapping))
        return _wrong_delimiter(mapping, error.delimiter) or _garbled_header(mapping, error.missing) or list(missing)
    names = error.columns if isinstance(error, RepeatedColumnsError) else ()
    return [MappingProblem(loc, str(error), error.hint) for name in names for loc in places_of_column(document, name)]


def _sample_of(mapping: FeedMapping) -> Sequence[RowOutcome]:
    mapper, _ = compile_with_problems(mapping, Directory(), now())
    with open_source(mapping.source, mapping.path.parent, mapper.columns, folders=mapping.folders).read() as reading:
        return [mapper(row) for row in islice(reading.rows, _SAMPLE)]


def _wrong_delimiter(mapping: FeedMapping, delimiter: str) -> list[MappingProblem]:
    """Return the wrong delimiter as the one cause of all missing columns; nothing if no other delimiter fits."""
    message = f"{_file_name(mapping)} separates its cells by {delimiter!r}"
    return [MappingProblem(("source", "delimiter"), message, f"write `delimiter: {json.dumps(delimiter)}`")] if delimiter else []


def _garbled_rows(mapping: FeedMapping, outcomes: Sequence[RowOutcome]) -> list[MappingProblem]:
    """Return a wrong encoding as the problem if most rows cannot be decoded and another encoding is likely."""
    codes = [{reason.code for reason in one.reasons} for one in outcomes if isinstance(one, Rejection)]
    bad = sum(ReasonCode.UNDECODABLE in one for one in codes)
    return _wrong_encoding(mapping, f"{bad} of its first {len(outcomes)} rows are rejected") if bad * 2 > len(outcomes) else []


def _garbled_header(mapping: FeedMapping, missing: Sequence[str]) -> list[MappingProblem]:
    """Return a wrong encoding as the problem if the missing columns are found when the file is read in the likely one."""
    lettered = frozenset(name for name in missing if not name.isascii())
    problems = _wrong_encoding(mapping, f"it seems to lack {', '.join(sorted(lettered))}") if lettered else []
    if problems:
        fitting = mapping.source.model_copy(update={"encoding": (_likely_encoding(mapping)[0],)})
        with suppress(MissingColumnsError), open_source(fitting, mapping.path.parent, lettered, folders=mapping.folders).read():
            return problems
    return []


def _wrong_encoding(mapping: FeedMapping, so: str) -> list[MappingProblem]:
    """Return the problem that a file is not in its declared encoding, with the consequence `so`; nothing if it seems to be."""
    encoding, why = _likely_encoding(mapping)
    agreed = mapping.source.encoding if isinstance(mapping.source, DelimitedSource) else ()
    if not encoding or codecs.lookup(encoding) in map(codecs.lookup, agreed):
        return []
    message = f"{_file_name(mapping)} is not in {' or '.join(agreed)}, so that {so}"
    return [MappingProblem(("source", "encoding"), message, f"write `encoding: {encoding}`: {why}")]


def _likely_encoding(mapping: FeedMapping) -> tuple[str, str]:
    """Return the likely encoding of a delimited file and the reason; "" if it is ASCII or not delimited."""
    source = mapping.source
    if not isinstance(source, DelimitedSource):
        return "", ""
    from mappings.draft.source import HEAD_BYTES, guess_encoding  # only here: it imports a detector of encodings

    with (
        choice_of(source, mapping.path.parent, REAL_CLOCK, mapping.folders).connected() as choice,
        opened(partial(choice.files.open, choice.found()[-1].path), source.member) as file,
    ):
        content = file.stream.read(HEAD_BYTES + 1)
    head = content[:HEAD_BYTES]
    return ("", "") if head.isascii() else guess_encoding(head, is_whole=head == content)[:2]


def _none_of(mapping: FeedMapping, outcomes: Sequence[RowOutcome]) -> Iterator[MappingProblem]:
    """Yield a problem if every row of the sample is rejected: then the mapping is wrong, not the rows."""
    rejected = [one for one in outcomes if isinstance(one, Rejection)]
    if rejected and not any(isinstance(one, MappedRow) for one in outcomes):
        reasons = Counter[str]()
        for one in rejected:
            reasons.update({f"{reason.field or 'the row'}: {REASON_TEXTS[reason.code]}" for reason in one.reasons})
        commonest = "; ".join(f"{text} ({count})" for text, count in reasons.most_common(3))
        message = f"none of the first {len(outcomes)} rows becomes an event, {len(rejected)} are rejected: {commonest}"
        yield MappingProblem(
            ("event",), message, f"`eventsync explain {mapping.feed} ROW` shows each step of the mapping for one row"
        )


def _barred_programs(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield a problem for each program that the feed would start; the environment allows none."""
    joined = ((("source", "join", place, "source"), join.source) for place, join in enumerate(mapping.source.join))
    for loc, source in ((("source",), mapping.source), *joined):
        if isinstance(source, CommandSource):
            yield MappingProblem((*loc, "run"), f"this feed starts a program: {NOT_ALLOWED}", ALLOW)


@dataclass(frozen=True, slots=True)
class ExampleFindings:
    """How many examples were run, and the expectations that failed."""

    run: int = 0
    failed: tuple[ExampleFailure, ...] = ()


Readiness = Literal["ready", "not ready", "could not be checked"]


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """One live check of a feed: its subject (`asked`), whether it passed, and the sentence for people (`told`).

    `severity`: ok, warning (nothing fails yet) or error. `difference`: where the service's OpenAPI page differs from what we
    send. `state`: whether the subject is ready, not ready, or could not be checked.
    """

    asked: str
    ok: bool
    told: str
    exit_code: int = 0
    severity: Literal["ok", "warning", "error"] = "ok"
    difference: Drift | None = None
    state: Readiness = "ready"


class CheckedFile(TypedDict):
    """What was found in one mapping file; `live` is present with --live. `fill_ins`: values still to be filled in."""

    feed: str
    path: Path
    fill_ins: int
    problems: Sequence[FileProblem]
    warnings: Sequence[FileProblem]
    examples: ExampleFindings
    live: NotRequired[Sequence[LiveFinding]]


def find(loaded: FeedMapping | MappingFileError, access: Access = NO_ACCESS) -> CheckedFile:
    """Check one mapping file offline. Paths are relative to the working folder; a broken file is named by its stem.

    `access`: whether the environment allows the programs that it names.
    """
    if isinstance(loaded, MappingFileError):
        feed, problems, warnings, examples = loaded.path.stem, loaded.problems, loaded.warnings, ExampleFindings()
    else:
        feed, (problems, odd) = loaded.feed, _look_at_source(loaded)
        barred = at_places(loaded, _barred_programs(loaded)) if access.programs is None else ()
        warnings, examples = (*loaded.warnings, *odd, *barred), ExampleFindings(len(loaded.examples), _failing_examples(loaded))
    fill_ins = 0
    if any(f'"{FILL_IN}"' in one.message or OPEN_ZONE in one.hint for one in warnings):
        folders = () if isinstance(loaded, MappingFileError) else loaded.folders
        fill_ins = count_fill_ins(readable_document(loaded.path, folders))
    path, problems, warnings = shown_path(loaded.path), _placed(problems), _placed(warnings)
    return CheckedFile(feed=feed, path=path, fill_ins=fill_ins, problems=problems, warnings=warnings, examples=examples)


_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def _failing_examples(mapping: FeedMapping) -> tuple[ExampleFailure, ...]:
    """Return the failed expectations, each with its line and column in the mapping file."""
    failed = run_examples(mapping)
    document = document_of(mapping.path, mapping.folders) if failed else {}
    placed = []
    for one in failed:
        parts = [int(index) if index else name for name, index in _PART.findall(one.field)]
        # A name may be written with its dots; `locate` ignores parts that the example lacks.
        dotted = (one.field, one.field.rpartition(".")[0])
        where, _ = locate(document, ("examples", one.number - 1, "event", "events", "rejected", "skipped", *dotted, *parts))
        placed.append(replace(one, line=where.line, column=where.column))
    return tuple(placed)


def is_sound(one: CheckedFile) -> bool:
    """Return whether the file can be used: no mistakes, and every example passed."""
    return not one["problems"] and not one["examples"].failed


def _placed(problems: tuple[FileProblem, ...]) -> tuple[FileProblem, ...]:
    """Make the file of each problem relative to the working folder."""
    return tuple(replace(problem, path=shown_path(problem.path)) for problem in problems)
