"""What the service and the source say of a feed: the key, the channels, the classifications, the columns; a line each.

What is found in the file alone is `findings`'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from connectors.event_api.listing import Classifications
from connectors.sources.catalogue import open_source
from mappings.engine import Directory, attempt
from mappings.errors import SyncError
from mappings.refusals import did_you_mean
from mappings.schema import FeedMapping
from pipelines.cli.asking import Lists, ask_lists
from pipelines.cli.findings import LiveFinding
from pipelines.cli.slugs_named import slugs_named
from pipelines.cli.source_words import source_words
from pipelines.outcomes import ExitCode, outcome_of
from pipelines.settings import Settings

_SHOWN = 5


def ask_for(settings: Settings, mappings: Sequence[FeedMapping]) -> Mapping[Path, tuple[LiveFinding, ...]]:
    """Ask the service once and every source once; return the answers by the mapping's path. Nothing is written."""
    lists = ask_lists(settings)
    return {mapping.path: (*_service(settings, lists, mapping), _source(mapping)) for mapping in mappings}


def _service(settings: Settings, lists: Lists, mapping: FeedMapping) -> Iterator[LiveFinding]:
    if lists.refusal is not None:
        yield _refused("service", lists.refusal)
        return
    yield LiveFinding("service", ok=True, told=f"{settings.base_url} answers")
    yield _channels(lists.channels, mapping)
    yield _classifications(lists.classifications, mapping)


def _channels(told: dict[str, int] | SyncError, mapping: FeedMapping) -> LiveFinding:
    if isinstance(told, SyncError):
        return _refused("channels", told)
    problems = attempt(mapping, Directory(channels=told))[1]
    missing = [f"{problem.message}, {problem.hint}" if problem.hint else problem.message for problem in problems]
    number = mapping.event.root.get("channelId")
    if isinstance(number, str) and number.isdigit() and int(number) not in told.values():
        missing.append(f"the key has no channel with the id {number}")
    if missing:
        return LiveFinding("channels", ok=False, told="; ".join(missing), exit_code=ExitCode.CONFIG)
    return LiveFinding("channels", ok=True, told=f"the key may use {len(told)}, and those that the mapping names are among them")


def _classifications(told: Classifications | SyncError, mapping: FeedMapping) -> LiveFinding:
    if isinstance(told, SyncError):
        return _refused("classifications", told)
    named = slugs_named(mapping)
    unknown = {slug: file for slug, file in named.items() if slug not in told.slugs}
    if unknown:
        shown = [_unknown(slug, file, told.slugs) for slug, file in islice(unknown.items(), _SHOWN)]
        more = [f"and {len(unknown) - _SHOWN} more"] if len(unknown) > _SHOWN else []
        return LiveFinding("classifications", ok=False, told="; ".join([*shown, *more]), exit_code=ExitCode.CONFIG)
    version = f"version {told.version}, {len(told.slugs)} of them"
    return LiveFinding("classifications", ok=True, told=f"{version}; the {len(named)} that the mapping names are known")


def _unknown(slug: str, file: str, known: frozenset[str]) -> str:
    said = f'{file} names "{slug}", which the service does not know'
    near = did_you_mean(slug, sorted(known))
    return f"{said}, {near}" if near else said


def _source(mapping: FeedMapping) -> LiveFinding:
    columns = attempt(mapping, Directory())[0].columns
    try:
        with open_source(mapping.source, mapping.path.parent, columns).read() as reading:
            first = next(reading.rows, None)
    except SyncError as error:
        return _refused("source", error)
    told = f"{source_words(mapping.source)}: {len(reading.columns)} columns, among them the {len(columns)} that the mapping reads"
    return LiveFinding("source", ok=True, told=told if first else f"{told}; no rows")


def _refused(asked: str, error: SyncError) -> LiveFinding:
    outcome = outcome_of(error)
    told = "; ".join(filter(None, (*str(error).splitlines(), error.hint)))
    # What would stop a run as a brake is, for a check, a file that does not fit its source.
    code = ExitCode.CONFIG if outcome.exit_code is ExitCode.BRAKE else outcome.exit_code
    return LiveFinding(asked, ok=False, told=told, exit_code=code)
