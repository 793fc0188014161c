"""The command `preview` at work: rows are read and mapped, shown and counted; nothing is written anywhere.

How rows are counted is `preview_account`'s, how one is told `outcome_words`'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Source
from mappings.compiler.mapper import compile_feed
from mappings.outcome import RowOutcome, SourceRow
from mappings.spec.feed import FeedMapping
from pipelines.cli.feed_files import named_mapping
from pipelines.cli.known_lists import Known, known_lists
from pipelines.cli.outcome_words import OutcomeKind, kind_of, outcome_document, outcome_told
from pipelines.cli.output import Output, Progress
from pipelines.cli.preview_account import PreviewAccount
from pipelines.cli.preview_claims import Claims, Foreseen
from pipelines.cli.shelf import open_shelf
from pipelines.cli.unmapped import COLUMNS
from pipelines.clock import now
from pipelines.settings import current_settings


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants to see: the first `count` rows, all or `only` those of a kind; `is_whole`: count all there are."""

    count: int
    only: OutcomeKind | None = None
    is_whole: bool = False

    @property
    def most_read(self) -> int | None:
        """So many rows need be read; None: as many as it takes."""
        return None if self.is_whole or self.only else self.count


def preview_feed(word: str, wanted: Wanted, *, as_json: bool) -> int:
    """Show the rows wanted and what becomes of them.

    Raises:
        SyncError: the mapping is broken, names a channel that the key does not have, or the source cannot be read.
    """
    settings, output = current_settings(), Output(json=as_json)
    mapping = named_mapping(settings, word)
    known = known_lists(settings)
    mapper = compile_feed(mapping, known.directory, now())
    account, claims = PreviewAccount(), Claims()
    source = open_source(mapping.source, mapping.path.parent, mapper.columns, access=settings.access)
    with (
        output.progress(f"reading {mapping.feed}") as bar,
        closing(_Reading(account, claims, bar, wanted).of(source, mapper.over)) as outcomes,
    ):
        met = list(_shown(outcomes, wanted))
        # Whether the source ends here is known only by asking for one row more.
        is_at_end = next(outcomes, None) is None if wanted.only and not wanted.is_whole else account.read < wanted.count
        deque(outcomes if wanted.is_whole else (), maxlen=0)
    account.is_whole = wanted.is_whole or is_at_end
    first = [outcome for outcome in map(claims.in_the_end, met) if wanted.only in {None, kind_of(outcome)}]
    with open_shelf(settings) as shelf:
        estranged = () if shelf.has_delivered(mapping.feed) else shelf.estranged()
    output.document({**_document(mapping, known, first, account), "estranged": estranged})
    if not as_json:
        _show(output, mapping, known, first, account)
        for sentence in estranged:
            output.note(sentence)
    return 0


@dataclass(frozen=True, slots=True)
class _Reading:
    """A source being read by somebody who wants to see some of its rows: each is counted as what a run would make of it."""

    account: PreviewAccount
    claims: Claims
    bar: Progress
    wanted: Wanted

    def of(self, source: Source, over: Callable[[Iterable[SourceRow]], Iterator[RowOutcome]]) -> Generator[Foreseen, None, None]:
        """Yield what becomes of each row, and of an earlier event once it is known to be none where rejected rows are wanted."""
        with source.read() as reading:
            for outcome in over(islice(reading.rows, self.wanted.most_read)):
                foreseen = self.claims.foresee(outcome)
                for row in self.claims.taken_back():
                    self.account.take_back(row)
                    if self.wanted.only == "rejected":
                        yield row.rejection
                self.account.take(foreseen)
                self.bar.advance(not outcome.part.is_further)
                yield foreseen


def _shown(outcomes: Iterable[Foreseen], wanted: Wanted) -> Iterable[Foreseen]:
    """Yield all that becomes of the first rows wanted; nothing is read beyond them."""
    if not wanted.count:
        return
    rows = 0
    for outcome in outcomes:
        if wanted.only is None:
            rows += not outcome.part.is_further
            if rows > wanted.count:
                return
            yield outcome
        elif kind_of(outcome) == wanted.only:
            rows += 1
            yield outcome
            if rows == wanted.count:
                return


def _document(mapping: FeedMapping, known: Known, first: Iterable[Foreseen], account: PreviewAccount) -> dict[str, Any]:
    return {
        "feed": mapping.feed,
        "lists": known.lists,
        "why_offline": known.why_offline,
        "rows": [outcome_document(outcome) for outcome in first],
        "account": account.document(),
    }


def _show(output: Output, mapping: FeedMapping, known: Known, first: Iterable[Foreseen], account: PreviewAccount) -> None:
    if known.sentence:
        output.note(f"{known.sentence}\n")
    for outcome in first:
        output.note(outcome_told(outcome))
    output.note(_account_line(account))
    for name, counts in (("left out", account.skipped), ("problems", account.codes)):
        if counts:
            output.note(f"  {name}: " + ", ".join(f"{label} {count:,}" for label, count in counts.most_common()))
    if unmapped := account.misses.values:
        output.table("values that no lookup knows", COLUMNS, [one.line for one in unmapped])
    output.note(f"nothing was written or sent; `eventsync run {mapping.feed} --dry-run` compares with what was sent before")


def _account_line(account: PreviewAccount) -> str:
    terms = [f"events {account.events:,}", f"left out {account.skipped.total():,}"]
    terms += [f"{how} {count:,}" for how, count in account.absorbed.items()]
    so_far = "the whole source" if account.is_whole else "so far; --all reads the whole source"
    expanded = f" + expanded {account.expanded:,}" if account.expanded else ""
    terms += [f"rejected {account.rejected:,}", *([f"held {account.held:,}"] if account.held else [])]
    return f"read {account.read:,} ({so_far}){expanded} = {' + '.join(terms)}"
