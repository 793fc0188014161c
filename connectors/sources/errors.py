"""What can go wrong with a source as a whole, sorted by whether another attempt may clear it.

What is wrong with a single row is no error: it travels with the row (`SourceRow.problems`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rapidfuzz import fuzz, process

from connectors.sources.names import folded
from mappings.errors import PermanentError, TransientError

_NEAR = 50.0
_MOST_NAMES_SHOWN = 40


class SourceUnavailableError(TransientError):
    """The source did not answer, broke off, or changed while it was read."""


class SourceRefusedError(PermanentError):
    """The source is not there, or does not let us in."""


class NoFolderError(SourceRefusedError):
    """The folder in which files are looked for is not there."""


class BadSourceError(PermanentError):
    """What we were given cannot be read as what the mapping file says it is. `place`: file, or file:line."""

    def __init__(self, place: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"{place}: {message}", hint=hint)
        self.place = place


class EmptySourceError(BadSourceError):
    """Nothing at all is there, not even a header: a file that was cut off, or not yet written."""


class MissingColumnsError(PermanentError):
    """The source lacks columns that the feed needs.

    `missing` are all of them, sorted; `nearest` maps those that resemble a column of the source to that column. The
    columns in `taken` are needed for themselves, and so are nobody's new name; nor is a single column that several are
    missing beside: it holds all of them, unsplit.
    """

    def __init__(
        self, place: str, missing: Iterable[str], present: Sequence[str], *, taken: Collection[str] = (), advice: str = ""
    ) -> None:
        self.missing = tuple(sorted(missing))
        is_unsplit = len(present) == 1 and len(self.missing) > 1
        self.nearest = {} if is_unsplit else _nearest(self.missing, [name for name in present if name not in taken])
        said = (f'"{name}" (closest: "{self.nearest[name]}")' if name in self.nearest else f'"{name}"' for name in self.missing)
        super().__init__(
            f"{place} lacks the column{'s' * (len(self.missing) > 1)} {', '.join(said)}", hint=_hint(present, advice)
        )


def _nearest(missing: Sequence[str], present: Sequence[str]) -> Mapping[str, str]:
    found = {
        name: process.extractOne(name, present, scorer=fuzz.WRatio, processor=folded, score_cutoff=_NEAR) for name in missing
    }
    return {name: match[0] for name, match in found.items() if match is not None}


def _hint(present: Sequence[str], advice: str) -> str:
    shown = ", ".join(f'"{name}"' for name in present[:_MOST_NAMES_SHOWN])
    more = f" and {len(present) - _MOST_NAMES_SHOWN} more" if len(present) > _MOST_NAMES_SHOWN else ""
    return f"{advice or 'ask the partner, or name the new columns in the mapping file'}; its columns are: {shown}{more}"
