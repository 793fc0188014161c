"""`eventsync preview`: shows the outcome of each row in a first run, with duplicates and contradictions between rows."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal, NotRequired

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, AsOf, FeedOrFile

if IS_WORKING:
    from connectors.sources.catalogue import open_source
    from mappings.compiler.explain import TracedStep
    from mappings.compiler.mapper import RowMapper, compile_feed
    from mappings.delivery import Cover
    from mappings.errors import FileProblem
    from mappings.outcome import (
        OVER,
        TOO_FAR,
        Absorbed,
        Absorption,
        Gone,
        MappedRow,
        Part,
        Rejection,
        RowLocation,
        RowOutcome,
        Skipped,
        SourceRow,
        if_unknown,
        shown_place,
    )
    from mappings.reasons import Reason, ReasonCode
    from mappings.row_key import RowKey
    from mappings.sentences import Words
    from pipelines.cli.feed_files import named_mapping
    from pipelines.cli.output.console import Output, Progress, counts_line, document_from
    from pipelines.cli.run_report import Misses, Unmapped, unmapped_lines
    from pipelines.cli.service_lists import ResolvedLists, known_lists
    from pipelines.cli.state_reader import open_state
    from pipelines.clock import now
    from pipelines.run.options import as_of_moment
    from pipelines.settings import current_settings
    from state.ledger.stage import too_long_key

_COMPARED = 1_000
"""How many events are compared with those of other feeds."""
OutcomeKind = Literal["events", "rejected", "held", "skipped"]


def preview(
    feed: FeedOrFile,
    rows: Annotated[
        int, typer.Option("--rows", min=0, help="Show the first N rows, or with --only the first N of that outcome.")
    ] = 10,
    only: Annotated[OutcomeKind | None, typer.Option("--only", help="Show only rows with this outcome.")] = None,
    read_all: Annotated[bool, typer.Option("--all", help="Read the whole source, so that the account covers every row.")] = False,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> int:
    """Read the source and show the outcome of its rows; nothing is written or sent.

    For example:

        # The first ten rows
        eventsync preview lisbon-agenda
        # The first five rows that are rejected, and why
        eventsync preview lisbon-agenda --rows 5 --only rejected
        # Only the account of the whole source
        eventsync preview lisbon-agenda --rows 0 --all
        # A file that you are writing
        eventsync preview drafts/lisbon.yaml --rows 3

    Reading ends with the last row shown, unless --all is given. Two rows with the same key and different contents are rejected
    once both are read, as in a run; with --all the counts are those of a first run. Channels and classifications are read from
    the service. If it does not answer, any slug is accepted, channel ids are placeholders, and the output says so.
    `eventsync run FEED --dry-run` compares the rows with what was sent before. Exit code 0, also with rejected rows.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    mapping = named_mapping(settings, feed)
    known = known_lists(settings, mapping)
    moment = as_of_moment(as_of, mapping) if as_of else None
    mapper = compile_feed(mapping, known.directory, moment or now())
    first_run = FirstRun()
    source = open_source(
        mapping.source, mapping.path.parent, mapper.columns, access=settings.access, folders=mapping.folders, now=moment
    )
    with output.progress(f"reading {mapping.feed}") as bar, source.read() as reading:
        most_read = None if read_all or only else rows
        outcomes = _outcomes(islice(reading.rows, most_read), mapper, first_run, bar, only)
        shown = list(_shown(outcomes, rows, only))
        # Only reading one more row shows whether the source ends here.
        is_at_end = next(outcomes, None) is None if only and not read_all else first_run.counts["read"] < rows
        deque(outcomes if read_all else (), maxlen=0)
    first = [outcome for outcome in map(first_run.in_the_end, shown) if only in {None, _kind_of(outcome)}]
    account = first_run.account(is_whole=read_all or is_at_end)
    with open_state() as reader:
        estranged = reader.estranged(mapping.feed, first_run.events)
    described = [describe_outcome(outcome, other=first_run.other(outcome)) for outcome in first]
    documents = [document for document, _ in described]
    parts = {"rows": documents, "account": account, "estranged": estranged}
    output.document(document_from(Preview, known, feed=mapping.feed, as_of=moment, **parts))
    if as_json:
        return 0
    show_basis(output, known, moment)
    output.note(*(text for _, text in described))
    _show_account(output, account)
    output.note(f"nothing was written or sent; `eventsync run {mapping.feed} --dry-run` compares with what was sent before")
    output.note(*estranged)
    return 0


