"""The checks of `check --live`: the service (key, scopes, channels, classifications, contract), the source, the notifications."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from connectors.event_api.answers import AnswerKind, in_short
from connectors.event_api.contract_check import MOST_PAYLOADS, compare
from connectors.event_api.lists import Classifications
from connectors.event_api.openapi import Node, NoPage
from connectors.notify import Message, Tone, deliver_over, find_fault
from connectors.sources.catalogue import open_source, probe_org
from connectors.sources.contract import ColumnsError
from connectors.sources.rows import table_columns
from mappings.columns import ColumnRequest
from mappings.compiler.mapper import compile_with_problems
from mappings.delivery import Drift
from mappings.errors import ConfigError, SyncError
from mappings.event import Directory
from mappings.examples import example_bodies
from mappings.lint.warnings import FILL_IN, NO_PLACES
from mappings.outcome import MappedRow
from mappings.outgoing import Outgoing, outgoing_of
from mappings.reasons import did_you_mean
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource, RestSource, SalesforceSource
from pipelines.cli.findings import LiveFinding, Readiness
from pipelines.cli.service_lists import ServiceAnswers, ask_service
from pipelines.cli.state_reader import open_state
from pipelines.clock import now
from pipelines.run.context import ListMemory, change_between, require_service
from pipelines.run.outcome import ExitCode, faults_as_errors, outcome_of
from pipelines.settings import Recipient, Settings
from state.notes import ServiceNotes
from state.opening import existing_database

_UNPROVEN = "permission to create events can only be tested by a request: `--probe` sends an empty event, which is refused"
_ORDER = "`events:create`, unless the service checks fields before scopes"
_UNCHECKED: Readiness = "could not be checked"
_FILL_IN_VALUE = f'"{FILL_IN}"'.encode()
_SHOWN = 5
_LISTED = 60
TEST = Message("eventsync: a test", "Notifications about feeds arrive here. Nothing is wrong.", Tone.RELIEF)


def _well(about: str, text: str) -> LiveFinding:
    return LiveFinding(about, ok=True, told=text)


def _unwise(about: str, text: str, difference: Drift | None = None, state: Readiness = "ready") -> LiveFinding:
    """Return a warning: no row or run fails yet, but a person should act."""
    return LiveFinding(about, ok=True, told=text, severity="warning", difference=difference, state=state)


def _wrong(about: str, text: str, exit_code: int, difference: Drift | None = None) -> LiveFinding:
    """Return an error: rows or runs would fail."""
    state: Readiness = _UNCHECKED if exit_code == ExitCode.LATER else "not ready"
    return LiveFinding(about, ok=False, told=text, exit_code=exit_code, severity="error", difference=difference, state=state)


def _failed(about: str, error: SyncError) -> LiveFinding:
    """Return the finding for an exception, with the exit code that a run would end with."""
    code = outcome_of(error).exit_code
    # What stops a run by a brake is a mapping file that does not fit its source.
    code = ExitCode.CONFIG if code is ExitCode.BRAKE else code
    return _wrong(about, "; ".join(filter(None, (*str(error).splitlines(), error.hint))), code)


_LATER = "check again when the service answers"
_SUBJECTS = (
    *("service", "key", "scopes", "channels", "classifications", "places", "contract", "source", "write_back", "ledger"),
    "notify",
)


def readiness(answers: Mapping[str, Sequence[LiveFinding]]) -> Iterator[dict[str, object]]:
    """Yield the lines of the readiness table; a line that holds for all feeds appears once, without a feed."""
    feeds: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for feed, found in answers.items():
        for line in dict.fromkeys(_lines(found)):
            feeds[line].append(feed)
    for (what, state, text), of in sorted(feeds.items(), key=lambda line: _SUBJECTS.index(line[0][0])):
        named = {"feed": ", ".join(of) if len(of) < len(answers) else ""} if len(answers) > 1 else {}
        yield {"what": what, **named, "state": state, "details": text}


def _lines(found: Sequence[LiveFinding]) -> Iterator[tuple[str, str, str]]:
    """Yield subject, state and sentence of each finding, also for the key and for what could not be asked."""
    asked = {one.asked: one for one in found}
    service, channels = asked["service"], asked.get("channels", asked["service"])
    is_refused = not channels.ok and channels.exit_code == ExitCode.REFUSED
    if is_refused:  # the answer of a service that is there
        yield "service", "ready", service.told if service.ok else "the service answers"
        yield "key", "not ready", channels.told
    else:
        yield "service", "ready" if service.ok else "not ready", service.told
        is_taken = channels.ok or (channels is not service and channels.exit_code == ExitCode.CONFIG)
        yield ("key", "ready", "the service accepts it") if is_taken else ("key", _UNCHECKED, _LATER)
    for one in found:
        if one is channels and is_refused:
            yield one.asked, _UNCHECKED, "check again when the service accepts the key"
        elif one is not service:
            yield one.asked, "not ready" if one.asked == "source" and not one.ok else one.state, one.told
    yield from ((what, _UNCHECKED, _LATER) for what in ("scopes", "channels", "classifications", "contract") if what not in asked)
    if "notify" not in asked:
        yield (
            "notify",
            "not ready",
            "no notification is sent: EVENTSYNC_NOTIFY has no address for the feed's `owner` and `notify`",
        )


def ask_for(
    settings: Settings, mappings: Sequence[FeedMapping], *, is_probing: bool, is_testing: bool
) -> Mapping[Path, tuple[LiveFinding, ...]]:
    """Ask the service once and each source once; return the findings by the mapping's path. Nothing is written.

    `is_testing`: send a test message to the recipients of each feed's notifications.

    Raises:
        SyncError: the state DB exists and cannot be opened.
    """
    try:
        require_service(settings)
        lists = ask_service(settings, is_page_asked=True, is_probing=is_probing)
    except ConfigError as error:
        lists = ServiceAnswers(error, error)
    # Check the addresses of all recipients of these feeds' notifications; `is_testing`: send each a message.
    recipients = {one for mapping in mappings for one in settings.channels.recipients(mapping.owner, mapping.notify)}
    deliver = deliver_over(settings.mask)
    try:
        faults = {one: deliver(one.address, TEST) if is_testing else find_fault(one.address, settings.mask) for one in recipients}
    except ConfigError as missing:
        faults = dict.fromkeys(recipients, f"{missing}: {missing.hint}")
    with existing_database(settings.state_url) as engine, open_state() as reader:
        memory = None if engine is None else ListMemory(ServiceNotes(engine, settings.destination, now))
        answers = dict[Path, tuple[LiveFinding, ...]]()
        for mapping in mappings:
            bodies = example_bodies(mapping)
            source = list(_of_source(settings, mapping, bodies))  # first, as it adds its first payloads
            answers[mapping.path] = (
                *of_service(settings.base_url, lists, mapping, bodies, memory),
                *(_unwise("ledger", text) for text in reader.estranged(mapping.feed)),
                *source,
                *_of_recipients(settings, mapping, faults, is_testing=is_testing),
            )
        return answers


def of_service(
    base_url: str, lists: ServiceAnswers, mapping: FeedMapping, bodies: Sequence[bytes], memory: ListMemory | None = None
) -> Iterator[LiveFinding]:
    """Yield the findings about the service, the key, the channels, the classifications and the contract.

    `bodies`: payloads of the feed. `memory`: the service's lists as earlier runs read them, None if no run was made.
    """
    if lists.refusal is not None:
        yield _failed("service", lists.refusal)
        return
    channels = lists.channels
    yield _well(
        "service",
        f"{base_url} answers"
        + ("" if isinstance(channels, SyncError) else f" and accepts the key {lists.key_tail}").removesuffix(" …"),
    )
    if lists.probe is not None or not isinstance(channels, SyncError):
        yield _scopes(lists)
    yield _failed("channels", channels) if isinstance(channels, SyncError) else _channels(channels, mapping)
    known = lists.classifications
    yield _failed("classifications", known) if isinstance(known, SyncError) else _classifications(known, mapping, memory)
    yield _places(mapping)
    yield from _contract(lists.page, bodies)


def _scopes(lists: ServiceAnswers) -> LiveFinding:
    """Return what the answer to the empty event proves about the key's scopes."""
    listing = "" if isinstance(lists.channels, SyncError) else "the key has `channels:read`; "
    probe, tail = lists.probe, lists.key_tail
    if probe is None:
        return replace(_well("scopes", listing + _UNPROVEN), state=_UNCHECKED)
    answer = in_short(probe.answer)
    match probe.kind:
        case AnswerKind.REFUSED:
            refused = f"an empty event was refused for its fields ({answer}), as expected"
            return _well("scopes", f"{listing}{refused}: this proves {_ORDER}")
        case AnswerKind.SCOPE_MISSING | AnswerKind.NO_ACCESS:
            advice = "add the scope `events:create` to the key at the service"
            return _wrong("scopes", f"{listing}the key {tail} may not create events: {answer}; {advice}", ExitCode.REFUSED)
        case AnswerKind.KEY_REFUSED:
            return _wrong("scopes", f"the service refused the API key {tail} for creating events: {answer}", ExitCode.REFUSED)
        case AnswerKind.READ:
            created = f"{listing}the service accepted an empty event and created event {probe.value}: delete it by hand"
            return _wrong("scopes", f"{created}, and do not use --probe with this service again", ExitCode.ATTENTION)
        case _:
            return _unwise(
                "scopes", f"{listing}the answer does not show whether the key may create events: {answer}", state=_UNCHECKED
            )


