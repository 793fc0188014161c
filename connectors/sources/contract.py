"""What every source of rows promises.

* **Streams.** Rows are made while they are asked for; memory does not grow with their number.
* **Addresses.** Each row's `RowLocation` is a place that a person can open, with the row's true number.
* **Every row.** Blank rows are rows too, so that numbers and counts agree with what a person sees; each row has a cell
  for each of `Reading.columns`, "" where the source has none.
* **Text.** A cell is the text that stands in the source: never trimmed, turned into a number, or read as "missing".
* **All or an exception.** A source that cannot be read, ends early, lacks a column or changes meanwhile raises one of
  the errors below; it never ends quietly with fewer rows. What is wrong with one row only stands in
  `SourceRow.problems`.
* **Closes what it opened**, when the `with` block ends, read to the end or not. Rows are asked for inside the block.
* **Again.** `read()` may be called any number of times; each reading starts from the first row, or, where the source
  was opened to go on from an earlier reading's cursor, from the same one.
* **Cursors**, where a kind has them: its model says in `AnySource.full_every` how often it is read from the start all the
  same. A cursor that means nothing to the source (any more) leads to a reading from the start.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from connectors.masking import Mask
from mappings.errors import PermanentError, TransientError
from mappings.outcome import SourceRow
from mappings.spec.source_words import LINK, NO_LINKS


@dataclass(frozen=True, slots=True)
class Ending:
    """How a reading ended that ended well.

    `cursor`: from where a later reading may go on, "" if the source knows no such place; it covers exactly the rows that
    were given, and is worth keeping only once they are. `notices`: what the operator should know, such as that
    the reading was cut short by a limit of the source and goes on in the next run. `is_short`: it was, so that
    rows are missing behind those that were given, and an absent one has not vanished.
    """

    cursor: str = ""
    notices: tuple[str, ...] = ()
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over a source.

    `columns` are the names in the source's order, spelt as the mapping spells them where it uses them. `rows` is
    consumed once. `stamp` is cheap evidence of the content's version, taken before the first row was read: equal
    stamps of one source mean equal content; "" means that the source gives no evidence. `is_whole`: the rows are all
    there are, so that an absent one has vanished; else only those that changed since, and the deleted among them say
    so themselves (`SourceRow.is_gone`). `has_known_end`: something proves that the source came whole; else rows may be missing
    behind those that are given, unnoticed. `ending` is asked once the rows are consumed.
    """

    columns: tuple[str, ...]
    rows: Iterator[SourceRow]
    stamp: str = ""
    is_whole: bool = True
    ending: Callable[[], Ending] = Ending
    has_known_end: bool = True

    def with_empty(self, columns: tuple[str, ...]) -> Reading:
        """Return the same with columns that the source lacks by leave: empty in every row."""
        if not columns:
            return self
        blank = dict.fromkeys(columns, "")
        rows = (replace(row, cells={**row.cells, **blank}) for row in self.rows)
        return replace(self, columns=self.columns + columns, rows=rows)


def unchanged(columns: tuple[str, ...], cursor: str, name: str) -> Reading:
    """Return the reading of a source that has not changed since the reading that gave `cursor`."""
    notice = f"{name} has not changed since it was last read"
    return Reading(columns, iter(()), cursor, is_whole=False, ending=lambda: Ending(cursor, (notice,)))


OpenReading = Callable[[], AbstractContextManager[Reading]]
"""Reads a source, with the promises of `Source.read`."""


class Source(Protocol):
    """A place that rows can be read from, as one feed sees it."""

    def read(self) -> AbstractContextManager[Reading]:
        """Open the source and match its columns; rows follow as they are asked for.

        Raises:
            SourceUnavailableError: it did not answer, or changed while it was read; again later may work.
            SourceRefusedError: it is not there, or we may not read it.
            BadSourceError: what is there cannot be read as this kind of source.
            MissingColumnsError: it lacks columns that the feed needs; raised before any row.
        """
        ...


def stamp_of_all(stamps: Sequence[str]) -> str:
    """Return the stamp of a source whose own rows and second tables have these; "" where one gives no evidence."""
    return " ".join(stamps) if all(stamps) else ""


NO_SECRET = SecretStr("")


@dataclass(frozen=True, slots=True)
class GoogleAccess:
    """Access to Google Sheets.

    `credentials`: the file of a service account or of an authorised user; None: the machine's application-default
    credentials. `api_url`: where the API answers, "" for Google's own address.
    """

    credentials: Path | None = None
    api_url: str = ""


@dataclass(frozen=True, slots=True)
class SalesforceAccess:
    """Access to one Salesforce org, named as simple-salesforce names its arguments.

    Either `username`, `password` and `security_token`; or `consumer_key` and `consumer_secret` (client credentials); or
    `username`, `consumer_key` and `privatekey_file` (JWT). `domain`: "login", "test", or the My Domain prefix.
    `instance_url`: where the org answers, "" for where the login says.
    """

    username: str = ""
    password: SecretStr = NO_SECRET
    security_token: SecretStr = NO_SECRET
    consumer_key: str = ""
    consumer_secret: SecretStr = NO_SECRET
    privatekey_file: Path | None = None
    domain: str = "login"
    instance_url: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """All that a feed's source may need to be let in.

    `mask` hides all of it wherever a text leaves this process; a token obtained later is added to the mask.
    """

    google: GoogleAccess = field(default_factory=GoogleAccess)
    salesforce: SalesforceAccess = field(default_factory=SalesforceAccess)
    mask: Mask = field(default_factory=Mask, repr=False, compare=False)


