"""How a source is called when people read of it: its kind, and where it is."""

from __future__ import annotations

from mappings.spec.source import SourceSpec


def source_words(spec: SourceSpec) -> str:
    """Return a source in a few words: `csv ../events.csv`."""
    return f"{spec.kind} {spec.place}"
