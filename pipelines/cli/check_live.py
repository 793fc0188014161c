"""What `check --live` asks: the service (key, scopes, channels, classifications, contract), the source, the notifications."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from rapidfuzz import process

from connectors.event_api.answers import Kind, Meaning, in_short
from connectors.event_api.contract_check import compare
from connectors.event_api.lists import Classifications
from connectors.event_api.openapi import Node, NoPage
from connectors.notify import Message, Tone, deliver_over, find_fault
from connectors.sources.catalogue import open_source, probe_org
from connectors.sources.errors import MissingColumnsError
from connectors.sources.rows import ColumnRequest, matched
from mappings.compiler.mapper import Directory, compile_with_problems
from mappings.errors import ConfigError, SyncError
from mappings.lint.warnings import FILL_IN
from mappings.lookup_table import Table
from mappings.outcome import did_you_mean
from mappings.outgoing import Outgoing, outgoing_of
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource, SalesforceSource
from mappings.spec.source_words import WriteBack
from mappings.spec.values import Choose, FirstOf, From, Items, TableValue, Value
from mappings.steps.lookups import LastIn, Lookup, Map, split_columns
from mappings.strict import Policy, UsePolicy
from pipelines.cli.feed_files import source_words
from pipelines.cli.findings import LiveFinding, unwise, well, wrong
from pipelines.cli.service_lists import ServiceAnswers, ask_everything
from pipelines.cli.state_reader import open_state
from pipelines.clock import now
from pipelines.run.outcome import ExitCode, faults_as_errors, outcome_of
from pipelines.run.service import ListMemory, change_between
from pipelines.settings import Channels, Recipient, Settings
from state.database import existing_database
from state.notes import ServiceNotes

_UNPROVEN = "whether it may create events, no harmless question tells: `--probe` sends an event without any field to see"
_LET_THROUGH = (
    "an event without any field was refused for its fields ({}), as it must be: the key got as far as that, which proves"
)
_ORDER = "`events:create` unless the service looks at fields before scopes"


def of_account(base_url: str, lists: ServiceAnswers, mapping: FeedMapping) -> Iterator[LiveFinding]:
    """Yield what the service says of itself, of the key and of the channels."""
    taken = "" if isinstance(lists.channels, SyncError) else f" and takes the key {lists.key_tail}"
    yield well("service", f"{base_url} answers{taken}")
    if lists.probe is not None or not isinstance(lists.channels, SyncError):
        yield _scopes(lists)
    yield _channels(lists.channels, mapping)


def refused(asked: str, error: SyncError) -> LiveFinding:
    """Return the finding for an error, with the exit code that a run would end with."""
    outcome = outcome_of(error)
    told = "; ".join(filter(None, (*str(error).splitlines(), error.hint)))
    # What would stop a run as a brake is, for a check, a file that does not fit its source.
    code = ExitCode.CONFIG if outcome.exit_code is ExitCode.BRAKE else outcome.exit_code
    return wrong(asked, told, code)


def _scopes(lists: ServiceAnswers) -> LiveFinding:
    listing = "" if isinstance(lists.channels, SyncError) else "the key has `channels:read`; "
    if lists.probe is None:
        return well("scopes", listing + _UNPROVEN)
    return _probed(lists.probe, listing, lists.key_tail)


def _probed(met: Meaning, listing: str, tail: str) -> LiveFinding:
    """Say what the answer to an event without any field proves, and what it does not."""
    said = in_short(met.answer)
    match met.kind:
        case Kind.REFUSED:
            return well("scopes", f"{listing}{_LET_THROUGH.format(said)} {_ORDER}")
        case Kind.SCOPE_MISSING | Kind.NO_ACCESS:
            told = f"{listing}the key {tail} may not create events: {said}; add the scope `events:create` on the page of the key"
            return wrong("scopes", told, ExitCode.REFUSED)
        case Kind.KEY_REFUSED:
            return wrong("scopes", f"the service refused the API key {tail} for creating events: {said}", ExitCode.REFUSED)
        case Kind.READ:
            told = f"{listing}the service created event {met.value} from an event without any field: delete it by hand"
            return wrong("scopes", f"{told}, and do not probe this service again", ExitCode.ATTENTION)
        case _:
            return unwise("scopes", f"{listing}whether it may create events could not be told: {said}")


def _channels(told: dict[str, int] | SyncError, mapping: FeedMapping) -> LiveFinding:
    if isinstance(told, SyncError):
        return refused("channels", told)
    problems = compile_with_problems(mapping, Directory(channels=told))[1]
    missing = [f"{problem.message}, {problem.hint}" if problem.hint else problem.message for problem in problems]
    missing += [f"the key has no channel with the id {number}" for number in _numbers(mapping) if number not in told.values()]
    if missing:
        return wrong("channels", "; ".join(missing), ExitCode.CONFIG)
    return well("channels", f"the key may use {len(told)}, and those that the mapping names are among them")


def _numbers(mapping: FeedMapping) -> list[int]:
    """Return the ids of channels that the mapping can give, as far as its file determines them."""
    sent = outgoing_of(mapping).fields.get("channelId")
    return sorted(value for value in (sent.values if sent else None) or () if isinstance(value, int))


_OWN_FILE = "the mapping file"
Named = tuple[str, str]
"""A slug, and the file that names it."""


def slugs_named(mapping: FeedMapping) -> dict[str, str]:
    """Return the slugs that the mapping names for `classifications`, each with the file that names it."""
    value = mapping.event.root.get("classifications")
    return {} if value is None else dict(_of(value, mapping))


def _of(value: Value, mapping: FeedMapping) -> Iterator[Named]:
    if isinstance(value, str):
        yield from _of_text(value, mapping)
        return
    yield from _of_block(value, mapping)
    if isinstance(value, From | FirstOf | Choose | TableValue):
        yield from _of_policies((value.on_empty, value.on_error))


def _of_text(text: str, mapping: FeedMapping) -> Iterator[Named]:
    if not text.startswith("$"):
        yield text, _OWN_FILE
    elif text[1:] in mapping.let:
        yield from _of(mapping.let[text[1:]], mapping)


def _of_block(value: Value, mapping: FeedMapping) -> Iterator[Named]:
    match value:
        case Items():
            yield from _of_all(value.root, mapping)
        case FirstOf() if not value.do:
            yield from _of_all(value.first_of, mapping)
        case Choose():
            otherwise = () if value.otherwise is None else (value.otherwise,)
            yield from _of_all((*(choice.then for choice in value.choose), *otherwise), mapping)
        case From():
            yield from _of_steps(value, mapping)
        case TableValue():
            yield from _of_table(mapping.tables[value.lookup], len(value.by), value.take)
            yield from _of_policies((value.on_miss,))
        case _:
            return


def _of_all(values: Iterable[Value], mapping: FeedMapping) -> Iterator[Named]:
    for value in values:
        yield from _of(value, mapping)


def _of_steps(value: From, mapping: FeedMapping) -> Iterator[Named]:
    """Only the last step's results are the value's."""
    match value.do[-1] if value.do else None:
        case Map() as step:
            yield from ((slug, _OWN_FILE) for slugs in step.table.values() for slug in slugs)
            yield from _of_policies((step.policy,))
        case Lookup() | LastIn() as step:
            yield from _of_table(mapping.tables[step.file], 1, step.take)
            yield from _of_policies((step.policy,))
        case None if value.source.startswith("$"):
            yield from _of(value.source, mapping)
        case _:
            return


def _of_table(table: Table, keys: int, take: tuple[str, ...] | None) -> Iterator[Named]:
    results = split_columns(table, keys, take)[1]
    places = [table.columns.index(column) for column in results]
    yield from ((row[place], table.name) for row in table.rows for place in places if row[place])


def _of_policies(policies: Iterable[Policy | None]) -> Iterator[Named]:
    for policy in policies:
        if isinstance(policy, UsePolicy):
            slugs = (policy.use,) if isinstance(policy.use, str) else policy.use
            yield from ((slug, _OWN_FILE) for slug in slugs)


_SHOWN = 5
_LISTED = 60


def of_classifications(told: Classifications | SyncError, mapping: FeedMapping, memory: ListMemory | None) -> LiveFinding:
    """Return what is to be said of the list. `memory`: what runs have seen of it, None where none ever ran."""
    if isinstance(told, SyncError):
        return refused("classifications", told)
    named = slugs_named(mapping)
    unknown = {slug: file for slug, file in named.items() if slug not in told.slugs}
    changed = _changed(told, mapping, memory)
    if unknown:
        shown = [_unknown(slug, file, told.slugs) for slug, file in islice(unknown.items(), _SHOWN)]
        more = [f"and {len(unknown) - _SHOWN} more"] if len(unknown) > _SHOWN else []
        return wrong(
            "classifications", "; ".join([*shown, *more, *_known(unknown, told), *filter(None, [changed])]), ExitCode.CONFIG
        )
    if changed:
        return unwise("classifications", changed)
    version = f"version {told.version}, {len(told.slugs)} of them"
    return well("classifications", f"{version}; the {len(named)} that the mapping names are known")


def _known(unknown: Collection[str], told: Classifications) -> Iterator[str]:
    """Yield what there is to choose from, where a slug is still to be filled in."""
    slugs = sorted(told.slugs)
    if FILL_IN in unknown:
        more = f" and {len(slugs) - _LISTED} more" if len(slugs) > _LISTED else ""
        yield f"it knows {', '.join(slugs[:_LISTED])}{more}"


def _changed(now: Classifications, mapping: FeedMapping, memory: ListMemory | None) -> str:
    """Say how the list changed since the mapping was written, or else since the feed's last run; "" if it did not."""
    written_for = mapping.classifications_version
    if written_for is None:
        before = memory.last_read_by(mapping.feed) if memory else None
        return "" if before is None or before == now else f"since the last run {change_between(before, now, mapping)}"
    if written_for == now.version:
        return ""
    said = f"the mapping was written for version {written_for}"
    before = memory.version(written_for) if memory else None
    if before is None:
        return f"{said}, the list is of {now.version} by now; no run has met the earlier one, so what changed is not known"
    return f"{said}; {change_between(before, now, mapping)}"


