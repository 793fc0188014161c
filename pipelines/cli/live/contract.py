"""What the service's own page says of a feed: every difference from what it sends and the worker relies upon, a line each.

How they are compared is `connectors.event_api.contract`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.event_api.contract_check import compare
from connectors.event_api.contract_page import ContractPage, NoPage
from mappings.lint.soundness import outgoing_of
from mappings.spec.feed import FeedMapping
from mappings.spec.values import Outgoing
from pipelines.cli.findings import LiveFinding, unwise, well, wrong
from pipelines.run.outcome import ExitCode


def of_contract(page: ContractPage | NoPage, mapping: FeedMapping) -> Iterator[LiveFinding]:
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