NO_ACCESS = Access()


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, handed in so that tests need not wait.

    `now`: seconds since 1970; `clock_s`: seconds on a clock that never goes back; `sleep` waits so many seconds;
    `chance`: a number from 0 up to, not including, 1.
    """

    now: Callable[[], float] = time.time
    clock_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep  # noqa: TID251  # the default of what is handed in
    chance: Callable[[], float] = random.random


REAL_CLOCK = Clock()


@dataclass(frozen=True, slots=True)
class StatusRow:
    """A row as it is now: its number in the sheet, and the cells of the key's and the status columns."""

    number: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StatusCell:
    """The text for one cell: its row by number, its column by name; "" empties the cell."""

    number: int
    column: str
    text: str


class StatusSheet(Protocol):
    """A sheet whose owner lets us write into some columns. No other column is ever written."""

    def read(self) -> Sequence[StatusRow]:
        """Return all rows as they are now.

        Raises:
            MissingColumnsError: one of the columns to write into, or of the key, is not there.
            SyncError: the sheet cannot be read.
        """
        ...

    def write(self, cells: Sequence[StatusCell]) -> bool:
        """Write these cells as plain text and return True, if the rows are still where the last `read` found them.

        Raises:
            SyncError: the sheet cannot be written; some of the cells may have been.
        """
        ...


_NEAR = 50.0
_MOST_NAMES_SHOWN = 40


class SourceUnavailableError(TransientError):
    """The source did not answer, broke off, or changed while it was read."""


class SourceRefusedError(PermanentError):
    """The source is not there, or does not let us in."""


class NoFolderError(SourceRefusedError):
    """The folder in which files are looked for is not there."""


class BadSourceError(PermanentError):
    """What we were given cannot be read as what the mapping file says it is. `place`: file, or file:line.

    `delimiter`: what parts the cells, where it is not what the mapping file says; "" where that is not the fault.
    """

    def __init__(self, place: str, message: str, *, hint: str = "", delimiter: str = "") -> None:
        super().__init__(f"{place}: {message}", hint=hint)
        self.place = place
        self.delimiter = delimiter


class CutOffError(BadSourceError):
    """The content ends where it cannot end: within a record, or before the end that its format prescribes."""


class EmptySourceError(BadSourceError):
    """Nothing at all is there, not even a header: a file that was cut off, or not yet written."""


class MissingColumnsError(PermanentError):
    """The source lacks columns that the feed needs.

    `missing` are all of them, sorted; `nearest` maps those that resemble a column of the source to that column. The
    columns in `taken` are needed for themselves, so that they are no other's new name; nor is a single column that several are
    missing beside: it holds all of them, unsplit. `NAME.link` of a column that is there is missing where texts have no links.
    `delimiter`: what parts the header into more of the columns, "" if nothing.
    """

    def __init__(
        self,
        place: str,
        missing: Iterable[str],
        present: Sequence[str],
        *,
        taken: Collection[str] = (),
        advice: str = "",
        delimiter: str = "",
    ) -> None:
        self.missing = tuple(sorted(missing))
        self.delimiter = delimiter
        advice = f"set `source.delimiter` to {delimiter!r}, which parts the cells of this file" if delimiter else advice
        is_unsplit = bool(delimiter) or (len(present) == 1 and len(self.missing) > 1)
        texts = {name: text for name in self.missing if name.endswith(LINK) and (text := name.removesuffix(LINK)) in present}
        nearest = {} if is_unsplit else _nearest(self.missing, [name for name in present if name not in taken])
        self.nearest = {**nearest, **texts}
        listed = (f'"{name}"' + (f' (closest: "{self.nearest[name]}")' if name in self.nearest else "") for name in self.missing)
        shown = ", ".join(f'"{name}"' for name in present[:_MOST_NAMES_SHOWN])
        more = f" and {len(present) - _MOST_NAMES_SHOWN} more" if len(present) > _MOST_NAMES_SHOWN else ""
        advice = NO_LINKS if texts else advice
        hint = f"{advice or 'ask the partner, or name the new columns in the mapping file'}; its columns are: {shown}{more}"
        super().__init__(f"{place} lacks the column{'s' * (len(self.missing) > 1)} {', '.join(listed)}", hint=hint)


def _nearest(missing: Sequence[str], present: Sequence[str]) -> Mapping[str, str]:
    from rapidfuzz import fuzz, process, utils  # noqa: PLC0415  # the command line's start need not wait for it

    nearest = partial(process.extractOne, scorer=fuzz.WRatio, processor=utils.default_process, score_cutoff=_NEAR)
    return {name: match[0] for name in missing if (match := nearest(name, present)) is not None}