def _channels(channels: Mapping[str, int], mapping: FeedMapping) -> LiveFinding:
    problems = compile_with_problems(mapping, Directory(channels=dict(channels)))[1]
    missing = [", ".join(filter(None, (problem.message, problem.hint))) for problem in problems]
    sent = outgoing_of(mapping).fields.get("channelId")  # the ids that it can give, as far as its file determines them
    numbers = sorted(value for value in (sent.values if sent else ()) if isinstance(value, int))
    missing += [f"the key has no channel with the id {number}" for number in numbers if number not in channels.values()]
    if missing:
        return _wrong("channels", "; ".join(missing), ExitCode.CONFIG)
    return _well("channels", f"the key may use {len(channels)}, including all that the mapping names")


def _classifications(known: Classifications, mapping: FeedMapping, memory: ListMemory | None) -> LiveFinding:
    sent = outgoing_of(mapping).fields.get("classifications")
    named = sorted(map(str, sent.item.values if sent and sent.item else ()))
    unknown = [slug for slug in named if slug not in known.slugs]
    changed = _changed(known, mapping, memory)
    if not unknown and changed:
        return _unwise("classifications", changed)
    if not unknown:
        all_ = "the one" if len(named) == 1 else f"all {len(named)}"
        version = f"version {known.version} has {len(known.slugs)} of them"
        return _well("classifications", f"{version}, including {all_} that the mapping names" if named else version)
    slugs, texts = sorted(known.slugs), []
    for slug in unknown[:_SHOWN]:
        files = (name for name, table in mapping.tables.items() if any(slug in row for row in table.rows))
        text = f'{next(files, "the mapping file")} names "{slug}", which the service does not have'
        texts.append(", ".join(filter(None, (text, did_you_mean(slug, slugs)))))
    texts += [f"and {len(unknown) - _SHOWN} more"] if len(unknown) > _SHOWN else []
    if FILL_IN in unknown:  # what there is to choose from
        more = f" and {len(slugs) - _LISTED} more" if len(slugs) > _LISTED else ""
        texts.append(f"the service has {', '.join(slugs[:_LISTED])}{more}")
    return _wrong("classifications", "; ".join(filter(None, [*texts, changed])), ExitCode.CONFIG)


