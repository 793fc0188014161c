"""Names of Dagster that are not public. Every other module imports from `dagster` only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG, DEFAULT_DATA_VERSION, get_input_data_version_tag
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import GRPC_INFO_TAG, HIDDEN_TAG_PREFIX

from pipelines.orchestration import names
from pipelines.settings import current_settings

if TYPE_CHECKING:
    from dagster._core.workspace.context import WorkspaceProcessContext

__all__ = [
    "DATA_VERSION_TAG",
    "GRPC_INFO_TAG",
    "HIDDEN_TAG_PREFIX",
    "CheckRunHealthResult",
    "DefaultRunLauncher",
    "WorkerStatus",
    "is_of_our_location",
    "opened_workspace",
    "origin_tags",
    "set_origin",
    "tags_of_read",
]


def _repository() -> RemoteRepositoryOrigin:
    return RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(current_settings().location), names.REPOSITORY)


def origin_tags() -> Mapping[str, str]:
    """Return the tags by which the Jobs page of the UI finds the runs of a repository."""
    return dg.DagsterRun(names.JOB, remote_job_origin=_repository().get_job_origin(names.JOB)).tags_for_storage()


def is_of_our_location(run: dg.DagsterRun) -> bool:
    """Return whether a run belongs to our code location, by its origin or by its tags."""
    return origin_tags().items() <= run.tags_for_storage().items()


def set_origin(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Record the origin of a run that is tagged as one of our code location: the UI's timeline omits runs without an origin.

    A run that a process executes itself has no origin, and no public method of Dagster sets it.
    """
    if run.remote_job_origin is None and is_of_our_location(run):
        instance.run_storage.replace_job_origin(run, _repository().get_job_origin(run.job_name))


def tags_of_read(key: dg.AssetKey, version: str) -> Mapping[str, str]:
    """Return the tags of a materialization that say which version of an asset it was made from, "" if that is unknown.

    Dagster itself names the version that was observed before the step began, and so not what the step has read.
    """
    return {get_input_data_version_tag(key): version or DEFAULT_DATA_VERSION.value}


def opened_workspace(
    instance: dg.DagsterInstance, targets: dict[str, Any], *, version: str, read_only: bool, log_level: str
) -> WorkspaceProcessContext:
    """Return a context manager that loads the code locations of a command's workspace options. `targets`: their values.

    `dagster_webserver.app` makes an application of the result, and no public name makes the result.
    """
    from dagster._cli.workspace.cli_target import workspace_opts_to_load_target  # noqa: PLC0415  # for one command
    from dagster._core.workspace.context import WorkspaceProcessContext  # noqa: PLC0415  # as above
    from dagster_shared.cli import WorkspaceOpts  # noqa: PLC0415  # as above

    target = workspace_opts_to_load_target(WorkspaceOpts.extract_from_cli_options(targets))
    return WorkspaceProcessContext(instance, target, version=version, read_only=read_only, code_server_log_level=log_level)
