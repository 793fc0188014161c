"""`eventsync preview`: what the mapping makes of the source's rows in a first run, also duplicates and contradictions."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Literal, NotRequired

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, FeedOrFile

if IS_WORKING:
    from connectors.sources.catalogue import open_source
    from mappings.compiler.mapper import RowMapper, compile_feed
    from mappings.outcome import (
        Absorbed,
        Absorption,
        Cover,
        Gone,
        MappedRow,
        Part,
        Rejection,
        RowLocation,
        RowOutcome,
        Skipped,
        SourceRow,
        if_unknown,
        too_long_key,
    )
    from mappings.reasons import REASON_TEXTS, Reason, ReasonCode
    from mappings.row_key import RowKey
    from pipelines.cli.feed_files import named_mapping
    from pipelines.cli.output.console import Output, Progress, counts_line, document_from
    from pipelines.cli.run_report import UNMAPPED_COLUMNS, Misses, Unmapped
    from pipelines.cli.service_lists import known_lists
    from pipelines.cli.state_reader import open_state
    from pipelines.clock import now
    from pipelines.settings import current_settings

OutcomeKind = Literal["events", "rejected", "held", "skipped"]


def preview(
    feed: FeedOrFile,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Show the first N rows, or the first N of those asked for.")] = 10,
    only: Annotated[OutcomeKind | None, typer.Option("--only", help="Show only rows that become this.")] = None,
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
    counts, claims = PreviewCounts(), Claims()
    source = open_source(mapping.source, mapping.path.parent, mapper.columns, access=settings.access)
    with output.progress(f"reading {mapping.feed}") as bar, source.read() as reading:
        most_read = None if read_all or only else rows
        outcomes = _outcomes(islice(reading.rows, most_read), mapper, counts, claims, bar, only)
        shown = list(_shown(outcomes, rows, only))
        # Whether the source ends here is known only by reading one row more.
        is_at_end = next(outcomes, None) is None if only and not read_all else counts.rows["read"] < rows
        deque(outcomes if read_all else (), maxlen=0)
    first = [outcome for outcome in map(claims.in_the_end, shown) if only in {None, kind_of(outcome)}]
    account = counts.document(is_whole=read_all or is_at_end)
    with open_state(settings) as reader:
        estranged = () if reader.has_delivered(mapping.feed) else reader.estranged()
    output.document(
        Preview(
            feed=mapping.feed,
            lists=known.lists,
            why_offline=known.why_offline,
            rows=[outcome_document(outcome) for outcome in first],
            account=account,
            estranged=estranged,
        )
    )
    if as_json:
        return 0
    output.note(*filter(None, [known.sentence and f"{known.sentence}\n"]), *map(outcome_text, first))
    _show_account(output, account)
    output.note(f"nothing was written or sent; `eventsync run {mapping.feed} --dry-run` compares with what was sent before")
    output.note(*estranged)
    return 0


class Outcome(TypedDict):
    """What becomes of a row; of event, rejected, held (as a copy of that row), skipped, absorbed and gone it has one."""

    place: str
    row_key: str
    warnings: Sequence[Reason]
    event: NotRequired[dict[str, Any]]
    cover: NotRequired[Cover]
    rejected: NotRequired[Sequence[Reason]]
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
    unmapped: Sequence[Unmapped]


class Preview(TypedDict):
    """The rows asked for, and what a run would make of them. `estranged`: as in the document of `status`."""

    feed: str
    lists: Literal["live", "offline"]
    why_offline: str
    rows: Sequence[Outcome]
    account: PreviewAccount
    estranged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A row that a run would hold: it looks like a copy of the row with the key `original_key`."""

    location: RowLocation
    row_key: RowKey
    original_key: RowKey
    part: Part


if IS_WORKING:
    Foreseen = RowOutcome | Held
    """What a first run would make of a row."""


