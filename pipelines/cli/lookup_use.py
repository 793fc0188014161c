"""A feed's lookups held against all rows of a source that is at hand: what in them is asked for by no row.

What is said of it is `mappings.lint_lookups`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from connectors.sources.catalogue import open_source
from mappings.compiler.mapper import Directory, compile_with_problems
from mappings.includes import included_by, including, is_shared
from mappings.lint_lookups import LookedAt, asked, has_lists
from mappings.loader import SUFFIXES, document_of
from mappings.outcome import SourceRow
from mappings.schema import FeedMapping
from mappings.spots import Problem
from pipelines.clock import now

_MOST_ROWS = 50_000
"""A longer source is not looked through: of what nobody asks for in a part of it, nothing is known."""


def find_unasked(mapping: FeedMapping) -> Iterator[Problem]:
    """Yield what no row of a source of 50,000 rows at most asks for in the lookups; nothing of a longer source.

    Raises:
        SyncError: the source cannot be read.
    """
    document = document_of(mapping.path)
    if not has_lists(mapping, document):
        return
    noting = asked(mapping)
    mapper, _ = compile_with_problems(noting.mapping, Directory(), now(), noting.watch)
    count = _Count()
    with open_source(mapping.source, mapping.path.parent, mapper.columns).read() as reading:
        deque(mapper.over(count.of(islice(reading.rows, _MOST_ROWS + 1))), maxlen=0)
    if count.rows <= _MOST_ROWS:
        looked = LookedAt(mapping.source.place.rpartition("/")[2], count.rows)
        yield from noting.find_unasked(document, looked, _shared(mapping))


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