def _places(mapping: FeedMapping) -> LiveFinding:
    """Return the place identifiers that the mapping names, for a person to ask about."""
    sent = outgoing_of(mapping)
    for name in ("approxLocation", "city", "placeId"):
        sent = sent.fields.get(name, Outgoing("string"))
    ids = sorted(str(value) for value in sent.values if value != FILL_IN)
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    named = f" whether it has {', '.join(ids[:_SHOWN])}{more}" if ids else ""
    return replace(_well("places", f"{NO_PLACES}{named}"), state=_UNCHECKED)


def _changed(now: Classifications, mapping: FeedMapping, memory: ListMemory | None) -> str:
    """Return how the classifications changed since the mapping was written, or else since the feed's last run; "" if not."""
    version = mapping.classifications_version
    if version is None:
        before = memory.last_read_by(mapping.feed) if memory else None
        return "" if before is None or before == now else f"since the last run {change_between(before, now, mapping)}"
    if version == now.version:
        return ""
    before = memory.version(version) if memory else None
    unknown = f"the service's list is now {now.version}; no run has read the earlier list, so the changes are not known"
    how = f", {unknown}" if before is None else f"; {change_between(before, now, mapping)}"
    return f"the mapping was written for version {version}{how}"


def _contract(page: Node | NoPage, bodies: Sequence[bytes]) -> Iterator[LiveFinding]:
    """Yield what the page would refuse, errors first; one line if that is nothing or the page cannot be used."""
    finished = [body for body in bodies if _FILL_IN_VALUE not in body]
    if not finished:
        held = "all payloads of examples and first rows hold values to fill in"
        page = NoPage(held if bodies else "no example and no first row of the source becomes an event")
    drifts = page if isinstance(page, NoPage) else compare(page, finished)
    if isinstance(drifts, NoPage):
        yield _unwise("contract", f"could not be compared: {drifts.why}; runs do not need it", state=_UNCHECKED)
        return
    state: Readiness = "not ready" if any(drift.severity == "error" for drift in drifts) else "ready"
    for drift in drifts:
        is_error = drift.severity == "error"
        yield (
            _wrong("contract", str(drift), ExitCode.CONFIG, drift) if is_error else _unwise("contract", str(drift), drift, state)
        )
    if not drifts:
        yield _well("contract", f"the service's OpenAPI page accepts the {len(finished)} payloads of examples and first rows")


