"""A `SyncError` becomes Dagster's own failure, with one verdict for all three of its retry mechanisms.

| mechanism                                | what it looks at                          | how the verdict reaches it          |
|------------------------------------------|-------------------------------------------|-------------------------------------|
| request (`connectors.retry`)             | `TransientError`, seconds                 | it has already been spent here      |
| step (`RetryPolicy`)                     | `Failure(allow_retries=...)`              | transient failures of reading only  |
| run (`run_retries` of the daemon)        | the tag `dagster/retry_on_asset_or_op_failure` | set to false when it is permanent |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import AssetExecutionContext, Failure, MetadataValue
from dagster._core.storage.tags import RETRY_ON_ASSET_OR_OP_FAILURE_TAG

from mappings.errors import SyncError, TransientError
from pipelines.outcomes import outcome_of


@contextmanager
def as_failures(context: AssetExecutionContext) -> Iterator[None]:
    """Raise every `SyncError` of the block as a `Failure` that says what would help and whether a retry can."""
    try:
        yield
    except SyncError as error:
        raise failure_of(context, error) from error


def failure_of(context: AssetExecutionContext, error: SyncError) -> Failure:
    """Return the failure for an error; a permanent one also tells the daemon not to retry the run."""
    is_transient = isinstance(error, TransientError)
    if not is_transient:
        context.instance.add_run_tags(context.run_id, {RETRY_ON_ASSET_OR_OP_FAILURE_TAG: "false"})
    outcome = outcome_of(error)
    return Failure(
        description=f"{error}\n{error.hint}".strip(),
        metadata={
            "outcome": outcome.name,
            "exit_code": int(outcome.exit_code),
            "what would help": MetadataValue.text(error.hint or "see the message"),
        },
        allow_retries=is_transient,
    )