def show_basis(output: Output, known: ResolvedLists, moment: datetime | None) -> None:
    """Print what the output depends on: lists that are missing, values to fill in, and the --as-of time."""
    as_of = [f"as of {moment:%Y-%m-%d %H:%M %Z}"] if moment else []
    if sentences := (*known.sentences, *as_of):
        output.note(*sentences, "")


class Outcome(TypedDict):
    """The outcome of a row; exactly one of event, rejected, held, skipped, absorbed and gone is present.

    `held`: the key of the row that it looks like a copy of; `rule`: the rule that left it out; `other`: the row that it is a copy
    of, or that is used instead of it.
    """

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
    rule: NotRequired[RuleSeen]
    other: NotRequired[OtherRow]


class RuleSeen(TypedDict):
    """A rule under `rows:`: its number from 1 (`place`), its position in the file, and the conditions it tested on the row."""

    place: int
    at: str
    rule: str
    tests: Sequence[TracedStep]


class OtherRow(TypedDict):
    """Another row of the source, or an entry of the ledger; `feed` is "" for the same feed. `alike`: values that both have."""

    place: str
    row_key: str
    feed: str
    state: str
    event_id: int | None
    alike: Mapping[str, Any]


class PreviewAccount(TypedDict):
    """The counts of a preview: `read + expanded = events + skipped + duplicate + grouped + rejected + held`. `is_whole`: the
    whole source was read.
    """

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
    """The outcomes of the shown rows, and the account of all rows read. `as_of`: the time given, else null.

    `to_fill_in`: places of the mapping file where `fill-in` stands. `estranged`: as in the document of `status`.
    """

    feed: str
    lists: Literal["live", "offline"]
    why_offline: str
    to_fill_in: Sequence[FileProblem]
    as_of: datetime | None
    rows: Sequence[Outcome]
    account: PreviewAccount
    estranged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A row that a run would hold, because it looks like a copy of the row `original_key`; `body`: its event."""

    location: RowLocation
    row_key: RowKey
    original_key: RowKey
    part: Part
    body: bytes

    @property
    def alike(self) -> dict[str, Any]:
        """The values in which the event resembles the other row's."""
        return likeness(json.loads(self.body))


if IS_WORKING:
    Foreseen = RowOutcome | Held
    """The outcome of a row in a first run."""
    _KINDS: Mapping[type, OutcomeKind] = {MappedRow: "events", Rejection: "rejected", Held: "held"}
    _SETTINGS = {OVER: "`window: {past: skip}`", TOO_FAR: "`horizon`"}
    """What leaves an event out whose label the mapping file does not have."""