@dataclass(slots=True)
class Claims:
    """The first row of each key, without what it holds; memory grows with their number."""

    _first: dict[RowKey, MappedRow] = field(default_factory=dict)
    _contradicted: dict[RowKey, Rejection] = field(default_factory=dict)
    _originals: dict[bytes, RowKey] = field(default_factory=dict)

    def foresee(self, outcome: RowOutcome) -> tuple[Foreseen, MappedRow | None]:
        """Return what a run makes of the next row's outcome, and the earlier row that is no event any more because of it."""
        outcome = if_unknown(outcome)
        if not isinstance(outcome, MappedRow):
            return outcome, None
        key = outcome.row_key
        first = self._first.get(key)
        if first is None:
            return self._claim(outcome), None
        is_contradicted = key in self._contradicted
        if outcome.fingerprint == first.fingerprint and not is_contradicted:
            return Absorbed(outcome.location, key, Absorption.DUPLICATE, outcome.part), None
        self._contradicted.setdefault(key, _claimed_twice(first, f"another one is at {outcome.location}"))
        return _claimed_twice(outcome, f"the first one is at {first.location}"), None if is_contradicted else first

    def in_the_end(self, outcome: Foreseen) -> Foreseen:
        """Return what became of a row by now: an event may meanwhile stand against another row."""
        contradicted = self._contradicted.get(outcome.row_key)
        if not isinstance(outcome, MappedRow) or contradicted is None:
            return outcome
        return replace(contradicted, cells=outcome.cells, part=outcome.part)

    def _claim(self, row: MappedRow) -> Foreseen:
        if rejection := too_long_key(row):
            return rejection
        original = self._originals.setdefault(row.duplicate_digest, row.row_key)
        if original != row.row_key:
            return Held(row.location, row.row_key, original, row.part)
        self._first[row.row_key] = replace(row, body=b"", cells={})
        return row


def _claimed_twice(row: MappedRow, hint: str) -> Rejection:
    reason = Reason(ReasonCode.DUPLICATE_KEY, "", "", row.row_key, hint)
    return Rejection(row.location, row.row_key, (reason,), row.cells, part=row.part)


_COUNTED = ("read", "expanded", "events", "duplicate", "grouped", "rejected", "held", "warned")


@dataclass(slots=True)
class PreviewCounts:
    """`read + expanded = events + skipped + duplicate + grouped + rejected + held`, as a first run counts.

    `skipped` counts by the rule's label, `reasons` the problems by their code (a row may have several).
    """

    rows: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    misses: Misses = field(default_factory=lambda: Misses())  # noqa: PLW0108  # imported for work only

    def take(self, outcome: Foreseen) -> None:
        """Count one row, or one of its events."""
        self.rows["expanded" if outcome.part.is_further else "read"] += 1
        self.rows[kind_of(outcome)] += 1
        match outcome:
            case MappedRow():
                self.rows["warned"] += bool(outcome.warnings)
                self.misses.take(outcome.warnings)
            case Rejection():
                self.reasons.update(reason.code.value for reason in outcome.reasons)
                self.misses.take(outcome.reasons)
            case Skipped():
                self.skipped[outcome.because] += 1
            case Absorbed():
                self.rows[outcome.into.value] += 1
            case _:
                pass

    def take_back(self, row: MappedRow) -> None:
        """Count an event as the rejected row that it turned out to be."""
        self.rows.update({"events": -1, "rejected": 1, "warned": -bool(row.warnings)})
        self.reasons[ReasonCode.DUPLICATE_KEY.value] += 1

    def document(self, *, is_whole: bool) -> PreviewAccount:
        """Return it as scripts read it."""
        skipped, reasons = dict(self.skipped.most_common()), dict(self.reasons.most_common())
        counts = {name: self.rows[name] for name in _COUNTED}
        others = {"is_whole": is_whole, "skipped": skipped, "reasons": reasons, "unmapped": self.misses.values}
        return document_from(PreviewAccount, None, **counts, **others)


def _outcomes(
    rows: Iterable[SourceRow], mapper: RowMapper, counts: PreviewCounts, claims: Claims, bar: Progress, only: OutcomeKind | None
) -> Iterator[Foreseen]:
    """Yield what becomes of each row, counted; where rejected rows are wanted, also events that a later row contradicts."""
    for outcome in mapper.over(rows):
        foreseen, contradicted = claims.foresee(outcome)
        if contradicted:
            counts.take_back(contradicted)
            if only == "rejected":
                yield claims.in_the_end(contradicted)
        counts.take(foreseen)
        bar.advance(not outcome.part.is_further)
        yield foreseen


