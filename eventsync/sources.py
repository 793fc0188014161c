"""What a package needs to give a kind of source: an entry point of the group `eventsync.sources` names a `PluginSource`."""

from __future__ import annotations

from connectors.sources.contract import (
    Access,
    BadSourceError,
    Clock,
    CutOffError,
    EmptySourceError,
    Ending,
    MissingColumnsError,
    Reading,
    SourceRefusedError,
    SourceUnavailableError,
)
from connectors.sources.rows import table_columns
from mappings.columns import ColumnRequest, header_texts
from mappings.outcome import RowLocation, SourceRow
from mappings.reasons import Reason, ReasonCode
from mappings.spec.source import PluginSource

__all__ = [
    "Access",
    "BadSourceError",
    "Clock",
    "ColumnRequest",
    "CutOffError",
    "EmptySourceError",
    "Ending",
    "MissingColumnsError",
    "PluginSource",
    "Reading",
    "Reason",
    "ReasonCode",
    "RowLocation",
    "SourceRefusedError",
    "SourceRow",
    "SourceUnavailableError",
    "header_texts",
    "table_columns",
]
