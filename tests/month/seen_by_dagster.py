"""What the scheduler loads: the project's definitions, without its logs."""

from __future__ import annotations

import dagster as dg

from pipelines.definitions import build_definitions
from pipelines.run.context import open_context
from pipelines.settings import current_settings


@dg.definitions
def defs() -> dg.Definitions:
    settings = current_settings()
    return build_definitions(settings, lambda: open_context(settings))
