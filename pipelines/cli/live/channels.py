"""Who would be told about a feed, and whether that could be: each address looked at, or tried with a message, once.

When somebody is told, and in which words, is `pipelines.telling.notices`'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rapidfuzz import process

from connectors.notify import Message, Tone, deliver_over, find_fault
from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from pipelines.channels import Channels, Recipient
from pipelines.cli.findings import LiveFinding, unwise, well
from pipelines.settings import Settings

TEST = Message("eventsync: a test", "This is where notices about feeds arrive. Nothing is wrong.", Tone.RELIEF)

Problems = Mapping[Recipient, str]
"""What is wrong with each recipient, "" where nothing is."""


def ask_channels(settings: Settings, mappings: Sequence[FeedMapping], *, is_sending: bool) -> Problems:
    """Look at the address of everybody who would be told of these feeds; `is_sending`: send each a message."""
    recipients = dict.fromkeys(one for mapping in mappings for one in _of(settings, mapping))
    deliver = deliver_over(settings.mask)
    try:
        return {one: deliver(one.address, TEST) if is_sending else find_fault(one.address, settings.mask) for one in recipients}
    except ConfigError as missing:
        return dict.fromkeys(recipients, f"{missing}: {missing.hint}")


def of_channels(settings: Settings, mapping: FeedMapping, problems: Problems, *, is_sending: bool) -> Iterator[LiveFinding]:
    """Yield who would be told of a feed, and what keeps somebody from it; nothing of a feed that names nobody."""
    for name in settings.channels.unknown(mapping.notify):
        yield unwise("notify", f'EVENTSYNC_NOTIFY has no channel "{name}"{_near(settings.channels, name)}')
    recipients = _of(settings, mapping)
    for one in recipients:
        if problem := problems.get(one):
            yield unwise("notify", f"{one.name} cannot be told: {problem}")
    reached = [one.name for one in recipients if not problems.get(one)]
    if reached:
        yield well("notify", f"{'a test went to' if is_sending else 'what needs somebody is told to'} {', '.join(reached)}")


def _of(settings: Settings, mapping: FeedMapping) -> tuple[Recipient, ...]:
    return settings.channels.recipients(mapping.owner, mapping.notify)


def _near(channels: Channels, name: str) -> str:
    nearest = process.extractOne(name, sorted(channels.addresses), score_cutoff=60)
    if nearest:
        return f', did you mean "{nearest[0]}"?'
    known = ", ".join(f'"{one}"' for one in sorted(channels.addresses))
    return f"; it has {known}" if known else ": it names none"