def _unknown(slug: str, file: str, known: frozenset[str]) -> str:
    said = f'{file} names "{slug}", which the service does not know'
    near = did_you_mean(slug, sorted(known))
    return f"{said}, {near}" if near else said


TEST = Message("eventsync: a test", "This is where notices about feeds arrive. Nothing is wrong.", Tone.RELIEF)
Problems = Mapping[Recipient, str]
"""What is wrong with each recipient, "" where nothing is."""


def ask_channels(settings: Settings, mappings: Sequence[FeedMapping], *, is_sending: bool) -> Problems:
    """Check the addresses of all recipients of these feeds' notifications; `is_sending`: send each a message."""
    recipients = dict.fromkeys(one for mapping in mappings for one in _of_channels(settings, mapping))
    deliver = deliver_over(settings.mask)
    try:
        return {one: deliver(one.address, TEST) if is_sending else find_fault(one.address, settings.mask) for one in recipients}
    except ConfigError as missing:
        return dict.fromkeys(recipients, f"{missing}: {missing.hint}")


def of_channels(settings: Settings, mapping: FeedMapping, problems: Problems, *, is_sending: bool) -> Iterator[LiveFinding]:
    """Yield who is notified of a feed, and which addresses do not work; nothing for a feed without recipients."""
    for name in settings.channels.unknown(mapping.notify):
        yield unwise("notify", f'EVENTSYNC_NOTIFY has no channel "{name}"{_near(settings.channels, name)}')
    recipients = _of_channels(settings, mapping)
    for one in recipients:
        if problem := problems.get(one):
            yield unwise("notify", f"{one.name} cannot be told: {problem}")
    reached = [one.name for one in recipients if not problems.get(one)]
    if reached:
        yield well("notify", f"{'a test went to' if is_sending else 'what needs somebody is told to'} {', '.join(reached)}")


