"""What the scheduler loads: the project's definitions, without its logs."""

from __future__ import annotations

import dagster as dg

from pipelines.definitions import build_definitions
from pipelines.settings import current_settings
from pipelines.wiring import open_workshop


@dg.definitions
def defs() -> dg.Definitions:
    settings = current_settings()
    return build_definitions(settings, lambda: open_workshop(settings))