@dataclass(slots=True)
class FirstRun:
    """Determines and counts the outcomes that rows would have in a first run.

    Keeps the first row of each key without its contents: memory grows with their number. `skipped` counts by the rule's label,
    `reasons` by the problem's code (a row may have several). `events`: the first events, to look for them in other feeds.
    """

    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    misses: Misses = field(default_factory=lambda: Misses())  # noqa: PLW0108  # imported for work only
    events: list[tuple[str, bytes]] = field(default_factory=list)
    _first: dict[RowKey, MappedRow] = field(default_factory=dict)
    _contradicted: dict[RowKey, Rejection] = field(default_factory=dict)
    _originals: dict[bytes, RowKey] = field(default_factory=dict)
    _used: dict[RowKey, RowLocation] = field(default_factory=dict)

    def take(self, outcome: RowOutcome) -> tuple[Foreseen, Rejection | None]:
        """Count the next row; return its outcome, and the earlier row that it turns from an event into a rejection, if any."""
        foreseen, contradicted = self._foresee(if_unknown(outcome))
        if not isinstance(foreseen, Absorbed | Held):
            self._used.setdefault(foreseen.row_key, foreseen.location)
        self.counts.update(["expanded" if foreseen.part.is_further else "read", _kind_of(foreseen)])
        match foreseen:
            case MappedRow():
                self.counts["warned"] += bool(foreseen.warnings)
                self.misses.take(foreseen.warnings)
            case Rejection():
                self.reasons.update(reason.code.value for reason in foreseen.reasons)
                self.misses.take(foreseen.reasons)
            case Skipped():
                self.skipped[foreseen.because] += 1
            case Absorbed():
                self.counts[foreseen.into.value] += 1
            case _:
                pass
        if contradicted:
            self.counts.update({"events": -1, "rejected": 1, "warned": -bool(contradicted.warnings)})
            self.reasons[ReasonCode.DUPLICATE_KEY.value] += 1
        return foreseen, self._contradicted[contradicted.row_key] if contradicted else None

    def _foresee(self, row: RowOutcome) -> tuple[Foreseen, MappedRow | None]:
        if not isinstance(row, MappedRow):
            return row, None
        key = row.row_key
        first, is_contradicted = self._first.get(key), key in self._contradicted
        if first is None:
            if rejection := too_long_key(row):
                return rejection, None
            original = self._originals.setdefault(row.duplicate_digest, key)
            if original != key:
                return Held(row.location, key, original, row.part, row.body), None
            self._first[key] = replace(row, body=b"", cells={})
            if len(self.events) < _COMPARED:
                self.events.append((key, row.body))
            return row, None
        if row.fingerprint == first.fingerprint and not is_contradicted:
            return Absorbed(row.location, key, Absorption.DUPLICATE, row.part), None
        self._contradicted.setdefault(key, _claimed_twice(first, f"another one is at {row.location}"))
        return _claimed_twice(row, f"the first one is at {first.location}"), None if is_contradicted else first

    def in_the_end(self, outcome: Foreseen) -> Foreseen:
        """Return the outcome of an earlier row after all rows read since: a later row may have contradicted it."""
        contradicted = self._contradicted.get(outcome.row_key)
        if not isinstance(outcome, MappedRow) or contradicted is None:
            return outcome
        return replace(contradicted, cells=outcome.cells, part=outcome.part)

    def other(self, outcome: Foreseen) -> OtherRow | None:
        """Return the row that an outcome is a copy of, or that is used instead of it; None if there is none, or none was read
        yet.
        """
        if not isinstance(outcome, Held | Absorbed):
            return None
        key, alike = (
            (outcome.original_key, outcome.alike)
            if isinstance(outcome, Held)
            else (outcome.row_key, {"row key": outcome.row_key})
        )
        used = self._used.get(key)
        return OtherRow(place=used.place, row_key=key, feed="", state="", event_id=None, alike=alike) if used else None

    def account(self, *, is_whole: bool) -> PreviewAccount:
        """Return the counts of all rows taken, for the JSON document."""
        skipped, reasons = dict(self.skipped.most_common()), dict(self.reasons.most_common())
        counts = {name: self.counts[name] for name in _COUNTED}
        others = {"is_whole": is_whole, "skipped": skipped, "reasons": reasons, "unmapped": self.misses.values}
        return document_from(PreviewAccount, None, **counts, **others)


_COUNTED = ("read", "expanded", "events", "duplicate", "grouped", "rejected", "held", "warned")


