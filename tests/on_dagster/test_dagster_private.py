"""What has no public name in Dagster: still there after an upgrade, and imported in one module only."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg

from pipelines.orchestration import dagster_private

PACKAGE = Path(dagster_private.__file__).parents[1]


def test_the_private_names_mean_what_they_did() -> None:
    assert dagster_private.GRPC_INFO_TAG == ".dagster/grpc_info", dg.__version__
    assert dagster_private.RETRY_ON_ASSET_OR_OP_FAILURE_TAG == "dagster/retry_on_asset_or_op_failure", dg.__version__
    assert dagster_private.WILL_RETRY_TAG == "dagster/will_retry", dg.__version__
    assert dagster_private.RunFailureReason.UNEXPECTED_TERMINATION, dg.__version__
    assert {"RUNNING", "NOT_FOUND"} <= set(dagster_private.WorkerStatus.__members__), dg.__version__
    for method in ("check_run_worker_health", "supports_check_run_worker_health"):
        assert hasattr(dagster_private.DefaultRunLauncher, method), dg.__version__


def test_no_other_module_imports_what_is_private() -> None:
    private = re.compile(r"^\s*(?:from|import) dagster\w*\._", re.MULTILINE)
    found = {path.name for path in PACKAGE.rglob("*.py") if private.search(path.read_text("utf-8"))}
    assert found == {"dagster_private.py"}
