"""Where a feed's rows are, as it may be shown to anybody: without the user names, passwords and tokens of its address.

Where they truly are is the source's own `place`.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from mappings.source_bases import AnySource


def shown_place(source: AnySource) -> str:
    """Return a source's place; of an address without its user, its password and its query: secrets travel in all three."""
    if "://" not in source.place:
        return source.place
    try:
        parts = urlsplit(source.place)
    except ValueError:  # what cannot be read cannot be cleaned
        return f"{source.place.partition('://')[0]}://…"
    query = "…" if parts.query else ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, parts.fragment))
