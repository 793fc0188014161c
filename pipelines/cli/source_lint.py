"""What a mapping file says of its source, held against the source itself where that is a file of this machine: a quick look.

Sources elsewhere are asked by `check --live` only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from connectors.sources.catalogue import open_source
from connectors.sources.errors import MissingColumnsError, SourceRefusedError
from mappings.compiler.mapper import Directory, RowMapper, compile_with_problems
from mappings.errors import FileProblem, SyncError
from mappings.lint_columns import find_missing_columns
from mappings.loader import at_places, document_of
from mappings.outcome import MappedRow, Rejection
from mappings.refusals import REASON_TEXTS
from mappings.schema import FeedMapping
from mappings.spots import Problem
from pipelines.cli.lookup_use import find_unasked
from pipelines.clock import now

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
        return SourceFindings(warnings=at_places(mapping.path, [Problem(("source", "path"), str(error), error.hint)]))


def _odd(mapping: FeedMapping, mapper: RowMapper) -> Iterator[Problem]:
    """Yield what the rows show; of rows that are all rejected, their lookups tell nothing."""
    none = tuple(_none_of(mapping, mapper))
    yield from none or find_unasked(mapping)


def _none_of(mapping: FeedMapping, mapper: RowMapper) -> Iterator[Problem]:
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
        yield Problem(("event",), message, f"`eventsync explain {mapping.feed} ROW` shows each step of a row")
