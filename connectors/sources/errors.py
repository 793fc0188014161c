"""What can go wrong with a source as a whole, sorted by whether another attempt may clear it.

What is wrong with a single row is no error: it travels with the row (`SourceRow.problems`).
"""

from __future__ import annotations

import errno
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from xml.parsers import expat

from rapidfuzz import fuzz, process, utils

from mappings.errors import PermanentError, TransientError

_DAMAGE = (
    *(EOFError, ValueError, LookupError, ArithmeticError, RuntimeError, MemoryError, OSError),
    *(struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile, expat.ExpatError),
)
"""Everything that Python's readers of archives, packed files, texts and XML raise for bytes that are not what they should be."""
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


class CutOffError(BadSourceError):
    """The content ends where it cannot end: within a record, or before the end that its format prescribes."""


class EmptySourceError(BadSourceError):
    """Nothing at all is there, not even a header: a file that was cut off, or not yet written."""


class MissingColumnsError(PermanentError):
    """The source lacks columns that the feed needs.

    `missing` are all of them, sorted; `nearest` maps those that resemble a column of the source to that column. The
    columns in `taken` are needed for themselves, so that they are no other's new name; nor is a single column that several are
    missing beside: it holds all of them, unsplit.
    """

    def __init__(
        self, place: str, missing: Iterable[str], present: Sequence[str], *, taken: Collection[str] = (), advice: str = ""
    ) -> None:
        self.missing = tuple(sorted(missing))
        is_unsplit = len(present) == 1 and len(self.missing) > 1
        self.nearest = {} if is_unsplit else _nearest(self.missing, [name for name in present if name not in taken])
        listed = (f'"{name}"' + (f' (closest: "{self.nearest[name]}")' if name in self.nearest else "") for name in self.missing)
        shown = ", ".join(f'"{name}"' for name in present[:_MOST_NAMES_SHOWN])
        more = f" and {len(present) - _MOST_NAMES_SHOWN} more" if len(present) > _MOST_NAMES_SHOWN else ""
        hint = f"{advice or 'ask the partner, or name the new columns in the mapping file'}; its columns are: {shown}{more}"
        super().__init__(f"{place} lacks the column{'s' * (len(self.missing) > 1)} {', '.join(listed)}", hint=hint)


@contextmanager
def as_bad_source(
    place: Callable[[], str], what: str, *, hint: str = "ask the partner for the whole file", is_end: bool = False
) -> Iterator[None]:
    """Raise what a reader of bytes raises in the block as an error with a place; `what` says what cannot be read.

    `is_end`: all bytes have been read, so that any error means that more should follow.

    Raises:
        BadSourceError: the bytes are damaged, `CutOffError` where they end too early.
        SourceUnavailableError: the disk failed.
    """
    try:
        yield
    except _DAMAGE as error:
        # The disk's own errors have a number, those of Python's readers have none; a seek to a damaged offset is invalid.
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
            raise SourceUnavailableError(f"{place()} broke off: {error.strerror}", hint="run again later") from error
        kind = CutOffError if is_end or isinstance(error, EOFError) else BadSourceError
        raise kind(place(), f"{what}{_reason(error)}", hint=hint) from error


@contextmanager
def cut_off_is_passing(name: str, *, has_known_end: bool) -> Iterator[None]:
    """Let content that ends too early be worth another attempt, where nothing proves that it has come whole.

    Raises:
        SourceUnavailableError: in place of `CutOffError`.
    """
    try:
        yield
    except CutOffError as error:
        if has_known_end:
            raise
        message = f"{error}; the server of {name} does not say how long it is, so the answer may have been cut off"
        hint = (
            "run again later; if the file is whole like this, say `settle: 30s` in its source, or have the server send its length"
        )
        raise SourceUnavailableError(message, hint=hint) from error


def _reason(error: BaseException) -> str:
    match error:
        case expat.ExpatError():
            return f": {expat.errors.messages.get(error.code, str(error.code))}"
        case UnicodeDecodeError():
            return f" ({error.reason})"
        case UnicodeError():
            return f" ({error})"
        case _:
            return ""


def _nearest(missing: Sequence[str], present: Sequence[str]) -> Mapping[str, str]:
    nearest = partial(process.extractOne, scorer=fuzz.WRatio, processor=utils.default_process, score_cutoff=_NEAR)
    return {name: match[0] for name in missing if (match := nearest(name, present)) is not None}
