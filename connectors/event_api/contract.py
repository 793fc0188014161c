"""The service's contract as its OpenAPI page tells it, compared with what a feed sends and the worker relies upon.

How the page is asked for is `contract_question`'s; what becomes of a run is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator

from connectors.event_api.contract_operations import Operations
from connectors.event_api.contract_page import ContractPage
from connectors.event_api.contract_payload import PayloadComparison
from connectors.event_api.contract_schema import SchemaReader
from connectors.event_api.contract_worker import CHANNELS, CLASSIFICATIONS, CREATE, UPLOAD, WorkerComparison
from connectors.event_api.drift import Drift
from mappings.spec.values import Outgoing

MOST = 100
"""So many differences are told; a page with more is another service's."""


def compare(page: ContractPage, sent: Outgoing) -> tuple[Drift, ...]:
    """Return the differences between the page and what we do, errors first. Pure; never raises for what a page says."""
    reader = SchemaReader(page.tree)
    operations = Operations(page.tree, reader)
    found = [*_of_payload(operations, reader, sent), *_of_worker(WorkerComparison(operations, reader), sent)]
    return tuple(sorted(dict.fromkeys(found), key=lambda drift: drift.severity != "error")[:MOST])


def upload_field(page: ContractPage) -> str:
    """Return the field of the form in which the page wants an image, "" where it shows none."""
    reader = SchemaReader(page.tree)
    return WorkerComparison(Operations(page.tree, reader), reader).upload_field()


def _of_worker(worker: WorkerComparison, sent: Outgoing) -> Iterator[Drift]:
    for use in (CREATE, CHANNELS, CLASSIFICATIONS):
        yield from worker.differences(use)
    yield from worker.creation()
    if "coverImage" in sent.fields:
        yield from worker.differences(UPLOAD)
        yield from worker.upload()


def _of_payload(operations: Operations, reader: SchemaReader, sent: Outgoing) -> Iterator[Drift]:
    operation = WorkerComparison(operations, reader).found(CREATE)
    kinds = operations.request_types(operation) if operation else {}
    schema = next((part for kind, part in kinds.items() if "json" in kind or kind in {"*/*", "application/*"}), None)
    if schema is not None:
        yield from PayloadComparison(reader, CREATE.name).differences(sent, schema)