def likeness(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by which events are compared as possible copies: channel, title, start and place."""
    city = event.get("approxLocation", {}).get("city", {})
    values = {name: event.get(name) for name in ("channelId", "title", "startAt", "locationName")}
    return {name: value for name, value in {**values, "placeId": city.get("placeId")}.items() if value is not None}


def _claimed_twice(row: MappedRow, hint: str) -> Rejection:
    reason = Reason(ReasonCode.DUPLICATE_KEY, "", "", row.row_key, hint)
    return Rejection(row.location, row.row_key, (reason,), row.cells, part=row.part)


def _outcomes(
    rows: Iterable[SourceRow], mapper: RowMapper, first_run: FirstRun, bar: Progress, only: OutcomeKind | None
) -> Iterator[Foreseen]:
    """Yield the outcome of each row and count it; with `only` rejected, also events that a later row contradicts."""
    for outcome in mapper.over(rows):
        foreseen, contradicted = first_run.take(outcome)
        if contradicted and only == "rejected":
            yield contradicted
        bar.advance(not outcome.part.is_further)
        yield foreseen


def _shown(outcomes: Iterable[Foreseen], count: int, only: OutcomeKind | None) -> Iterator[Foreseen]:
    """Yield the outcomes of the first `count` rows; with `only`, the first `count` outcomes of that kind. Reading stops there."""
    rows = 0
    for outcome in outcomes if count else ():
        if only is None:
            rows += not outcome.part.is_further
            if rows > count:
                return
            yield outcome
        elif _kind_of(outcome) == only:
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
        output.table("values that are in no lookup", unmapped_lines(unmapped))


def _kind_of(outcome: Foreseen) -> OutcomeKind:
    """Return the value of --only that an outcome belongs to; absorbed and deleted rows are "skipped"."""
    return _KINDS.get(type(outcome), "skipped")


def describe_outcome(outcome: Foreseen, rule: RuleSeen | None = None, other: OtherRow | None = None) -> tuple[Outcome, str]:
    """Return an outcome as a JSON document, and as text: the payload with its warnings, the reasons, or the rule's label.

    `rule`: the rule that left the row out; `other`: the row that it is a copy of, or that is used instead of it.
    """
    document = Outcome(place=outcome.location.place, row_key=outcome.row_key, warnings=())
    key, lines = outcome.row_key, list[str]()
    match outcome:
        case MappedRow():
            document["event"], document["warnings"] = json.loads(outcome.body), outcome.warnings
            start = f", starts {document['event']['startAt']}" if outcome.part.of > 1 else ""
            head, lines = f"event {key}{start}", json.dumps(document["event"], indent=2, ensure_ascii=False).splitlines()
            if outcome.cover:
                document["cover"] = outcome.cover
                lines.append(f"cover image: {outcome.cover.url}")
            lines += [f"outside the window: {outcome.outside}; it is only compared with what was sent"] if outcome.outside else []
            lines += [f"warning: {_reason_text(reason)}" for reason in outcome.warnings]
        case Rejection():
            document["rejected"] = outcome.reasons
            head, lines = f"REJECTED {key}".rstrip(), [_reason_text(reason) for reason in outcome.reasons]
        case Held():
            document["held"] = outcome.original_key
            head = f"HELD {key}: it looks like a copy of {outcome.original_key}"
        case Skipped():
            document["skipped"] = outcome.because
            head = f'left out by the rule labelled "{outcome.because}"'
            if not outcome.rule and outcome.because in _SETTINGS:
                head = f"left out by {_SETTINGS[outcome.because]}: {outcome.because}"
        case Absorbed():
            document["absorbed"] = outcome.into
            head = f"{outcome.into}: another row with the key {key} is used"
        case Gone():
            document["gone"] = True
            head = f"gone: {key or 'the row'} was deleted in the source"
    if rule:
        document["rule"] = rule
        lines.append(f"rule {rule['place']} ({rule['at']}): {rule['rule']}")
        lines += [f"  {test.step}: {test.refused or test.comes_out}, found {test.goes_in!r}" for test in rule["tests"]]
    if other:
        document["other"] = other
        event = "" if other["event_id"] is None else f", event {other['event_id']}"
        named = (
            f"key {other['row_key']}",
            other["feed"] and f"feed {other['feed']}",
            other["state"] and f"{other['state']}{event}",
        )
        lines.append(f"the other row: {', '.join(filter(None, (shown_place(other['place']), *named)))}")
        lines.append(f"alike: {', '.join(f'{name} {value}' for name, value in other['alike'].items())}")
    return document, "\n".join([f"{outcome.location}  {head}", *(f"  {line}" for line in lines)]) + "\n"


def _reason_text(reason: Reason) -> str:
    """Return one reason as text: the field, the value found, what is wrong, and what would be accepted."""
    where = reason.field or "the row"
    found = f"found {reason.found!r}" if reason.found else "empty"
    read_as = f", read as {reason.value!r}" if reason.value else ""
    cell = f" (column {reason.column}, {found}{read_as})" if reason.column else ""
    wrong = Words().problem(reason)
    return f"{where}{cell}: {wrong.removesuffix('.')}: {reason.hint}" if reason.hint else f"{where}{cell}: {wrong}"
