"""What the service says of our key: whether it is taken, what it may do as far as that can be told, its channels.

How the service is asked is `asking`'s; its classifications are `slugs`', its own page `contract`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.event_api.answers import Created, KeyRefused, Meaning, NoAccess, Refused, ScopeMissing
from connectors.event_api.route import in_short
from mappings.compiler.mapper import Directory, compile_with_problems
from mappings.errors import SyncError
from mappings.outgoing import outgoing_of
from mappings.schema import FeedMapping
from pipelines.cli.asking import Lists
from pipelines.cli.findings import LiveFinding, unwise, well, wrong
from pipelines.run.outcome import ExitCode, outcome_of

_UNPROVEN = "whether it may create events, no harmless question tells: `--probe` sends an event without any field to see"
_LET_THROUGH = (
    "an event without any field was refused for its fields ({}), as it must be: the key got as far as that, which proves"
)
_ORDER = "`events:create` unless the service looks at fields before scopes"


def of_account(base_url: str, lists: Lists, mapping: FeedMapping) -> Iterator[LiveFinding]:
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


def _scopes(lists: Lists) -> LiveFinding:
    listing = "" if isinstance(lists.channels, SyncError) else "the key has `channels:read`; "
    if lists.probe is None:
        return well("scopes", listing + _UNPROVEN)
    return _probed(lists.probe, listing, lists.key_tail)


def _probed(met: Meaning, listing: str, tail: str) -> LiveFinding:
    """Say what the answer to an event without any field proves, and what it does not."""
    said = in_short(met.answer)
    match met:
        case Refused():
            return well("scopes", f"{listing}{_LET_THROUGH.format(said)} {_ORDER}")
        case ScopeMissing() | NoAccess():
            told = f"{listing}the key {tail} may not create events: {said}; add the scope `events:create` on the page of the key"
            return wrong("scopes", told, ExitCode.REFUSED)
        case KeyRefused():
            return wrong("scopes", f"the service refused the API key {tail} for creating events: {said}", ExitCode.REFUSED)
        case Created(event_id=event_id):
            told = f"{listing}the service created event {event_id} from an event without any field: delete it by hand"
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
    """Return the ids of channels that the mapping can give, as far as its file tells."""
    sent = outgoing_of(mapping).fields.get("channelId")
    return sorted(value for value in (sent.values if sent else None) or () if isinstance(value, int))
