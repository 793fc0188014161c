"""The command `preview` at work: rows are read and mapped, shown and counted; nothing is written anywhere.

How rows are counted is `preview_account`'s, how one is told `outcome_words`'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Source
from mappings.engine import RowMapper, compile_feed
from mappings.schema import FeedMapping
from mappings.vocabulary import RowOutcome
from pipelines.cli.feed_files import named_mapping
from pipelines.cli.known_lists import Known, known_lists
from pipelines.cli.outcome_words import OutcomeKind, kind_of, outcome_document, outcome_told
from pipelines.cli.output import Output, Progress
from pipelines.cli.preview_account import PreviewAccount
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
    account = PreviewAccount()
    source = open_source(mapping.source, mapping.path.parent, mapper.columns, access=settings.access)
    with (
        output.progress(f"reading {mapping.feed}") as bar,
        closing(_read(source, mapper, account, bar, wanted.most_read)) as outcomes,
    ):
        first = list(_shown(outcomes, wanted))
        # Whether the source ends here is known only by asking for one row more.
        is_at_end = next(outcomes, None) is None if wanted.only and not wanted.is_whole else account.read < wanted.count
        deque(outcomes if wanted.is_whole else (), maxlen=0)
    account.is_whole = wanted.is_whole or is_at_end
    output.document(_document(mapping, known, first, account))
    if not as_json:
        _show(output, mapping, known, first, account)
    return 0


def _read(
    source: Source, mapper: RowMapper, account: PreviewAccount, bar: Progress, most: int | None
) -> Generator[RowOutcome, None, None]:
    """Yield what becomes of each row, counted, up to `most` of them."""
    with source.read() as reading:
        for outcome in mapper.over(islice(reading.rows, most)):
            account.take(outcome)
            bar.advance(not outcome.part.is_further)
            yield outcome


def _shown(outcomes: Iterable[RowOutcome], wanted: Wanted) -> Iterable[RowOutcome]:
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


def _document(mapping: FeedMapping, known: Known, first: Iterable[RowOutcome], account: PreviewAccount) -> dict[str, Any]:
    return {
        "feed": mapping.feed,
        "lists": known.lists,
        "why_offline": known.why_offline,
        "rows": [outcome_document(outcome) for outcome in first],
        "account": account.document(),
    }


def _show(output: Output, mapping: FeedMapping, known: Known, first: Iterable[RowOutcome], account: PreviewAccount) -> None:
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
    return f"read {account.read:,} ({so_far}){expanded} = {' + '.join([*terms, f'rejected {account.rejected:,}'])}"
