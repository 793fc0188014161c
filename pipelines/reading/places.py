"""Where a feed's rows are, for a person who wants to look: the address that a click opens.

How a source is called in words is its own `place`.
"""

from __future__ import annotations

from mappings.spec.source import GoogleSheetsSource, SourceSpec


def address_of(source: SourceSpec) -> str:
    """Return the address of a source on the web, without any secret; "" where it has none that a browser opens."""
    if isinstance(source, GoogleSheetsSource):
        tab = "" if source.tab_number is None else f"/edit#gid={source.tab_number}"
        return f"https://docs.google.com/spreadsheets/d/{source.spreadsheet_id}{tab}" if source.spreadsheet_id else ""
    return source.place if source.place.startswith(("http://", "https://")) else ""
