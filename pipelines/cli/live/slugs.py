"""What the service says of the classifications that a mapping names: known or gone, and how the list changed.

What earlier runs saw of the list is `pipelines.publishing.slug_list`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from connectors.event_api.lists import Classifications
from mappings.errors import SyncError
from mappings.fill_in import FILL_IN
from mappings.refusals import did_you_mean
from mappings.spec.feed import FeedMapping
from pipelines.cli.findings import LiveFinding, unwise, well, wrong
from pipelines.cli.live.service import refused
from pipelines.cli.live.slugs_named import slugs_named
from pipelines.run.outcome import ExitCode
from pipelines.run.preflight import ListMemory, change_between

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
        before = memory.told(mapping.feed) if memory else None
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