def _of_channels(settings: Settings, mapping: FeedMapping) -> tuple[Recipient, ...]:
    return settings.channels.recipients(mapping.owner, mapping.notify)


def _near(channels: Channels, name: str) -> str:
    nearest = process.extractOne(name, sorted(channels.addresses), score_cutoff=60)
    if nearest:
        return f', did you mean "{nearest[0]}"?'
    known = ", ".join(f'"{one}"' for one in sorted(channels.addresses))
    return f"; it has {known}" if known else ": it names none"


def of_contract(page: Node | NoPage, mapping: FeedMapping) -> Iterator[LiveFinding]:
    """Yield the differences, errors first; one line where there are none, or where there is no page to compare with."""
    if isinstance(page, NoPage):
        yield unwise("contract", f"could not be compared: {page.why}; runs go on without it")
        return
    sent = outgoing_of(mapping)
    drifts = compare(page, sent)
    for drift in drifts:
        if drift.severity == "error":
            yield wrong("contract", str(drift), ExitCode.CONFIG, drift)
        else:
            yield unwise("contract", str(drift), drift)
    if not drifts:
        yield well("contract", f"the service's page agrees with the {_count(sent)} fields that the mapping sends")


def _count(sent: Outgoing) -> int:
    """Count the fields that hold a value, in objects and lists too."""
    inner = [*sent.fields.values(), *([sent.item] if sent.item and sent.item.fields else [])]
    return sum(map(_count, inner)) if inner else 1


