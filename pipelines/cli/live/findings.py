"""What the service and the source say of each feed, a line for every question: asked once, told for all feeds.

What is found in the file alone is `findings`'; each answer has its own module (`service`, `slugs`, `contract`,
`source`, `channels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mappings.spec.feed import FeedMapping
from pipelines.cli.asking import Lists, ask_everything
from pipelines.cli.findings import LiveFinding, unwise
from pipelines.cli.live.channels import ask_channels, of_channels
from pipelines.cli.live.contract import of_contract
from pipelines.cli.live.service import of_account, refused
from pipelines.cli.live.slugs import of_classifications
from pipelines.cli.live.source import of_source
from pipelines.cli.shelf import open_shelf
from pipelines.clock import now
from pipelines.run.preflight import ListMemory
from pipelines.settings import Settings
from state.database import existing_database
from state.notes import ServiceNotes


def ask_for(
    settings: Settings, mappings: Sequence[FeedMapping], *, is_probing: bool = False, is_telling: bool = False
) -> Mapping[Path, tuple[LiveFinding, ...]]:
    """Ask the service once and every source once; return the answers by the mapping's path. Nothing is written.

    `is_telling`: whoever would be told of a feed is sent a test.

    Raises:
        SyncError: there is a state DB, and it cannot be opened.
    """
    lists = ask_everything(settings, is_probing=is_probing)
    problems = ask_channels(settings, mappings, is_sending=is_telling)
    with _memory(settings) as memory, open_shelf(settings) as shelf:
        estranged = shelf.estranged()
        return {
            mapping.path: (
                *_service(settings, lists, mapping, memory),
                *(unwise("ledger", told) for told in estranged if not shelf.has_delivered(mapping.feed)),
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


def _service(settings: Settings, lists: Lists, mapping: FeedMapping, memory: ListMemory | None) -> Iterator[LiveFinding]:
    if lists.refusal is not None:
        yield refused("service", lists.refusal)
        return
    yield from of_account(settings.base_url, lists, mapping)
    yield of_classifications(lists.classifications, mapping, memory)
    yield from of_contract(lists.page, mapping)