def _shown(outcomes: Iterable[Foreseen], count: int, only: OutcomeKind | None) -> Iterator[Foreseen]:
    """Yield all that becomes of the first rows wanted; nothing is read beyond them."""
    rows = 0
    for outcome in outcomes if count else ():
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


def _show_account(output: Output, account: PreviewAccount) -> None:
    so_far = "the whole source" if account["is_whole"] else "so far; --all reads the whole source"
    expanded = f" + expanded {account['expanded']:,}" if account["expanded"] else ""
    terms = {"events": account["events"], "left out": sum(account["skipped"].values()), "duplicate": account["duplicate"]}
    terms |= {"grouped": account["grouped"], "rejected": account["rejected"], "held": account["held"]}
    always = {"events", "left out", "rejected"}
    shown = " + ".join(f"{name} {count:,}" for name, count in terms.items() if count or name in always)
    output.note(f"read {account['read']:,} ({so_far}){expanded} = {shown}")
    for name, counts in (("left out", account["skipped"]), ("problems", account["reasons"])):
        if counts:
            output.note(f"  {name}: {counts_line(counts)}")
    if unmapped := account["unmapped"]:
        output.table("values that no lookup knows", UNMAPPED_COLUMNS, [one.line for one in unmapped])


def kind_of(outcome: Foreseen) -> OutcomeKind:
    """Return the word by which people ask for outcomes like this one; a row that another speaks for is no event."""
    match outcome:
        case MappedRow():
            return "events"
        case Rejection():
            return "rejected"
        case Held():
            return "held"
        case _:
            return "skipped"


def outcome_document(outcome: Foreseen) -> Outcome:
    """Return an outcome as scripts read it, with the row's place and key."""
    document = Outcome(place=outcome.location.place, row_key=outcome.row_key, warnings=())
    match outcome:
        case MappedRow():
            document["event"] = json.loads(outcome.body)
            document["warnings"] = outcome.warnings
            if outcome.cover:
                document["cover"] = outcome.cover
        case Rejection():
            document["rejected"] = outcome.reasons
        case Held():
            document["held"] = outcome.original_key
        case Skipped():
            document["skipped"] = outcome.because
        case Absorbed():
            document["absorbed"] = outcome.into
        case Gone():
            document["gone"] = True
    return document


def outcome_text(outcome: Foreseen) -> str:
    """Return an outcome as text: the payload with its warnings, each reason with what would be accepted, or the rule's label."""
    key, lines = outcome.row_key, []
    match outcome:
        case MappedRow():
            head = f"event {key}"
            lines = json.dumps(json.loads(outcome.body), indent=2, ensure_ascii=False).splitlines()
            lines += [f"cover image: {outcome.cover.url}"] if outcome.cover else []
            lines += [f"outside the window: {outcome.outside}; compared with what was sent"] if outcome.outside else []
            lines += [f"warning: {_reason_text(reason)}" for reason in outcome.warnings]
        case Rejection():
            head, lines = f"REJECTED {key}".rstrip(), [_reason_text(reason) for reason in outcome.reasons]
        case Held():
            head = f"HELD {key}: it looks like a copy of {outcome.original_key}"
        case Skipped():
            head = f'left out by the rule labelled "{outcome.because}"'
        case Absorbed():
            head = f"{outcome.into}: another row of the key {key} speaks for it"
        case Gone():
            head = f"gone: its source says that {key or 'the row'} was deleted"
    return "\n".join([f"{outcome.location}  {head}", *(f"  {line}" for line in lines)]) + "\n"


def _reason_text(reason: Reason) -> str:
    """Return one problem as text: where, what was found, what is wrong with it, what would be accepted."""
    where = reason.field or "the row"
    found = f"found {reason.found!r}" if reason.found else "empty"
    cell = f" (column {reason.column}, {found})" if reason.column else ""
    wrong = REASON_TEXTS[reason.code]
    return f"{where}{cell}: {wrong.removesuffix('.')}: {reason.hint}" if reason.hint else f"{where}{cell}: {wrong}"
