"""`eventsync preview`: what the mapping makes of the source's rows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Literal, assert_never

import typer
from typing_extensions import TypedDict

from pipelines.cli.completion import feed_words
from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from connectors.sources.catalogue import open_source
    from mappings.compiler.mapper import RowMapper, compile_feed
    from mappings.outcome import Absorbed, Absorption, Gone, MappedRow, Rejection, Skipped, SourceRow
    from mappings.spec.feed import FeedMapping
    from pipelines.cli.feed_files import named_mapping
    from pipelines.cli.output.console import Output, Progress
    from pipelines.cli.row_outcomes import (
        Claims,
        Foreseen,
        Held,
        Outcome,
        OutcomeKind,
        TakenBack,
        kind_of,
        outcome_document,
        outcome_told,
    )
    from pipelines.cli.service_lists import ResolvedLists, known_lists
    from pipelines.cli.state_reader import open_state
    from pipelines.cli.unmapped import COLUMNS, Misses, Unmapped
    from pipelines.clock import now
    from pipelines.settings import current_settings

FeedOrFile = Annotated[
    str, typer.Argument(metavar="FEED", help="A feed, or the path of a mapping file.", autocompletion=feed_words)
]


def preview(
    feed: FeedOrFile,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Show the first N rows, or the first N of those asked for.")] = 10,
    only: Annotated[
        Literal["events", "rejected", "held", "skipped"] | None, typer.Option("--only", help="Show only rows that become this.")
    ] = None,
    read_all: Annotated[bool, typer.Option("--all", help="Read the source to its end for the account.")] = False,
    as_json: AsJson = False,
) -> int:
    """Read the source and show what becomes of its rows; nothing is written or sent.

    For example:

        # The first ten rows
        eventsync preview lisbon-agenda
        # The first five rows that are rejected, and why
        eventsync preview lisbon-agenda --rows 5 --only rejected
        # Only the account of the whole source
        eventsync preview lisbon-agenda --rows 0 --all
        # A file that you are writing
        eventsync preview drafts/lisbon.yaml --rows 3

    Reading ends with the last row shown, unless --all is given. Rows of one key that contradict each other are rejected
    once both are read, as in a run; with --all the counts are those of a first run. Channels and classifications are the
    service's where it answers; without it any slug is accepted and channel ids are stand-ins, which the output says.
    `eventsync run FEED --dry-run` shows what a run would send, compared with what was sent before. Exit code 0, also with
    rejected rows.
    """
    settings, output = current_settings(), Output(json=as_json)
    mapping = named_mapping(settings, feed)
    known = known_lists(settings)
    mapper = compile_feed(mapping, known.directory, now())
    account, claims = PreviewCounts(), Claims()
    source = open_source(mapping.source, mapping.path.parent, mapper.columns, access=settings.access)
    with (
        output.progress(f"reading {mapping.feed}") as bar,
        source.read() as reading,
    ):
        most_read = None if read_all or only else rows
        outcomes = _outcomes(islice(reading.rows, most_read), mapper, account, claims, bar, only)
        met = list(_shown(outcomes, rows, only))
        # Whether the source ends here is known only by asking for one row more.
        is_at_end = next(outcomes, None) is None if only and not read_all else account.read < rows
        deque(outcomes if read_all else (), maxlen=0)
    account.is_whole = read_all or is_at_end
    first = [outcome for outcome in map(claims.in_the_end, met) if only in {None, kind_of(outcome)}]
    with open_state(settings) as reader:
        estranged = () if reader.has_delivered(mapping.feed) else reader.estranged()
    output.document(
        Preview(
            feed=mapping.feed,
            lists=known.lists,
            why_offline=known.why_offline,
            rows=[outcome_document(outcome) for outcome in first],
            account=account.document(),
            estranged=estranged,
        )
    )
    if not as_json:
        _show(output, mapping, known, first, account)
        for sentence in estranged:
            output.note(sentence)
    return 0


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
    unmapped: Sequence[Unmapped]


class Preview(TypedDict):
    """The rows asked for, and what a run would make of them. `estranged`: as in the document of `status`."""

    feed: str
    lists: Literal["live", "offline"]
    why_offline: str
    rows: Sequence[Outcome]
    account: PreviewAccount
    estranged: tuple[str, ...]


@dataclass(slots=True)
class PreviewCounts:
    """`read + expanded = events + skipped + absorbed + rejected + held`, as a first run counts. `is_whole`: all was read.

    `expanded`: events that rows gave beyond one each; `absorbed`: rows that another row of their key speaks for, by how;
    `held`: rows that look like copies of others.

    `skipped` counts by the rule's label, `codes` the problems by their code (a row may have several), `warned` the rows
    that became events with a warning.
    """

    read: int = 0
    expanded: int = 0
    events: int = 0
    rejected: int = 0
    held: int = 0
    warned: int = 0
    is_whole: bool = False
    skipped: Counter[str] = field(default_factory=Counter)
    gone: int = 0
    absorbed: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    misses: Misses = field(default_factory=lambda: Misses())  # noqa: PLW0108  # imported for work only

    def take(self, outcome: Foreseen) -> None:
        """Count one row, or one of its events."""
        self.read += not outcome.part.is_further
        self.expanded += outcome.part.is_further
        match outcome:
            case MappedRow():
                self.events += 1
                self.warned += bool(outcome.warnings)
                self.misses.take(outcome.warnings)
            case Rejection():
                self.rejected += 1
                self.codes.update(reason.code.value for reason in outcome.reasons)
                self.misses.take(outcome.reasons)
            case Held():
                self.held += 1
            case Skipped():
                self.skipped[outcome.because] += 1
            case Absorbed():
                self.absorbed[outcome.into.value] += 1
            case Gone():
                self.gone += 1
            case _:
                assert_never(outcome)

    def take_back(self, row: TakenBack) -> None:
        """Count an event as the rejected row that it turned out to be."""
        self.events -= 1
        self.warned -= row.was_warned
        self.rejected += 1
        self.codes.update(reason.code.value for reason in row.rejection.reasons)

    def document(self) -> PreviewAccount:
        """Return it as scripts read it."""
        return PreviewAccount(
            read=self.read,
            is_whole=self.is_whole,
            expanded=self.expanded,
            events=self.events,
            skipped=dict(self.skipped.most_common()),
            duplicate=self.absorbed[Absorption.DUPLICATE.value],
            grouped=self.absorbed[Absorption.GROUPED.value],
            rejected=self.rejected,
            held=self.held,
            reasons=dict(self.codes.most_common()),
            warned=self.warned,
            unmapped=self.misses.values,
        )


def _outcomes(
    rows: Iterable[SourceRow], mapper: RowMapper, account: PreviewCounts, claims: Claims, bar: Progress, only: OutcomeKind | None
) -> Iterator[Foreseen]:
    """Yield what becomes of each row, counted; where rejected rows are wanted, also events that a later row contradicts."""
    for outcome in mapper.over(rows):
        foreseen = claims.foresee(outcome)
        for row in claims.taken_back():
            account.take_back(row)
            if only == "rejected":
                yield row.rejection
        account.take(foreseen)
        bar.advance(not outcome.part.is_further)
        yield foreseen


def _shown(outcomes: Iterable[Foreseen], count: int, only: OutcomeKind | None) -> Iterator[Foreseen]:
    """Yield all that becomes of the first rows wanted; nothing is read beyond them."""
    if not count:
        return
    rows = 0
    for outcome in outcomes:
        if only is None:
            rows += not outcome.part.is_further
            if rows > count:
                return
            yield outcome
        elif kind_of(outcome) == only:
            rows += 1
            yield outcome
            if rows == count:
                return


def _show(output: Output, mapping: FeedMapping, known: ResolvedLists, first: Iterable[Foreseen], account: PreviewCounts) -> None:
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


def _account_line(account: PreviewCounts) -> str:
    terms = [f"events {account.events:,}", f"left out {account.skipped.total():,}"]
    terms += [f"{how} {count:,}" for how, count in account.absorbed.items()]
    so_far = "the whole source" if account.is_whole else "so far; --all reads the whole source"
    expanded = f" + expanded {account.expanded:,}" if account.expanded else ""
    terms += [f"rejected {account.rejected:,}", *([f"held {account.held:,}"] if account.held else [])]
    return f"read {account.read:,} ({so_far}){expanded} = {' + '.join(terms)}"
