"""Names of Dagster that are not public. Every other module imports from `dagster` only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.data_version import (
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    get_input_data_version_tag,
)
from dagster._core.events import RunFailureReason
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemotePartitionSetOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.tags import (
    GRPC_INFO_TAG,
    HIDDEN_TAG_PREFIX,
    REPOSITORY_LABEL_TAG,
    RETRY_ON_ASSET_OR_OP_FAILURE_TAG,
    RUN_FAILURE_REASON_TAG,
    WILL_RETRY_TAG,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from pipelines.orchestration import names
from pipelines.settings import current_settings

if TYPE_CHECKING:
    from dagster._core.workspace.context import WorkspaceProcessContext

__all__ = [
    "DATA_VERSION_IS_USER_PROVIDED_TAG",
    "DATA_VERSION_TAG",
    "GRPC_INFO_TAG",
    "HIDDEN_TAG_PREFIX",
    "RETRY_ON_ASSET_OR_OP_FAILURE_TAG",
    "RUN_FAILURE_REASON_TAG",
    "WILL_RETRY_TAG",
    "BulkActionStatus",
    "CheckRunHealthResult",
    "DefaultRunLauncher",
    "PartitionBackfill",
    "RunFailureReason",
    "WorkerStatus",
    "opened_workspace",
    "origin_tags",
    "put_backfill",
    "set_origin",
    "tags_of_read",
]


def _repository() -> RemoteRepositoryOrigin:
    target = LoadableTargetOrigin(module_name="pipelines.definitions")
    location = ManagedGrpcPythonEnvCodeLocationOrigin(target, current_settings().location)
    return RemoteRepositoryOrigin(location, names.REPOSITORY)


def origin_tags() -> Mapping[str, str]:
    """Return the tags by which the Jobs page of the UI finds the runs of a repository."""
    return {REPOSITORY_LABEL_TAG: _repository().get_label()}


def set_origin(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Record that a run belongs to our code location: the UI's timeline omits runs without an origin.

    A run that a process executes itself has no origin, and no public method of Dagster sets it.
    """
    if run.remote_job_origin is None:
        instance.run_storage.replace_job_origin(run, _repository().get_job_origin(run.job_name))


def put_backfill(  # noqa: PLR0913  # the fields of a line of the tab
    instance: dg.DagsterInstance,
    backfill_id: str,
    status: BulkActionStatus,
    *,
    tags: Mapping[str, str],
    partitions: Sequence[str],
    job: str,
    began: datetime,
    ended: datetime | None,
) -> None:
    """Create or replace the record of a backfill in the Backfills tab of the UI. `job`: "" for none.

    Its runs are those with the tag `dagster/backfill`. Dagster has no public way to record a backfill run by others; its daemon
    acts on a `status` of REQUESTED, CANCELING or FAILING.
    """
    name = f"{job}_partition_set"
    backfill = PartitionBackfill(
        backfill_id,
        status,
        from_failure=False,
        tags=tags,
        backfill_timestamp=began.timestamp(),
        partition_set_origin=RemotePartitionSetOrigin(repository_origin=_repository(), partition_set_name=name) if job else None,
        partition_names=partitions,
        backfill_end_timestamp=ended.timestamp() if ended else None,
    )
    (instance.update_backfill if instance.get_backfill(backfill_id) else instance.add_backfill)(backfill)


def tags_of_read(key: dg.AssetKey, version: str) -> Mapping[str, str]:
    """Return the tags of a materialization that say which version of an asset it was made from, "" if that is unknown.

    Dagster itself names the version that was observed before the step began, and so not what the step has read.
    """
    return {get_input_data_version_tag(key): version or DEFAULT_DATA_VERSION.value}


@contextmanager
def opened_workspace(
    instance: dg.DagsterInstance, targets: dict[str, Any], *, version: str, read_only: bool, log_level: str
) -> Iterator[WorkspaceProcessContext]:
    """Load the code locations that the workspace options of a command name. `targets`: the values of these options.

    `dagster_webserver.app` makes an application of the result, and no public name makes the result.
    """
    from dagster._cli.workspace.cli_target import workspace_opts_to_load_target  # noqa: PLC0415  # for one command
    from dagster._core.workspace.context import WorkspaceProcessContext  # noqa: PLC0415  # as above
    from dagster_shared.cli import WorkspaceOpts  # noqa: PLC0415  # as above

    target = workspace_opts_to_load_target(WorkspaceOpts.extract_from_cli_options(targets))
    with WorkspaceProcessContext(
        instance, target, version=version, read_only=read_only, code_server_log_level=log_level
    ) as workspace:
        yield workspace