def of_source(settings: Settings, mapping: FeedMapping) -> Iterator[LiveFinding]:
    """Yield what is found by opening a feed's source and asking for its first row."""
    try:
        with faults_as_errors(lambda: f"asking for the source of {mapping.feed}"):
            yield from _of_source(settings, mapping)
    except SyncError as error:
        yield refused("source", error)


def _of_source(settings: Settings, mapping: FeedMapping) -> Iterator[LiveFinding]:
    columns = compile_with_problems(mapping, Directory())[0].columns
    if isinstance(mapping.source, SalesforceSource):
        yield _of_org(settings, mapping.source, columns)
        return
    with open_source(mapping.source, mapping.path.parent, columns, access=settings.access).read() as reading:
        has_rows, present = next(reading.rows, None) is not None, reading.columns
    told = f"{source_words(mapping.source)}: {len(present)} columns, among them the {len(columns)} that the mapping reads"
    yield well("source", told if has_rows else f"{told}; no rows")
    yield from _of_write_back(mapping, present)


def _of_org(settings: Settings, spec: SalesforceSource, columns: frozenset[str]) -> LiveFinding:
    """Return what an org says: asking for a first row would make it run the whole query."""
    look = probe_org(spec, columns, access=settings.access)
    told = f"salesforce {look}"
    return well("source", told) if look.is_enough else unwise("source", f"{told}: too few for a whole reading today")


def _of_write_back(mapping: FeedMapping, present: Sequence[str]) -> Iterator[LiveFinding]:
    """Yield whether the columns that were given to us are there; whether we may write, only writing shows."""
    match mapping.source:
        case GoogleSheetsSource(write_back=WriteBack() as written):
            missing = matched(present, ColumnRequest(frozenset(written.names))).missing
            if missing:
                error = MissingColumnsError(source_words(mapping.source), missing, present, advice="add them to the sheet")
                yield unwise("write_back", f"{error}; {error.hint}; runs are as good as without, and say so each time")
            else:
                named = ", ".join(f'"{name}"' for name in written.names)
                yield well("write_back", f"the sheet has {named}; that we may write there shows in a run")
        case _:
            return


def ask_for(
    settings: Settings, mappings: Sequence[FeedMapping], *, is_probing: bool = False, is_telling: bool = False
) -> Mapping[Path, tuple[LiveFinding, ...]]:
    """Ask the service once and every source once; return the answers by the mapping's path. Nothing is written.

    `is_telling`: the recipients of each feed's notifications are sent a test.

    Raises:
        SyncError: there is a state DB, and it cannot be opened.
    """
    lists = ask_everything(settings, is_probing=is_probing)
    problems = ask_channels(settings, mappings, is_sending=is_telling)
    with _memory(settings) as memory, open_state(settings) as reader:
        estranged = reader.estranged()
        return {
            mapping.path: (
                *_service(settings, lists, mapping, memory),
                *(unwise("ledger", told) for told in estranged if not reader.has_delivered(mapping.feed)),
                *of_source(settings, mapping),
                *of_channels(settings, mapping, problems, is_sending=is_telling),
            )
            for mapping in mappings
        }


@contextmanager
def _memory(settings: Settings) -> Iterator[ListMemory | None]:
    """Open what earlier runs have seen of the service's lists, None where nothing was ever run."""
    with existing_database(settings.state_url) as engine:
        yield None if engine is None else ListMemory(ServiceNotes(engine, settings.destination, now))


def _service(settings: Settings, lists: ServiceAnswers, mapping: FeedMapping, memory: ListMemory | None) -> Iterator[LiveFinding]:
    if lists.refusal is not None:
        yield refused("service", lists.refusal)
        return
    yield from of_account(settings.base_url, lists, mapping)
    yield of_classifications(lists.classifications, mapping, memory)
    yield from of_contract(lists.page, mapping)