Faults = Mapping[Recipient, str]
"""What is wrong with each recipient's address, "" if it works."""


def _of_recipients(settings: Settings, mapping: FeedMapping, faults: Faults, *, is_testing: bool) -> Iterator[LiveFinding]:
    """Yield who is notified of a feed, and which addresses do not work; nothing for a feed without recipients."""
    known = sorted(settings.channels.addresses)
    listed = "it has " + ", ".join(f'"{one}"' for one in known) if known else ""
    for name in settings.channels.unknown(mapping.notify):
        advice = did_you_mean(name, known) or listed or "it has none"
        yield _unwise("notify", f'EVENTSYNC_NOTIFY has no channel "{name}"; {advice}', state="not ready")
    recipients = settings.channels.recipients(mapping.owner, mapping.notify)
    for one in recipients:
        if fault := faults.get(one):
            yield _unwise("notify", f"{one.name} cannot be notified: {fault}", state="not ready")
    reached = [one.name for one in recipients if not faults.get(one)]
    if reached:
        yield _well("notify", f"{'a test message was sent to' if is_testing else 'notifications go to'} {', '.join(reached)}")


def _of_source(settings: Settings, mapping: FeedMapping, bodies: list[bytes]) -> Iterator[LiveFinding]:
    """Yield the findings of opening a feed's source and reading its first rows; add their payloads to `bodies`."""
    source = mapping.source
    name = f"{source.kind} {source.place}"
    try:
        with faults_as_errors(f"opening the source of {mapping.feed}"):
            mapper = compile_with_problems(mapping, Directory())[0]
            columns = mapper.columns
            if isinstance(source, SalesforceSource):  # asking an org for a first row would make it run the whole query
                org = probe_org(source, columns, access=settings.access)
                yield (
                    _well("source", f"salesforce {org}")
                    if org.is_enough
                    else _unwise("source", f"salesforce {org}: too few for a full read today")
                )
                return
            with open_source(
                source, mapping.path.parent, columns, access=settings.access, folders=mapping.folders
            ).read() as reading:
                rows, headers = list(islice(reading.rows, MOST_PAYLOADS)), reading.headers
                # All pages have come before the first row, so that the end is known already.
                notices = reading.ending().notices if isinstance(source, RestSource) else ()
            bodies += [outcome.body for outcome in mapper.over(rows) if isinstance(outcome, MappedRow)]
            text = f"{name}: {len(reading.columns)} columns, including the {len(columns)} that the mapping reads"
            if isinstance(source, RestSource) and not source.pages.total:
                text = f"{text}; name `pages.total` if the API gives it: an empty page in the middle would look like the end"
            yield _well("source", text if rows else f"{text}; no rows")
            for notice in notices:
                yield _unwise("source", notice)
            if isinstance(source, GoogleSheetsSource) and source.write_back:
                yield _write_back(source.write_back.names, name, tuple(headers.values()))
    except SyncError as error:
        yield _failed("source", error)


def _write_back(names: Sequence[str], sheet: str, header: Sequence[str]) -> LiveFinding:
    """Return whether the sheet has the status columns; only a run shows whether the account may write to them."""
    try:
        table_columns(header, ColumnRequest(frozenset(names)), sheet)
    except ColumnsError as error:
        return _unwise(
            "write_back",
            f"{error}; {error.hint}; runs deliver as usual, without writing to the sheet, and report this each time",
            state="not ready",
        )
    named = ", ".join(f'"{name}"' for name in names)
    return _well("write_back", f"the sheet has {named}; the first run shows whether the account may write there")
